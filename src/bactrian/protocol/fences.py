"""Fenced blocks of code in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from unicodedata import category

from bactrian.protocol.markers import DONE
from bactrian.records.text import Text
from bactrian.records.turn import Instruction, Solution, Toolkit, Turn, Use, group_rounds, read_arguments

PYTHON = ("", "python", "python3", "py")
"""Languages of blocks that are read as Python; the first is a block of no stated language."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A block between two fences."""

    language: str  # In small letters; empty if not stated.
    code: str
    begin: int  # Where its opening fence begins in the text.
    end: int  # Where its closing fence ends.


def find_blocks(text: str) -> Iterator[FencedBlock]:
    """Yield the fenced blocks of ``text``. A block that is not closed ends with the text."""
    begun: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if begun is None:
            begun = fence
            continue
        code = text[begun.end() + 1 : fence.start()]
        yield FencedBlock(begun[1].lower(), code, begun.start(), fence.end())
        begun = None
    if begun is not None:
        yield FencedBlock(begun[1].lower(), text[begun.end() + 1 :], begun.start(), len(text))


# The content of a turn, without the markers of the inception protocol.


_MARKERS = re.compile(
    r"^[ \t>#*_-]*(?:Instruction|Input|Solution)[*_]*[:：][*_]*[ \t]*(?:None\.?[ \t]*$)?",
    re.MULTILINE | re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(
    r"(?:^[ \t*_]*|(?<=[^\w\s,;])[ \t*_]+)Next request\.?[*_]*\s*\Z", re.MULTILINE | re.IGNORECASE
)
_NEXT_LINE = re.compile(
    r"(?:^[ \t>*_-]*|(?<=[.!?:)])[ \t*_]+)Next request\.?[*_]*[ \t]*$", re.MULTILINE | re.IGNORECASE
)
_INNER = re.compile(r"(?<=[.!?])([ \t]+)[*_]*Solution[*_]*:[*_]*[ \t]*")
_CODE = re.compile(r"(^[ \t]*(?:```.*?(?:^[ \t]*```|\Z)|~~~.*?(?:^[ \t]*~~~|\Z)))", re.MULTILINE | re.DOTALL)
_TAIL = 60
"""Characters at the end that are searched for the request for the next instruction; the whole text would be slow."""
_FENCE_body = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_NONE = re.compile(r"\W*(?:none|n/a)\W*(?:none|n/a)?\W*", re.IGNORECASE)
_LONGEST = 400  # Characters; a longer body is blank only if it contains no letter or digit.


def read_body(turn: Turn) -> str:
    """Return the content of ``turn``, code included, without the markers of the protocol."""
    parsed = turn.said
    if isinstance(parsed, Solution):
        return f"{parsed.preface}\n{parsed.solution}".strip() if parsed.preface else parsed.solution
    if isinstance(parsed, Instruction):
        return "\n".join(part for part in (parsed.preface, parsed.instruction, parsed.input) if part)
    text = turn.text.rstrip()
    asks = _NEXT_REQUEST.search(text, max(0, len(text) - _TAIL))
    return _MARKERS.sub("", text[: asks.start()] if asks else text).strip()


def strip_markers(text: str) -> str:
    """Remove the markers of the protocol, the done token and the request for the next instruction from ``text``.

    Fenced code is left as it is.
    """
    parts: list[str] = []
    for number, piece in enumerate(_CODE.split(text)):
        parts.append(piece if number % 2 else _strip_prose(piece))
    return "".join(parts).strip()


def _strip_prose(text: str) -> str:
    return _NEXT_LINE.sub("", _INNER.sub(r"\1", _MARKERS.sub("", text.replace(DONE, ""))))


def is_blank(body: str, *, by_user: bool) -> bool:
    """Return True if a body has no content.

    White space, punctuation and an empty code block do not count as content, nor does an instruction that is only
    ``None``. A single letter, digit or emoji counts, and ``None`` may be a solution.
    """
    if len(body) > _LONGEST:
        return not any(map(str.isalnum, body))
    if "```" in body or "~~~" in body:
        body = _FENCE_body.sub("", body)
    if not any(character.isalnum() or category(character) == "So" for character in body):
        return True
    return by_user and _NONE.fullmatch(body) is not None


# Finds a quotation in the text that it is from.


def find_quotation(text: str, quote: str) -> tuple[int, int] | None:
    """Return begin and end of ``quote`` in ``text``, even if it was shortened or put on one line; None if not found."""
    wanted = quote.strip().removesuffix("…").rstrip()
    if not wanted:
        return None
    begin = text.find(wanted)
    if begin >= 0:
        return begin, begin + len(wanted)
    match = re.search(r"\s+".join(map(re.escape, wanted.split())), text)
    return None if match is None else match.span()


# Blocks of Python in the reply of an embodied agent, and the record of what came of them.


PYTHON_TOOL = "python"  # The tool that stands for an embodied agent's code.
PYTHON_SCHEMA = {"properties": {"code": {"type": "string"}}, "required": ["code"], "type": "object"}
"""Its arguments."""
ACTIONS = "> Embodied Actions:"
RESULTS = "> Executed Results:"
_NEXT = re.compile(r"\s*Next request\.\s*\Z")


def split_blocks(text: str, most: int) -> tuple[str, list[str]]:
    """Return the explanation of a reply, and its fenced blocks of Python or of no stated language.

    Blocks after the first ``most`` are joined to the last of these. A block that is not closed ends with the text.
    """
    fenced = [block for block in find_blocks(text) if block.language in PYTHON and block.code.strip()]
    blocks = [block.code for block in fenced]
    if len(blocks) > most:
        blocks[most - 1 :] = ["\n".join(blocks[most - 1 :])]
    for block in reversed(fenced):
        text = text[: block.begin] + text[block.end :]
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
        f"{ACTIONS}\n{write_actions(group)}\n\n{RESULTS}\n{write_results(group)}" for group in rounds
    )


def insert_record(text: str, record: str) -> Text:
    """Return ``text`` with ``record`` at its end, before the words that ask for the next request."""
    if not record:
        return Text(text)
    match = _NEXT.search(text)
    before, rest = (text[: match.start()], "\n\nNext request.") if match else (text.rstrip(), "")
    return Text(f"{before}\n\n{record}{rest}")


def read_code(arguments: str) -> str | None:
    """Return the code in the arguments of a call; None if there is none."""
    match read_arguments(arguments):
        case {"code": str(code)}:
            return code
        case _:
            return None


def is_embodied(kit: Toolkit) -> bool:
    """Return True if ``kit`` is an embodied agent's: it has the tool for code and no other."""
    return [(tool.name, dict(tool.parameters)) for tool in kit.tools] == [(PYTHON_TOOL, PYTHON_SCHEMA)]
