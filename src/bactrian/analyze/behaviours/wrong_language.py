"""Wrong language: a turn is in another language than its session.

The session's language is the recorded one, else English. Code, short turns and turns about languages, where another one
may be what was asked for, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.identify import detect_other_language, identify_language
from bactrian.records.finding import Finding

_ABOUT_LANGUAGES = re.compile(
    r"\b(?:translat\w+|language|english|french|spanish|german|italian|russian|chinese|mandarin|japanese|korean"
    r"|arabic|hindi"
    r"|latin|bilingual|multilingual|locali[sz]\w+|loanword|phrase|traduc\w+|tradui\w+|übersetz\w+|idioma|langue"
    r"|sprache|lingua)\b"
    r"|перев(?:ед|од)|翻译|翻訳|번역|अनुवाद|ترجم"
)


def detect_wrong_language(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns in another language."""
    language = identify_language(reading.session.provenance.language)
    for heard in reading.heard:
        if detect_other_language(heard.lower, language) and not _may_be_asked_for(heard):
            yield reading.make_finding(heard, "wrong_language", 0.9, heard.turn.text)


def _may_be_asked_for(heard: HeardTurn) -> bool:
    asked = heard.lower if heard.by_user else heard.asked.lower()
    return _ABOUT_LANGUAGES.search(asked) is not None
