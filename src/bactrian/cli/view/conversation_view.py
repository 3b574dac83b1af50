"""A live conversation on a terminal: turns as Markdown in colour, while they are written."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bactrian.blocks import keep_line_breaks
from bactrian.cli.terminal.console import open_output, open_progress, show_spinner
from bactrian.errors import ModelError
from bactrian.protocol.fences import RESULTS, is_embodied
from bactrian.protocol.markers import MARKERS, NOTHING, Marker
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.session import Ending, Session, describe_models, name_side
from bactrian.records.text import shorten_line, to_line, to_printable, write_count
from bactrian.records.turn import Decision, Proposal, Speaker, ToolCall, ToolResult, Turn, Usage
from bactrian.roleplay.agent import BROKE_OFF, Listener
from bactrian.roleplay.human import HUMAN

if TYPE_CHECKING:
    from rich.markdown import Markdown


# Turns as Markdown in colour, shown while they are generated, without the words of the protocol.


_REDRAWN = 0.125  # Least seconds between two drawings
_PIECES = re.compile(r"\s+|[^\s]+")
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
    words, other = _PIECES.findall(text), _PIECES.findall(first)
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


# A live conversation on a terminal.


_STYLE: dict[Speaker, str] = {"user": "bold cyan", "assistant": "bold green"}
_MORE = ("bold cyan", "bold green", "bold yellow", "bold magenta", "bold blue", "bold red")
_WORDS = re.compile(r"\n|[^ \n]* *")
_LONGEST = 600  # Characters of an idea, a task or a plan on a terminal
_SHOWN = 300  # Characters of a tool's arguments or result that are shown; the stored record is complete


class ConversationView:
    """Shows speakers, their text while it is generated, and the usage.

    The conversation is written to ``out``. If that is not a terminal, each turn is written as a whole.
    """

    def __init__(
        self, out: Console | None = None, progress: Console | None = None, *, raw: bool = False
    ) -> None:
        out, progress = out or open_output(), progress or open_progress()
        self._markdown = (
            MarkdownWriter(out) if out.is_terminal and not out.is_dumb_terminal and not raw else None
        )
        self.listener: Listener | None = self if out.is_terminal else None
        self._out = out
        self._progress = progress
        self._roles: dict[Speaker, str] = {}
        self._sides: dict[Speaker, str] = {}
        self._embodied: set[str] = set()
        self._speaking: Speaker | None = None
        # The proposals of this round for the turn; later ones are compared with the first.
        self._proposed: list[Proposal] = []
        self._held = ""
        self._column = 0
        self._turns = 0
        self._seconds = 0.0
        self._prepared = self._spoken = self._usage = Usage()

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        """Show a spinner on standard error."""
        return show_spinner(self._progress, f"{for_what} …")

    def show_stage(self, name: str, number: int, count: int) -> None:
        """Show that a stage of a society begins; ``number`` counts from 1."""
        self._out.print()
        heading = "Stage" if count == 1 else f"Stage {number} of {count}"
        self._out.print(f"{heading}: {to_printable(name)}", style="bold")

    def remark(self, text: str) -> None:
        """Show a remark on the turn above."""
        self._out.print(to_printable(text), style="yellow", soft_wrap=not self._out.is_terminal)

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Started(session):
                self._begin(session)
                for turn in session.turns:
                    self._turn(turn)
            case Spoke(turn):
                self._turn(turn)
            case Ended(_, ModelError(endpoint_wide=True)):
                pass  # No ending: the session stays open, and the error is told below.
            case Ended(ending):
                self._end(ending)
            case Proposed(proposal):
                self._propose(proposal)
            case Chose(verdict):
                self._choose(verdict)
            case Called(call):
                self._call(call)
            case Returned(result):
                self._return(result)

    def count_paid(self, usage: Usage) -> None:
        """Take ``usage`` as all that was paid for the session: proposals that no turn took are not in its turns."""
        self._usage = usage

    def hear(self, speaker: Speaker, piece: str) -> None:
        """Show the next piece of a turn, word by word, so that lines break between words."""
        if self._speaking is None:
            self._announce(speaker)
        if self._markdown is not None:
            self._markdown.write(piece)
            return
        text = self._held + piece
        end = max(text.rfind(" "), text.rfind("\n")) + 1
        self._held = text[end:]
        self._write(text[:end])

    def restart(self, speaker: Speaker, why: str = BROKE_OFF) -> None:
        """Announce that the turn starts again."""
        if self._speaking is not None:
            self._finish_text()
            who = f"the {self._sides[speaker]}" if self._sides[speaker] else self._roles[speaker]
            self._dim(f"\n[the reply of {who} {why}; asking again]")
            self._speaking = None

    def close(self) -> None:
        """Leave a turn that was broken off as far as it came, and the cursor visible."""
        if self._speaking is not None:
            self._finish_text()

    def _begin(self, session: Session) -> None:
        cast = {name: role.name for name, role in session.provenance.cast.items()}
        names = cast or {"assistant": session.assistant.name, "user": session.user.name}
        self._roles = {agent: to_line(name) for agent, name in names.items()}
        self._sides = {agent: name_side(session, agent) for agent in names}
        self._embodied = {agent for agent, kit in session.provenance.tools.items() if is_embodied(kit)}
        self._turns, self._seconds = 0, 0.0
        self._prepared = self._spoken = session.preparation
        self._usage = session.preparation + session.beside
        self._out.print(Rule(Text(" × ".join(map(to_printable, self._roles.values()))), style="dim"))
        steps = {"idea": session.task.original, "task": session.task.specified, "plan": session.task.planned}
        for label, text in steps.items():
            if text is not None:
                self._labelled(label, text)
        models = describe_models(session)
        taken_up = f" · {write_count(len(session.turns), 'turn')} already stored" if session.turns else ""
        self._dim(f"{models} · {session.provenance.protocol} protocol · session {session.id}{taken_up}")

    def _turn(self, turn: Turn) -> None:
        if self._speaking is None:
            self._announce(turn.speaker)
            self._write(turn.text)
        self._finish_text()
        self._speaking = None
        self._turns += 1
        self._seconds += turn.seconds
        self._spoken += turn.usage
        self._usage += turn.usage
        if self._markdown is None:
            self._out.print()
        facts = ["written by a person"] if turn.model == HUMAN else []
        facts += _count(turn.usage, turn.seconds)
        if turn.finish == "length":
            facts.append("cut off at its token limit")
        if facts:
            self._dim(" · ".join(facts))

    def _propose(self, proposal: Proposal) -> None:
        again = f", round {proposal.round}" if proposal.round > 1 else ""
        after = f", after {proposal.parent}" if proposal.parent is not None else ""
        head = f"\n{self._roles[proposal.speaker]} could say ({proposal.place}{again}{after})"
        round_ = proposal.speaker, proposal.number, proposal.round
        self._proposed = [
            other for other in self._proposed if (other.speaker, other.number, other.round) == round_
        ]
        same = next((other for other in self._proposed if other.text.strip() == proposal.text.strip()), None)
        if same is not None:
            self._dim(f"{head}: the same as {same.place}.")
            return
        self._proposed.append(proposal)
        self._dim(f"{head}:")
        text, first = map(self._prepare, (proposal, self._proposed[0]))
        shown = Text(text, style="dim") if text == first else mark_differences(text, first)
        if self._out.is_terminal:
            self._out.print(Padding(shown, (0, 0, 0, 2)), soft_wrap=False)
        else:
            self._out.print(Text("\n".join(f"  {line}" for line in text.strip().splitlines())))

    def _prepare(self, proposal: Proposal) -> str:
        """Return what is shown of a proposal: without the words of the protocol where turns are."""
        text = proposal.text if self._markdown is None else hide_protocol(proposal.text) or proposal.text
        return to_printable(text.strip())

    def _choose(self, verdict: Decision) -> None:
        if verdict.problem:
            said = to_line(verdict.text)[:80]
            self._dim(f"\n{verdict.chooser} gave an unreadable answer, “{said}”: {verdict.problem}")
            return
        who, end, message = (
            ("You", "", "your own message")
            if verdict.chooser == HUMAN
            else (verdict.chooser, "s", "its own message")
        )
        taken = verdict.place if verdict.instead is None else message
        if verdict.kept:
            does = f"keep{end} {', '.join(map(str, verdict.kept))}"
        else:
            does = f"{'prefer' if verdict.feedback else 'take'}{end} {taken}"
        self._out.print()
        if taken is not None:
            self._dim(f"{who} {does}. {verdict.reason}".rstrip())
        if verdict.feedback:
            self._dim(f"{who} want{end} it better: {verdict.feedback}")

    def _call(self, call: ToolCall) -> None:
        if self._speaking is not None:  # The text beside its calls was streamed already.
            self._finish_text()
            self._speaking = None
        elif call.text and call.speaker not in self._embodied:
            self._announce(call.speaker)
            self._write(call.text)
            self._finish_text()
            self._speaking = None
        if call.speaker in self._embodied:
            return
        self._out.print() if call.place == 1 else None
        self._dim(
            f"{self._roles[call.speaker]} calls {call.wanted.name} {shorten_line(call.wanted.arguments, _SHOWN)}"
        )

    def _return(self, result: ToolResult) -> None:
        if result.speaker in self._embodied:
            # Without a terminal the turn is written as a whole, and contains its results.
            self._dim(f"\n{RESULTS}\n{result.text}") if self.listener is not None else None
            return
        wrong = " (failed)" if result.problem else ""
        self._dim(
            f"{result.name} says{wrong}, after {result.seconds:.1f} s: {shorten_line(result.text, _SHOWN)}"
        )

    def _end(self, ending: Ending) -> None:
        self._out.print()
        self._out.print(Rule(f"{ending.code} · turn {ending.turn}", style="dim"))
        messages = write_count(self._turns, "message")
        if ending.evidence not in ("", messages):  # The next line says it.
            self._labelled("why", ending.evidence)
        unspoken = self._usage.total - self._spoken.total
        parts = (self._prepared.total, "prepared the task"), (unspoken, "led to no message")
        told = [f"{tokens:,} tokens {what}" for tokens, what in parts if tokens > 0]
        self._dim(" · ".join([messages, *_count(self._usage, self._seconds), *told]))

    def _announce(self, speaker: Speaker) -> None:
        self._speaking = speaker
        self._column = 0
        self._out.print()
        part = f" ({self._sides[speaker]})" if self._sides[speaker] else ""
        style = _STYLE.get(speaker) or _MORE[list(self._roles).index(speaker) % len(_MORE)]
        self._out.print(f"{to_printable(self._roles[speaker])}{part}", style=style)

    def _finish_text(self) -> None:
        """Write what is left of the turn's text."""
        if self._markdown is not None:
            self._markdown.finish()
        else:
            self._write(self._held)
            self._held = ""

    def _write(self, text: str) -> None:
        """Write ``text`` after the last piece; on a terminal, a word that does not fit starts a new line."""
        if self._markdown is not None:
            self._markdown.write(text, draw=False)
            return
        text = to_printable(text)
        if self._out.is_terminal:
            text = "".join([self._placed(word) for word in _WORDS.findall(text)])
        self._out.print(text, end="")

    def _placed(self, word: str) -> str:
        if word == "\n":
            self._column = 0
            return word
        wide = cell_len(word.rstrip(" "))
        breaks = self._column > 0 and self._column + wide > self._out.width
        self._column = (0 if breaks else self._column) + cell_len(word)
        if wide > self._out.width:  # The terminal breaks a word that is longer than a line.
            self._column %= self._out.width
            return f"\n{word}" if breaks else word
        if self._column > self._out.width:  # a space beyond the edge would start a line of its own
            word = word.rstrip(" ")
        return f"\n{word}" if breaks else word

    def _labelled(self, label: str, text: str) -> None:
        """Write a labelled text; on a terminal as a paragraph beside its label, and a very long one in part."""
        text = to_printable(text)
        if not self._out.is_terminal:
            self._out.print(Text.assemble((f"{label} ", "dim"), text))
            return
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST].rsplit(maxsplit=1)[0]} … ({len(text):,} characters)"
        lines = Table.grid(padding=(0, 1))
        lines.add_row(Text(label, style="dim"), Text(text, overflow="fold"))
        self._out.print(lines, soft_wrap=False)

    def _dim(self, text: str) -> None:
        self._out.print(to_printable(text), style="dim", soft_wrap=not self._out.is_terminal)


def _count(usage: Usage, seconds: float) -> list[str]:
    """Return tokens and time; nothing where neither is known, as of what another program made."""
    if not usage.total and not seconds:
        return []
    about = "about " if usage.estimated else ""
    cached = f", {usage.cached:,} cached" if usage.cached else ""
    tokens = (
        [f"{about}{usage.prompt:,} prompt + {usage.completion:,} completion tokens{cached}"]
        if usage.total
        else []
    )
    return [*tokens, f"{seconds:.1f} s"]
