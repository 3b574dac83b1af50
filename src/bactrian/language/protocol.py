"""The inception protocol: how an instruction and a solution look as text (paper, section 3.2 and figure 2).

A turn is read leniently, because models decorate (``**Instruction:**``), write the colon of their script
(U+FF1A) and chat before they come to the point, but the protocol's words inside a fenced code block are quotations
and count for nothing.
"""

from __future__ import annotations

import re

from bactrian.records.turn import Instruction, Solution

DONE = "<CAMEL_TASK_DONE>"
"""The done token: what the AI user says, alone, when the task is solved."""

# A block may begin behind a marker: "Solution: ```python".
_FENCED = re.compile(r"(?:^|(?<=[:*]))[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_AT_LINE_START = {
    # Bold before the marker closes after it: **Instruction:** or **Instruction**: are both common.
    marker: re.compile(rf"^[ \t>#]*(\*\*|__)?{marker}(?(1)(?:[:：]\1|\1[:：])|[:：])[ \t]*", re.MULTILINE)
    for marker in ("Instruction", "Input", "Solution")
}
_ANYWHERE = {marker: re.compile(rf"\b{marker}[:：][ \t]*") for marker in _AT_LINE_START}
_NEXT_REQUEST = re.compile(r"\s*(?:\*\*|__)?Next request\.?(?:\*\*|__)?\s*\Z")
_NO_INPUT = re.compile(r"(?:none|n/a)?[.\s]*", re.IGNORECASE)
_WRAPPING = " \t\r\n*_`\"'.!"


def read_instruction(text: str) -> Instruction | None:
    """Read an AI user's turn. None if it holds no instruction."""
    visible = strip_code(text)
    marker = _find("Instruction", visible)
    if marker is None:
        return None
    rest = marker.end()
    split = _find("Input", visible, rest)
    instruction = text[rest : split.start() if split else None].strip()
    if instruction.strip(_WRAPPING) in ("", DONE):
        return None
    given = text[split.end() :].strip() if split else ""
    return Instruction(
        instruction,
        None if _NO_INPUT.fullmatch(given) else given,
        text[: marker.start()].strip(),
    )


def read_solution(text: str) -> Solution | None:
    """Read an AI assistant's turn. None if nothing in it is marked as a solution."""
    marker = _find("Solution", strip_code(text))
    if marker is None:
        return None
    body = text[marker.end() :]
    # Only where it could stand: looked for from the beginning, every space of a long solution would be tried.
    end = (
        _NEXT_REQUEST.search(body, max(0, body.rfind("Next request") - 40))
        if "Next request" in body
        else None
    )
    return Solution(
        body[: end.start() if end else None].strip(),
        asks_next=end is not None,
        preface=text[: marker.start()].strip(),
    )


def write_instruction(instruction: str, given: str | None = None) -> str:
    """The text of an instruction, with its input or ``None``."""
    return f"Instruction: {instruction}\nInput: {given or 'None'}"


def write_solution(solution: str) -> str:
    """The text of a solution that asks for the next instruction."""
    return f"Solution: {solution}\nNext request."


def is_done(text: str) -> bool:
    """True if an AI user's turn says that the task is done.

    That is the done token alone, or at the end of a turn that holds no instruction. A token that is only
    mentioned, inside an instruction or earlier in the text, does not count.
    """
    return text.rstrip(_WRAPPING).endswith(DONE) and read_instruction(text) is None


def has_instruction(text: str) -> re.Match[str] | None:
    """Where a line of ``text`` begins with ``Instruction:``, which only the AI user may write.

    The same pattern finds it here as in :func:`read_instruction`, decorated or with a full-width colon too.
    """
    return _AT_LINE_START["Instruction"].search(strip_code(text)) if "Instruction" in text else None


def strip_code(text: str) -> str:
    """``text`` with fenced code blanked out, so that positions stay the same."""
    if "```" not in text and "~~~" not in text:
        return text
    return _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)


def _find(marker: str, text: str, start: int = 0) -> re.Match[str] | None:
    """The marker where it begins a line; failing that, where it stands first."""
    return _AT_LINE_START[marker].search(text, start) or _ANYWHERE[marker].search(text, start)
