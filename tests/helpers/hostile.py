"""Texts that steer terminals, pages, spreadsheets and file systems, and a run that holds them in every text."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

from bactrian.records.run import Call, ItemList
from bactrian.records.session import Ending, Role, Session, Task
from bactrian.records.text import clean_text
from bactrian.records.turn import Usage
from bactrian.store import open_store
from tests.helpers.runs import ORIGIN, session

HOSTILE = {
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;owned\x07",
    "osc 52": "\x1b]52;c;cm0gLXJm\x07",
    "c1": "\x9b31m\x9d0;owned\x9c\x85next\x7f",
    "bidi": "\u202eexe.txt\u202c \u2066isolated\u2069 \u200f\u061c",
    "nul": "a\x00b\rc\x08\x0c",
    "surrogate": "half \ud83d",
    "html": '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "svg": "<svg onload=alert(1)><a href='javascript:alert(1)'>x</a></svg>&lt;",
    "markdown": "[x](javascript:alert(1)) ![y](http://evil.example/p.png) # no\n# Forged\n- [z]: http://evil.example",
    "table": "a | b |\n|---|---|\n| forged | cell |",
    "csv": '=HYPERLINK("http://evil.example")\n+1\n-1\n@SUM(1)\t=1',
    "path": "../../../etc/passwd\\..\\con:/nul",
    "long": "x" * 300,
    "zero width": "a\u200bb\ufeffc\u2060d\u00ade",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five",
    "yaml": "---\nlicense: mit\n---\n- !!python/object: x\n'\"{}[]&*#?|>%@`",
    "tags": "\U000e0041\U000e0042 emoji 👩\u200d👧",
}
BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def find_steering(output: str) -> set[str]:
    """The characters of ``output`` that do something to a terminal besides being shown there."""
    return {
        character
        for character in output
        if character not in "\n\t"
        and (unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDI)
    }


def hostile_session(name: str, text: str) -> Session:
    """A session that has ``text`` in every field that can hold text."""
    made = session(name, texts=[f"Instruction: {text}\nInput: {text}", f"Solution: {text}", text, text])
    origin = replace(
        ORIGIN,
        prompts=text,
        models={"user": f"openai:{text}", "assistant": text},
        language=text,
    )
    return replace(
        made,
        assistant=Role(text, text),
        user=Role(f"{text}!", text),
        task=Task(text, text),
        provenance=origin,
        turns=tuple(replace(turn, role=text, model=text, fingerprint=text) for turn in made.turns),
        ending=Ending("task_done", 4, "user", text),
        values={"task": text, text: text, "language": text},
        mark=text,
    )


async def make_hostile_run(path: Path) -> Path:
    """Write a run of sessions that hold the hostile texts, a third of them failed, with calls and lists."""
    async with open_store(path) as store:
        for number, text in enumerate(map(clean_text, HOSTILE.values())):
            made = hostile_session(f"{text}{number}", text)
            await store.begin(replace(made, turns=(), ending=None))
            await store.save_task(made)
            for turn in made.turns:
                await store.add_turn(made.id, turn)
            assert made.ending is not None
            failed = number % 3 == 0
            ending = replace(made.ending, code="failed") if failed else made.ending
            call = Call(made.id, "user", 0, text, 0.1, raw=text.encode(), error=text)
            await store.add_call(call)
            await store.end(made.id, ending, made.usage)
            await store.save_list(ItemList(text, (text,), True, Usage(), 1))
    return path
