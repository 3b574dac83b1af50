"""Turns as Markdown in colour, shown while they are generated, without the words of the protocol."""

from __future__ import annotations

import re
import time
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bactrian.protocol.markers import MARKERS, NOTHING, Marker
from bactrian.records.text import keep_line_breaks, to_printable

if TYPE_CHECKING:
    from rich.markdown import Markdown

_REDRAWN = 0.125  # Least seconds between two drawings
_WORDS = re.compile(r"\s+|[^\s]+")
_ALIKE = 0.5  # Share of equal words from which two proposals are shown by their differences
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_CODE = re.compile(r"(`[^`\n]*`)")


def _join(marker: Marker) -> str:
    return "|".join([marker, *(words[marker] for words in MARKERS.values())])


_LABEL = re.compile(
    rf"\A\s*\**(?:{_join('Instruction')}|{_join('Solution')})\**\s*[:：]\**[ \t]*", re.IGNORECASE
)
_NO_INPUT = re.compile(
    rf"^[ \t]*\**(?:{_join('Input')})\**\s*[:：]\**[ \t]*\**(?:{NOTHING})\**\.?[ \t]*$\n?",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT = re.compile(rf"\s*\**(?:{_join('Next request')})\**[.。]?\**\s*\Z", re.IGNORECASE)
_DONE = re.compile(r"\s*<CAMEL_TASK_DONE>\s*")


def hide_protocol(text: str) -> str:
    """Return a turn without the words that only the protocol needs: its labels, an empty input, the next request."""
    text = _NO_INPUT.sub("", _NEXT.sub("", _LABEL.sub("", text)))
    return _DONE.sub("\n\n*The task is done.*", text).strip()


def split_blocks(text: str) -> tuple[str, str]:
    """Return the blocks of a text that are complete, and the rest. A block of code is never divided."""
    cut = len(text)
    while (cut := text.rfind("\n\n", 0, cut)) >= 0:
        if len(_FENCE.findall(text, 0, cut)) % 2 == 0:
            return text[: cut + 2], text[cut + 2 :]
    return "", text


def make_markdown(text: str) -> Markdown:
    """Return ``text`` as Markdown that keeps its line breaks and tags."""
    from rich.markdown import Markdown

    def keep_tags(line: str) -> str:
        parts = _CODE.split(line)
        parts[::2] = [part.replace("<", "\\<") for part in parts[::2]]
        return "".join(parts)

    return Markdown(keep_line_breaks(text, keep_tags), code_theme="ansi_dark", inline_code_theme="ansi_dark")


def mark_differences(text: str, first: str) -> Text:
    """Return ``text`` dimmed, with the words bright that ``first`` does not have; dimmed as a whole if most differ."""
    words, other = _WORDS.findall(text), _WORDS.findall(first)
    matcher = SequenceMatcher(None, other, words, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return Text(text, style="dim")
    parts = [
        ("".join(words[start:end]), "dim" if kind == "equal" else "bold")
        for kind, _, _, start, end in matcher.get_opcodes()
    ]
    return Text.assemble(*parts)


class MarkdownWriter:
    """Writes one turn after another to a terminal, each block as soon as it is complete."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._live: Live | None = None
        self._rest = ""
        self._began = False
        self._drawn = 0.0

    def write(self, piece: str, *, draw: bool = True) -> None:
        """Show the next piece of a turn; an unfinished block only if ``draw``."""
        self._rest += to_printable(piece)
        blocks, self._rest = split_blocks(self._rest)
        if blocks.strip():
            self._print(blocks, last=False)
        if draw and time.monotonic() - self._drawn >= _REDRAWN:
            self._draw()

    def finish(self) -> None:
        """Show what is left of the turn."""
        if self._live is not None:
            self._live.update(Text(""), refresh=True)
            self._live.stop()
            self._out.soft_wrap = True
            self._live = None
        self._print(self._rest, last=True)
        self._rest, self._began = "", False

    def _print(self, text: str, *, last: bool) -> None:
        """Print whole blocks, without labels at the turn's start and without the request at its end."""
        if not self._began:
            text = _LABEL.sub("", text)
        if last:
            text = _NEXT.sub("", text)
        text = _DONE.sub("\n\n*The task is done.*", _NO_INPUT.sub("", text)).strip("\n")
        if not text.strip():
            return
        if self._began:
            self._out.print()
        self._began = True
        self._out.print(make_markdown(text), soft_wrap=False)

    def _draw(self) -> None:
        """Show the unfinished block, or its end if the terminal is not high enough."""
        self._drawn = time.monotonic()
        if self._live is None:
            self._out.soft_wrap = False
            self._live = Live(
                console=self._out,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        text = self._rest if self._began else _LABEL.sub("", self._rest)
        lines = Text(_NO_INPUT.sub("", text)).wrap(self._out, self._out.width)
        self._live.update(Group(*lines[-max(1, self._out.height - 3) :]), refresh=True)
