"""Blocks of Python in a reply, and the record of what came of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bactrian.language.fences import PYTHON, find_blocks
from bactrian.records.text import Text
from bactrian.records.tool import Toolkit, Use, group_rounds, read_arguments

NAME = "python"
"""The tool that stands for an embodied agent's code."""
SCHEMA = {"properties": {"code": {"type": "string"}}, "required": ["code"], "type": "object"}
"""Its arguments."""
ACTIONS = "> Embodied Actions:"
RESULTS = "> Executed Results:"
_NEXT = re.compile(r"\s*Next request\.\s*\Z")


def split_blocks(text: str, most: int) -> tuple[str, list[str]]:
    """Return the explanation of a reply, and its fenced blocks of Python or of no stated language.

    Blocks after the first ``most`` are joined to the last of these. A block that is not closed ends with the text.
    """
    found = [one for one in find_blocks(text) if one.language in PYTHON and one.code.strip()]
    blocks = [one.code for one in found]
    if len(blocks) > most:
        blocks[most - 1 :] = ["\n".join(blocks[most - 1 :])]
    for one in reversed(found):
        text = text[: one.begin] + text[one.end :]
    return re.sub(r"\n{3,}", "\n\n", text).strip(), blocks


def write_actions(uses: Sequence[Use]) -> str:
    """Write the explanation and the code of one reply."""
    parts = [
        str(uses[0].call.text),
        *(f"```python\n{(read_code(use.call.wanted.arguments) or '').strip()}\n```" for use in uses),
    ]
    return "\n\n".join(part for part in parts if part)


def write_results(uses: Iterable[Use]) -> str:
    """Write the results of one reply, a paragraph for each block."""
    return "\n\n".join(str(use.result.text).strip() for use in uses if use.result)


def write_record(uses: Iterable[Use]) -> str:
    """Write what an embodied agent did in a turn, in the paper's form; empty if it did nothing."""
    rounds = group_rounds(uses)
    return "\n\n".join(
        f"{ACTIONS}\n{write_actions(one)}\n\n{RESULTS}\n{write_results(one)}" for one in rounds
    )


def insert_record(text: str, record: str) -> Text:
    """Return ``text`` with ``record`` at its end, before the words that ask for the next request."""
    if not record:
        return Text(text)
    found = _NEXT.search(text)
    said, rest = (text[: found.start()], "\n\nNext request.") if found else (text.rstrip(), "")
    return Text(f"{said}\n\n{record}{rest}")


def read_code(arguments: str) -> str | None:
    """Return the code in the arguments of a call; None if there is none."""
    match read_arguments(arguments):
        case {"code": str(code)}:
            return code
        case _:
            return None


def is_body(kit: Toolkit) -> bool:
    """Return True if ``kit`` is an embodied agent's: it has the tool for code and no other."""
    return [(one.name, dict(one.parameters)) for one in kit.tools] == [(NAME, SCHEMA)]
