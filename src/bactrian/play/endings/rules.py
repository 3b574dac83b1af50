"""Why a session stops: rules that look at the turns so far, in the order in which they are asked.

Four of the paper's five are here. The fifth, the token limit, is the model's to tell: it raises
:class:`~bactrian.errors.ContextFull` when the next request would not fit. A turn that triggers an ending stays in
the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bactrian.language.body import read_body
from bactrian.language.courtesy import find_topic, is_courtesy
from bactrian.language.protocol import find_instruction, is_done
from bactrian.language.similarity import is_alike, split_words
from bactrian.records.ending import Ending, EndingCode
from bactrian.records.session import Session
from bactrian.records.turn import Instruction, Speaker, Turn


class Rule(Protocol):
    """Looks at the turns after each new one. Gives an ending, or None to go on."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None: ...


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The AI user says the done token. Asked first, so that nobody answers it and nothing else explains it."""

    by: frozenset[Speaker] = frozenset(("user",))
    """Whose word it is."""
    language: str | None = None
    """The session's, whose own markers count beside the English ones."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        done = last.speaker in self.by and is_done(last.text, self.language)
        return make_ending("task_done", last) if done else None


@dataclass(frozen=True, slots=True)
class EndpointRefused:
    """The endpoint filtered the turn, or marked it as a refusal."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return make_ending("refused", last) if last.finish == "content_filter" else None


@dataclass(frozen=True, slots=True)
class AssistantInstructs:
    """The AI assistant gives an instruction, as it would be read from the AI user: the roles have flipped."""

    language: str | None = None
    """The session's, whose own markers count beside the English ones."""
    limit: int = 1
    """Turns in a row."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        flip = find_instruction(last.text, self.language) if last.speaker == "assistant" else None
        if flip is None:
            return None
        before = [turn.text for turn in turns[-2 * self.limit : -1] if turn.speaker == "assistant"]
        if len(before) < self.limit - 1 or not all(find_instruction(text, self.language) for text in before):
            return None
        return make_ending("assistant_instruct", last, last.text[flip.start() :])


@dataclass(frozen=True, slots=True)
class UserDoesNotInstruct:
    """The AI user gives no instruction, several turns in a row."""

    limit: int = 3

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if turns[-1].speaker != "user" or turns[-1].said is not None:
            return None
        recent = [turn for turn in turns[-2 * self.limit :] if turn.speaker == "user"][-self.limit :]
        if len(recent) < self.limit or any(isinstance(turn.said, Instruction) for turn in recent):
            return None
        return make_ending("user_no_instruct", turns[-1])


@dataclass(frozen=True, slots=True)
class RepeatLoop:
    """Several rounds in a row bring nothing new: thanks and goodbyes, or the round before over again."""

    rounds: int = 4
    topic: frozenset[str] = frozenset()
    """Words of the roles and of the task, which thanks may hold too."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        if last.speaker != "assistant" or len(turns) < 2 * self.rounds:
            return None
        thanks, again = self._is_courtesy(last), len(turns) > 2 and _is_alike(last, turns[-3])
        if not (thanks or again):
            return None  # An ordinary conversation is let go after one look at its newest turn.
        span = turns[-2 * self.rounds :]
        thanks = thanks and all(map(self._is_courtesy, span))
        again = again and all(map(_is_alike, span[2:], span[:-2]))
        return make_ending("repeat_loop", last) if thanks or again else None

    def set_topic(self, session: Session) -> RepeatLoop:
        """The same rule for the turns of ``session``."""
        return replace(self, topic=find_topic(session))

    def _is_courtesy(self, turn: Turn) -> bool:
        return is_courtesy(read_body(turn), self.topic, by_user=turn.speaker == "user")


@dataclass(frozen=True, slots=True)
class MaxMessages:
    """The session has as many messages as it may have; the paper's limit is 40, for its cost."""

    limit: int = 40

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if len(turns) < self.limit:
            return None
        return Ending("max_messages", turns[-1].number, turns[-1].speaker, f"{len(turns)} messages")


def paper_endings(max_messages: int = 40, *, language: str | None = None) -> tuple[Rule, ...]:
    """The endings of the paper, and refusal by the endpoint; the markers of ``language`` count beside the English."""
    return (
        TaskDone(language=language),
        EndpointRefused(),
        AssistantInstructs(language),
        UserDoesNotInstruct(),
        MaxMessages(max_messages),
    )


def default_endings(max_messages: int = 40, *, language: str | None = None) -> tuple[Rule, ...]:
    """The paper's endings, and the end of a conversation that goes round in circles.

    Example:
        >>> import bactrian as bt
        >>> len(bt.default_endings())
        6
    """
    *rules, limit = paper_endings(max_messages, language=language)
    return (*rules, RepeatLoop(), limit)


def find_ending(rules: Sequence[Rule], turns: Sequence[Turn]) -> Ending | None:
    """The ending that the turns call for, or None."""
    if not turns:
        return None
    for rule in rules:
        if (ending := rule(turns)) is not None:
            return ending
    return None


def make_ending(code: EndingCode, turn: Turn, evidence: str | None = None) -> Ending:
    """The ending that ``turn`` shows, by its text or by ``evidence``."""
    return Ending(code, turn.number, turn.speaker, (evidence or turn.text).strip()[:500])


def _is_alike(one: Turn, other: Turn) -> bool:
    return one.text == other.text or is_alike(split_words(read_body(one)), split_words(read_body(other)))
