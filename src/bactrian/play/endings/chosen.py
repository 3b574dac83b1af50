"""Endings chosen one by one, with thresholds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bactrian.play.endings.camel import HoldsInstruction, LacksInstruction, RepeatWords, SaysDoneToken
from bactrian.play.endings.rules import (
    AssistantInstructs,
    EndpointRefused,
    MaxMessages,
    RepeatLoop,
    Rule,
    TaskDone,
    UserDoesNotInstruct,
    find_ending,
)
from bactrian.recipes.ending_list import THRESHOLDS, EndingList
from bactrian.records.ending import Ending
from bactrian.records.turn import Turn


@dataclass(frozen=True, slots=True)
class NamedEnding:
    """Stands for an ending that an installed package registers, until it is loaded."""

    code: str

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:  # noqa: ARG002
        """Return None: only the loaded ending ends a session."""
        return None


@dataclass(frozen=True, slots=True)
class ChosenEndings:
    """The endings of a list, which replace the default ones."""

    listed: EndingList

    @property
    def code(self) -> str:
        """The list as text. It is part of a session's identity: a session with other endings is another session."""
        return self.listed.text

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        """Return the ending that the turns trigger, or None."""
        return find_ending(self.build_rules(limit=40), turns)

    def build_rules(self, *, limit: int, language: str | None = None) -> tuple[Rule, ...]:
        """Return the rules in their order, the endpoint's refusal first and the limit of messages last.

        A session ends at ``limit`` messages even if the list does not name that ending.
        """
        codes = [code for code in self.listed.codes if code not in ("refused", "max_messages")]
        rules = [self._build_rule(code, language) for code in codes]
        return (EndpointRefused(), *rules, MaxMessages(self.listed.max_messages or limit))

    def _build_rule(self, code: str, language: str | None) -> Rule:
        count = dict(self.listed.thresholds).get(code) or THRESHOLDS.get(code) or 1
        substrings = self.listed.substrings
        match code:
            case "task_done":
                return SaysDoneToken() if substrings else TaskDone(language=language)
            case "assistant_instruct":
                return HoldsInstruction(count) if substrings else AssistantInstructs(language, count)
            case "user_no_instruct":
                return LacksInstruction(count) if substrings else UserDoesNotInstruct(count)
            case "repeat_loop":
                return RepeatLoop(count)
            case "repeat_words":
                return RepeatWords(count)
            case _:
                return NamedEnding(code)
