"""CAMEL's own rules, which look for substrings (its role-playing data script, as of November 2023).

They serve for comparison. Two things are not copied. CAMEL asks the AI assistant once more after the done token; here
the session ends. CAMEL's rule of repeated words sets its reason and continues; here it ends the session, and counts
rounds that contain any of the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bactrian.language.protocol import DONE
from bactrian.play.endings.rules import make_ending
from bactrian.records.ending import Ending
from bactrian.records.turn import Turn

_INSTRUCTION = "Instruction:"
WORDS = ("goodbye", "good bye", "thank", "bye", "welcome", "language model")
"""A round that contains one of these, in either message, is a round of repetition."""


@dataclass(frozen=True, slots=True)
class SaysDoneToken:
    """Ends the session if the AI user's turn contains the done token anywhere."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return make_ending("task_done", last) if last.speaker == "user" and DONE in last.text else None


@dataclass(frozen=True, slots=True)
class LacksInstruction:
    """Ends the session if several AI user's turns in a row do not contain ``Instruction:``."""

    limit: int = 3

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        recent = _last_of("user", turns, self.limit)
        if not recent or any(_INSTRUCTION in turn.text for turn in recent):
            return None
        return make_ending("user_no_instruct", turns[-1])


@dataclass(frozen=True, slots=True)
class HoldsInstruction:
    """Ends the session if several AI assistant's turns in a row contain ``Instruction:``."""

    limit: int = 1

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        recent = _last_of("assistant", turns, self.limit)
        if not recent or not all(_INSTRUCTION in turn.text for turn in recent):
            return None
        return make_ending("assistant_instruct", turns[-1])


@dataclass(frozen=True, slots=True)
class RepeatWords:
    """Ends the session if several rounds in a row contain one of six words of courtesy."""

    rounds: int = 4

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if turns[-1].speaker != "assistant" or len(turns) < 2 * self.rounds:
            return None
        said = [turn.text.lower() for turn in turns[-2 * self.rounds :]]
        rounds = zip(said[::2], said[1::2], strict=True)
        if not all(any(word in one or word in other for word in WORDS) for one, other in rounds):
            return None
        return make_ending("repeat_loop", turns[-1])


def _last_of(speaker: str, turns: Sequence[Turn], count: int) -> list[Turn]:
    """Return the last ``count`` turns of ``speaker``, which spoke last; an empty list if there are fewer."""
    if turns[-1].speaker != speaker:
        return []
    found = [turn for turn in turns[-2 * count :] if turn.speaker == speaker][-count:]
    return found if len(found) == count else []
