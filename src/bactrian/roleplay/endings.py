"""The rules that end a session. They are applied to the turns so far, in order; the first that matches wins.

Four of the paper's five are here. The fifth, the token limit, is reported by the model, which raises
:class:`~bactrian.errors.ContextFull` when the next request would not fit. A turn that triggers an ending stays in
the session. ``chosen_endings.py`` has the rules that a user chooses or makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bactrian.detect.loops import is_loop
from bactrian.protocol.markers import find_instruction, is_done
from bactrian.records.session import Ending, EndingCode
from bactrian.records.text import write_count
from bactrian.records.turn import Instruction, Speaker, Turn


class Rule(Protocol):
    """Checks the turns after each new one. Returns an ending, or None to continue."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None: ...


@dataclass(frozen=True, slots=True)
class TaskDone:
    """Ends the session if the AI user says the done token. Checked first: later endings may match the same turn."""

    by: frozenset[Speaker] = frozenset(("user",))  # The agent whose done token counts.
    language: str | None = None
    """The session's language; its protocol markers are recognised besides the English ones."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        done = last.speaker in self.by and is_done(last.text, self.language)
        return make_ending("task_done", last) if done else None


@dataclass(frozen=True, slots=True)
class EndpointRefused:
    """Ends the session if the endpoint filtered the turn or marked it as a refusal."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return make_ending("refused", last) if last.finish == "content_filter" else None


@dataclass(frozen=True, slots=True)
class AssistantInstructs:
    """Ends the session if the AI assistant gives an instruction by the AI user's protocol: the roles have flipped."""

    language: str | None = None
    """The session's language; its protocol markers are recognised besides the English ones."""
    limit: int = 1  # Number of turns in a row.

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        flip = find_instruction(last.text, self.language) if last.speaker == "assistant" else None
        if flip is None:
            return None
        recent = list_last("assistant", turns, self.limit)
        if not recent or not all(find_instruction(turn.text, self.language) for turn in recent[:-1]):
            return None
        return make_ending("assistant_instruct", last, last.text[flip.start() :])


@dataclass(frozen=True, slots=True)
class UserDoesNotInstruct:
    """Ends the session if the AI user gives no instruction in several turns in a row."""

    limit: int = 3

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if (
            turns[-1].speaker != "user" or turns[-1].said is not None
        ):  # Asked after every turn: the common case.
            return None
        recent = list_last("user", turns, self.limit)
        silent = bool(recent) and not any(isinstance(turn.said, Instruction) for turn in recent)
        return make_ending("user_no_instruct", turns[-1]) if silent else None


@dataclass(frozen=True, slots=True)
class RepeatLoop:
    """Ends the session if several rounds in a row bring nothing new: courtesies, waiting, or the same again."""

    rounds: int = 4

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        if last.speaker != "assistant" or not is_loop(turns, 2 * self.rounds):
            return None
        return make_ending("repeat_loop", last)


@dataclass(frozen=True, slots=True)
class MaxMessages:
    """Ends the session at its limit of messages; the paper's limit is 40, for reasons of cost."""

    limit: int = 40

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if len(turns) < self.limit:
            return None
        return Ending("max_messages", turns[-1].number, turns[-1].speaker, write_count(len(turns), "message"))


def paper_endings(max_messages: int = 40, *, language: str | None = None) -> tuple[Rule, ...]:
    """Return the paper's endings and the endpoint's refusal; markers of ``language`` count besides English ones."""
    return (
        TaskDone(language=language),
        EndpointRefused(),
        AssistantInstructs(language),
        UserDoesNotInstruct(),
        MaxMessages(max_messages),
    )


def default_endings(max_messages: int = 40, *, language: str | None = None) -> tuple[Rule, ...]:
    """Return the paper's endings, and the one for conversations that repeat themselves.

    Example:
        >>> import bactrian as bt
        >>> len(bt.default_endings())
        6
    """
    *rules, limit = paper_endings(max_messages, language=language)
    return (*rules, RepeatLoop(), limit)


def find_ending(rules: Sequence[Rule], turns: Sequence[Turn]) -> Ending | None:
    """Return the ending that the turns trigger, or None."""
    if not turns:
        return None
    for rule in rules:
        if (ending := rule(turns)) is not None:
            return ending
    return None


def make_ending(code: EndingCode, turn: Turn, evidence: str | None = None) -> Ending:
    """Make the ending of ``code`` at ``turn``; the evidence is the turn's text unless given."""
    return Ending(code, turn.number, turn.speaker, (evidence or turn.text).strip()[:500])


def list_last(speaker: Speaker, turns: Sequence[Turn], count: int) -> list[Turn]:
    """Return the last ``count`` turns of ``speaker``, which spoke last; an empty list if there are fewer."""
    if turns[-1].speaker != speaker:
        return []
    recent = [turn for turn in turns[-2 * count :] if turn.speaker == speaker][-count:]
    return recent if len(recent) == count else []
