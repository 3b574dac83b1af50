"""Sessions: one conversation with its roles, task, turns and ending; and checks of what users enter for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any, Literal

from bactrian.errors import InputError
from bactrian.records.text import shorten_line, show, to_printable, write_count
from bactrian.records.turn import HUMAN, CriticSettings, Sampling, Speaker, Toolkit, Turn, Usage, Use

# Endings: the reasons why sessions stop.


EndingCode = str  # Name of an ending: one of `ENDING_CODES`, or one of the user's own.
# The built-in endings.
ENDING_CODES: tuple[EndingCode, ...] = (
    "task_done",
    "user_no_instruct",
    "assistant_instruct",
    "token_limit",
    "max_messages",
    "repeat_loop",
    "refused",
    "failed",
    "stopped",
    "answered",  # A question has its answer.
    "translated",  # The original had no ending.
    "imported",  # The file names none; a session without an ending would look like one to resume.
)


UNFINISHED = "unfinished"  # Stands for an ending where sessions without one are counted, too.


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why a session stopped, with its evidence."""

    code: EndingCode
    # Number of the turn that shows it; 0 before the first turn. If a turn could not be obtained
    # (`token_limit`, `refused` by the endpoint, `failed`, `stopped`), the number of the last turn before it.
    turn: int
    speaker: Speaker  # The agent of that turn, or of the turn that could not be obtained.
    evidence: str  # The text that shows the reason, or the error.

    @property
    def final(self) -> bool:
        """False if a later run may resume the session: the model failed or a person stopped the session."""
        return self.code not in ("failed", "stopped")


@dataclass(frozen=True, slots=True)
class Role:
    """A role to play: a name such as ``Stock Trader`` and, optionally, a description.

    Example:
        >>> import bactrian as bt
        >>> bt.Role("Tea merchant", "Has sold tea for thirty years.").name
        'Tea merchant'
    """

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task, from the original idea to its specified form (paper, section 3.1)."""

    original: str  # The idea as the user typed it or as the recipe gave it.
    specified: str | None = None  # The task specifier's version; None if the idea was used unchanged.
    planned: str | None = None  # The planner's subtasks; None without a planner.

    @property
    def text(self) -> str:
        """The task as both agents see it."""
        task = self.specified if self.specified is not None else self.original
        return f"{task}\n{self.planned}" if self.planned else task


SYSTEM = "system"  # Key of the system prompts in `extra`.
SOURCE = "source"  # Key of the data set in `extra`: its name, revision and licence.
# In `values`: the number of the earlier item that an item asked for on its own repeats.
DUPLICATE = "duplicate_of"
IMPORTED = "imported from "  # Prefix of the prompt pack's name in sessions imported from another program.


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a session: everything needed to trace or reproduce it."""

    prompts: str  # Name of the prompt pack.
    prompts_hash: str  # SHA-256 of the pack's content, hexadecimal.
    protocol: str  # `free` or `enforced`.
    # Model name as the user gave it, by agent (`task_specifier`, `user`, `assistant` …).
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    # Sampling parameters by agent.
    sampling: Mapping[str, Sampling] = field(default_factory=dict[str, Sampling])
    language: str | None = None
    preamble: str = ""  # The operator's text before both agents' system prompts.
    needs_code: bool = False  # True if a solution must contain code.
    critic: CriticSettings | None = None  # The critic that chose among candidates; None without a critic.
    # Role by agent in a group chat; empty in a role-play, which has its two roles.
    cast: Mapping[str, Role] = field(default_factory=dict[str, Role])
    # Tools by agent; agents without tools are left out.
    tools: Mapping[str, Toolkit] = field(default_factory=dict[str, Toolkit])
    # SHA-256 of the program's own texts (`protocol/engine.toml`) when the session began; None in sessions of
    # earlier versions. It is not part of the session's id, because a session may resume under later texts.
    engine_hash: str | None = None
    # Keys of an imported file that no other field has, by the number of their message; `0` for the
    # conversation's own. Exports write them again. Under `SYSTEM`, the file's system prompts by side; under
    # `SOURCE`, where the data set comes from.
    extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @property
    def license(self) -> str:
        """Licence of the data set that the session was imported from; empty if it is not known, or not imported."""
        return self.extra.get(SOURCE, {}).get("license", "")

    @property
    def is_imported(self) -> bool:
        """True if another program made the conversation; messages may be missing."""
        return self.prompts.startswith(IMPORTED)


