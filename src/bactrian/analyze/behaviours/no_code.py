"""No code: a solution without code where the recipe asks for code in every solution.

A block of code that is not empty is code, and so are lines that look like it, fenced or not. Where the instruction
asks for an explanation rather than a program, the finding is less sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.empty_turn import is_empty
from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.records.finding import Finding

_FENCED = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(?=[^\n]*\S)(?![ \t]*(?:```|~~~))", re.MULTILINE)
_LINE_OF_CODE = re.compile(
    r"^\s*(?:(?:def|class|function|func|fn|sub|public|private|protected|static|void|int|float|double|char|bool"
    r"|string|var|let"
    r"|const|import|from|using|package|module|namespace|struct|interface|enum|impl|mov|push"
    r"|call)\s+[\w.$<>\[\]{}*&,]+\s*[\w.(:;={,]"
    r"|#include\s*[<\"]|#!/|<\?php|<[a-z]+[^>\n]*>|(?:select|insert into|create table|update|delete from"
    r"|alter table)\s+\S[^\n]*;?\s*$"
    r"|(?:if|for|while|elif|switch|foreach)\b[^\n]*[:{]\s*$|(?:return|print|echo|printf"
    r"|puts)\b[ (][^\n]*[;)\w\"]\s*$"
    r"|[\w.$@\[\]\"']+\s*(?:<-|:=|[-+*/]?=)\s*[^\s=][^\n]*$|[\w.$]+\([^\n]*\)\s*[;{]?\s*$|[^\n]*[;{}]\s*$|\$ \w+)",
    re.MULTILINE | re.IGNORECASE,
)
_CODE_IN_LINE = re.compile(r"`[^`\n]*[=(;{<>$][^`\n]*`")
_EXPLAINS = re.compile(
    r"\b(?:explain|describe|discuss|why|what is|what are|list|name|tell|summari[sz]e|compare)\b"
)
_ASKS_FOR_CODE = re.compile(
    r"\b(?:code|program|function|script|class|method|implement\w*|quer(?:y|ies)|algorithm|snippet)\b"
)


def detect_missing_code(reading: SessionReading) -> Iterator[Finding]:
    """Yield solutions without code."""
    if not reading.session.provenance.needs_code:
        return
    for heard in reading.heard:
        if not heard.by_user and not is_empty(heard) and not _contains_code(heard.body):
            yield reading.make_finding(heard, "no_code", _confidence(heard), heard.body)


def _contains_code(text: str) -> bool:
    return (
        _FENCED.search(text) is not None
        or _LINE_OF_CODE.search(text) is not None
        or _CODE_IN_LINE.search(text) is not None
    )


def _confidence(heard: HeardTurn) -> float:
    asked = heard.asked.lower()
    return 0.6 if _EXPLAINS.search(asked) and not _ASKS_FOR_CODE.search(asked) else 0.9