@dataclass(frozen=True, slots=True)
class Session:
    """A role-play conversation, from the first instruction to its ending.

    Printing it gives the transcript, and a notebook shows it as a page.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> session = bt.play("Choose a tea", model=bt.Scripted(script), specify=False)
        >>> session.ending.code, len(session.turns), session.turns[1].said.solution
        ('task_done', 3, 'Sencha.')
    """

    id: str
    assistant: Role
    user: Role
    task: Task
    provenance: Provenance
    turns: tuple[Turn, ...] = ()
    ending: Ending | None = None
    """None while the session is unfinished."""
    preparation: Usage = Usage()
    """Tokens that the task specifier and the planner used."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """The items of the recipe's axes that the session uses, by the axis's name."""
    mark: str | None = None
    """``red-team`` for a session made to study misuse; every export includes the mark."""
    pending: tuple[Use, ...] = ()
    """The tool calls of a turn that is not complete."""
    beside: Usage = Usage()
    """Tokens of calls that led to no turn, such as failed ones; known of a session that is read from a run."""

    @property
    def usage(self) -> Usage:
        """Tokens of its preparation, its turns, and the calls that led to none.

        Example:
            >>> session.usage.completion
            22
        """
        return sum((turn.usage for turn in self.turns), start=self.preparation + self.beside)

    def __repr__(self) -> str:
        roles = _format_title(self)
        code = self.ending.code if self.ending else "not ended"
        task = self.task.original if len(self.task.original) <= 60 else f"{self.task.original[:59]}…"
        return f"<Session {self.id}: {roles}, {task!r}, {write_count(len(self.turns), 'turn')}, {code}>"

    def __str__(self) -> str:
        """Return the transcript, safe to print."""
        return write_transcript(self)

    def _repr_html_(self) -> str:
        return render_transcript(self)

    def show(self) -> None:
        """Display the session in a notebook, or print its transcript elsewhere.

        Example:
            >>> session.show()
            Expert × Beginner
            idea: Choose a tea
            ...
            task_done at turn 3 · 3 messages · about 1,060 tokens · session ...
        """
        show(self)


def count_requests(session: Session) -> int:
    """Return the number of requests for what ``session`` has, without repetitions and proposals."""
    prepared = sum(step is not None for step in (session.task.specified, session.task.planned))
    return prepared + sum(turn.requests for turn in session.turns)


Kind = Literal["role-play", "translation", "answer", "talk"]


def find_kind(session: Session) -> Kind:
    """Return the kind of ``session``, inferred from its agents."""
    return infer_kind(session.provenance.models, has_cast=bool(session.provenance.cast))


def infer_kind(models: Collection[str], *, has_cast: bool) -> Kind:
    """Return the kind of a session with ``models`` for these agents; with a cast it is a group chat."""
    if has_cast:
        return "talk"
    if "translator" in models:
        return "translation"
    return "answer" if "assistant" in models and "user" not in models else "role-play"


def find_author(session: Session, turn: Turn) -> str:
    """Return who wrote a turn: a model, as the endpoint named it, or ``human``; empty if nothing is known."""
    return turn.model or session.provenance.models.get(turn.speaker, "")


def name_agents(session: Session) -> list[str]:
    """Return the roles of all agents: those of a group chat, or the assistant's and the user's."""
    return [role.name for role in session.provenance.cast.values() or (session.assistant, session.user)]


def name_sides(session: Session) -> dict[str, str | None]:
    """Return the roles of the assistant and the user; None in a group chat, whose agents have other names."""
    sides = {"assistant_role": session.assistant.name, "user_role": session.user.name}
    return dict.fromkeys(sides) if session.provenance.cast else {**sides}


def name_models(session: Session) -> dict[str, str]:
    """Return the model of each agent; ``human`` for one all of whose turns a person wrote."""
    authors: dict[str, set[str]] = {}
    for turn in session.turns:
        authors.setdefault(turn.speaker, set()).add(find_author(session, turn))
    return {
        agent: HUMAN if authors.get(agent) == {HUMAN} else model
        for agent, model in session.provenance.models.items()
    }


def describe_models(session: Session) -> str:
    """Return the name of the model; of several, also who plays with each."""
    agents: dict[str, list[str]] = {}
    for agent, name in name_models(session).items():
        agents.setdefault(name, []).append(agent.replace("_", " "))
    several = ", ".join(f"{name} ({', '.join(who)})" for name, who in agents.items())
    return several if len(agents) > 1 else "".join(agents)


def list_people(session: Session) -> dict[str, list[int]]:
    """Return the numbers of the turns that a person wrote, under ``human``; empty if models wrote all."""
    numbers = [turn.number for turn in session.turns if find_author(session, turn) == HUMAN]
    return {HUMAN: numbers} if numbers else {}


_PART: dict[str, str] = {"user": "AI user", "assistant": "AI assistant"}
# Colours are inherited from the page, so that the text is readable on dark and light backgrounds.
_FRAME = "border-left:3px solid currentColor;padding:0 0 0 .8em;margin:.6em 0"
_SHOWN = 300  # Characters of a thought, or of a tool's arguments or result, in a transcript of plain text.
_FAINT = "opacity:.65;font-size:90%"


def write_transcript(session: Session) -> str:
    """Return the conversation as plain text, without terminal control sequences."""
    parts = [_format_title(session), *(f"{name}: {text}" for name, text in _list_steps(session))]
    for turn in session.turns:
        steps = [f"  {line}" for line in _list_preludes(turn, partial(shorten_line, most=_SHOWN))]
        parts.append("\n".join((f"\n{_format_speaker(session, turn)}", *steps, turn.text.strip())))
    parts.append(f"\n{_format_outcome(session)}")
    return to_printable("\n".join(parts))


def render_transcript(session: Session) -> str:
    """Return the conversation as an HTML fragment with inline styles; all text is escaped."""
    steps = "".join(
        f'<div style="{_FAINT}">{name}: {_escape_html(text)}</div>' for name, text in _list_steps(session)
    )
    turns = "".join(
        f'<div data-speaker="{_escape_html(turn.speaker)}" style="{_FRAME}">'
        f"<b>{_escape_html(_format_speaker(session, turn))}</b>{_fold(turn)}"
        f'<div style="white-space:pre-wrap">{_escape_html(turn.text.strip())}</div></div>'
        for turn in session.turns
    )
    return (
        f'<div><div data-title role="heading" aria-level="1"><b>{_escape_html(_format_title(session))}</b></div>'
        f"{steps}{turns}"
        f'<div style="{_FAINT}">{_escape_html(_format_outcome(session))}</div></div>'
    )


def _format_title(session: Session) -> str:
    return " × ".join(name_agents(session))


def _list_steps(session: Session) -> list[tuple[str, str]]:
    task = session.task
    steps = (("idea", task.original), ("task", task.specified), ("plan", task.planned))
    steps += (("model", describe_models(session) or None),)
    return [(name, text) for name, text in steps if text is not None]


def name_side(session: Session, speaker: str) -> str:
    """Return the side of a speaker; empty in a society, and for who only begins a conversation with one agent."""
    models, cast = session.provenance.models, session.provenance.cast
    return "" if cast or (models and speaker not in models) else _PART.get(speaker, "")


def name_part(session: Session, turn: Turn) -> str:
    """Return what is said of a speaker beside the role: the side, and whether it was a person."""
    part = name_side(session, turn.speaker)
    return ", ".join(filter(None, (part, HUMAN if find_author(session, turn) == HUMAN else "")))


def _format_speaker(session: Session, turn: Turn) -> str:
    part = name_part(session, turn)
    return f"{turn.role} ({part})" if part else turn.role


def _list_preludes(turn: Turn, write: Callable[[str], str]) -> list[str]:
    """Return what precedes the words of a turn, a line each: its thoughts and its tool calls, written by ``write``."""
    lines = [f"thinks: {write(turn.thought)}"] if turn.thought else []
    for use in turn.uses:
        lines += [f"thinks: {write(use.call.thought)}"] if use.call.thought else []
        lines.append(f"calls {use.call.wanted.name} {write(use.call.wanted.arguments)}")
        if use.result is not None:
            wrong = " (failed)" if use.result.problem else ""
            lines.append(f"{use.result.name} says{wrong}: {write(use.result.text)}")
    return lines


def _fold(turn: Turn) -> str:
    """Return the thought and the tool calls of a turn as HTML that opens at a click; empty if it has none."""
    lines = _list_preludes(turn, str)
    if not lines:
        return ""
    thinks = turn.thought or any(use.call.thought for use in turn.uses)
    names = ", ".join(dict.fromkeys(use.call.wanted.name for use in turn.uses))
    title = " and ".join(filter(None, ("thought" if thinks else "", f"tools: {names}" if names else "")))
    return (
        f'<details style="{_FAINT}"><summary>{_escape_html(title)}</summary>'
        f'<div style="white-space:pre-wrap">{_escape_html(chr(10).join(lines))}</div></details>'
    )


def _format_outcome(session: Session) -> str:
    used = session.usage
    about = "about " if used.estimated else ""
    how = "not ended" if session.ending is None else f"{session.ending.code} at turn {session.ending.turn}"
    failed = session.ending is not None and session.ending.code in ("failed", "token_limit", "refused")
    why = f": {session.ending.evidence}" if session.ending is not None and failed else ""
    messages = write_count(len(session.turns), "message")
    return f"{how}{why} · {messages} · {about}{used.total:,} tokens · session {session.id}"


def _escape_html(text: str) -> str:
    return escape(to_printable(text))


# Checks of user input: ideas, role names, descriptions, languages.


LONGEST_IDEA = 100_000  # Most characters of an idea or of a role's description.
LONGEST_NAME = 300  # Most characters of the name of a role or of a language.


def check_name(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can name a role or a language: one line that is not blank.

    Raises:
        InputError: it is blank, has several lines, is longer than :data:`LONGEST_NAME`, or cannot be sent.
    """
    check_text(text, field, LONGEST_NAME)
    if text.splitlines() != [text]:
        raise InputError(
            f"The {field} has more than one line.",
            next="Use a short name such as 'Stock Trader'; a role's description may have several lines.",
        )
    return text


def check_role(role: Role, field: str) -> Role:
    """Return ``role`` unchanged if its name and its description can be used.

    Raises:
        InputError: see :func:`check_name`; or the description is too long or cannot be sent.
    """
    check_name(role.name, field)
    if role.description:
        check_text(role.description, f"{field} description")
    return role


def check_text(text: str, field: str, longest: int | None = LONGEST_IDEA) -> str:
    """Return ``text`` unchanged if it can be sent to a model and stored.

    Args:
        text: An idea, the description of a role, or another text.
        field: What it is, for the error.
        longest: Most characters; None if the text may be empty, and of any length.

    Raises:
        InputError: it is blank, too long, or contains a NUL character or half of a surrogate pair.
    """
    if longest is not None and not text.strip():
        raise InputError(f"The {field} is empty.", next="Say it in a few words.")
    if longest is not None and len(text) > longest:
        raise InputError(
            f"The {field} has {len(text):,} characters; the limit is {longest:,}.", next="Shorten it."
        )
    if "\0" in text:
        raise InputError(
            f"The {field} contains a NUL character, at position {text.index(chr(0)) + 1:,}.",
            next="Take it out: it cannot be stored. A NUL often means that the text is a binary file.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The {field} is not valid Unicode text, at position {error.start + 1:,}.",
            next="Give it as UTF-8.",
        ) from error
    return text
