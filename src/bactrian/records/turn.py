"""Turns: a message by an agent, with its usage, tool calls, candidates and the decisions on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeVar, dataclass_transform

from pydantic_core import from_json

from bactrian.records.text import Text

_Record = TypeVar("_Record")

HUMAN = "human"  # The model name that stands for a person.


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[_Record]) -> type[_Record]:
    """Make a dataclass of which each call of a model makes some: type checkers take it as frozen."""
    # ``frozen=True`` would set each field through ``object.__setattr__``: four times the time, 5 % of a call's CPU.
    return dataclass(slots=True, unsafe_hash=True)(kind)


# Messages as a model receives them.


@dataclass(frozen=True, slots=True)
class Invocation:
    """A model's request to call a tool."""

    id: str
    """The model's id for this call, which the result repeats; empty if the model gives no id."""
    name: str
    arguments: str
    """The arguments as the model wrote them; a JSON object if valid."""


@record
class Message:
    """A message in a chat with a model. ``role`` is the role of the wire format, not the role an agent plays."""

    role: Literal["system", "user", "assistant", "tool"]
    """The answering agent's own turns are ``assistant``, those of the others ``user``."""
    text: Text
    """A ``str``."""
    calls: tuple[Invocation, ...] = ()
    """The tools that an ``assistant`` message calls."""
    answers: str = ""
    """Id of the call that a ``tool`` message answers."""


# Token usage.


UsageFields = tuple[int, int, int, bool, int, str]
"""The fields of a usage in their order."""


@record
class Usage:
    """Tokens of one call, or the sum of several.

    Example:
        >>> usage = session.turns[0].usage + session.turns[1].usage
        >>> usage.prompt > usage.completion, usage.estimated
        (True, True)
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens from the server's prefix cache; included in ``prompt``."""
    estimated: bool = False
    """True if the endpoint reported no usable numbers and these were estimated from the text."""
    written: int = 0
    """Prompt tokens that were written to the server's prefix cache, which may cost more; included in ``prompt``."""
    tier: str = ""
    """The tier at which the endpoint served the call, as it names it (``flex``), or ``batch``; empty for the usual one,
    and for a sum over several."""

    @property
    def total(self) -> int:
        """Prompt and completion tokens together.

        Example:
            >>> usage.total == usage.prompt + usage.completion
            True
        """
        return self.prompt + self.completion

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that came from the server's prefix cache.

        Example:
            >>> usage.cached_share
            0.0
        """
        return self.cached / self.prompt if self.prompt else 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.estimated or other.estimated,
            self.written + other.written,
            self.tier if self.tier == other.tier or not other.total else "" if self.total else other.tier,
        )

    def __sub__(self, part: Usage) -> Usage:
        prompt, completion = self.prompt - part.prompt, self.completion - part.completion
        cached, written = self.cached - part.cached, self.written - part.written
        return Usage(prompt, completion, cached, self.estimated, written, self.tier)


# Tools of agents, tool calls and their results.


# Why a call failed: unknown tool, invalid arguments, timeout, or an error in the tool.
Problem = Literal["unknown", "arguments", "timeout", "failed"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, object]  # JSON schema of its arguments, an object.


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The tools of one agent, with limits."""

    tools: tuple[Tool, ...]
    # Maximum number of replies per turn that may call tools; the next reply must be the answer.
    rounds: int = 8
    seconds: float = 30.0  # Timeout of one call.
    characters: int = 4000  # Maximum length of a result; a longer one is cut with a note to the model.


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that an agent requested during its turn."""

    number: int  # Of the turn, from 1.
    round: int  # From 1; the calls of one reply form a round.
    place: int  # Position among the calls of its round, from 1.
    speaker: str  # The agent that takes the turn.
    wanted: Invocation
    text: Text  # The agent's text beside its calls; only on the first call of a round.
    usage: Usage  # Usage of the reply; only on the first call of a round.
    seconds: float  # Duration of the reply, not of the tool; only on the first call of a round.
    model: str  # The model as the endpoint named it.
    thought: str = ""  # Thoughts of a reasoning model before its reply; only on the first call of a round.


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    number: int  # Of the turn, from 1.
    round: int
    place: int
    speaker: str
    name: str  # Name of the tool.
    text: Text  # The text for the model: the result or the error.
    problem: Problem | None  # None if the call succeeded.
    seconds: float  # Duration of the tool.
    cut: bool = False  # True if the result was too long and was cut.


@dataclass(frozen=True, slots=True)
class Use:
    """A tool call and its result."""

    call: ToolCall
    result: ToolResult | None = None  # None if the program was stopped while the tool ran.


def group_rounds(uses: Iterable[Use]) -> list[list[Use]]:
    """Group the uses of one turn by reply, in order."""
    ordered = sorted(uses, key=lambda use: (use.call.round, use.call.place))
    return [list(group) for _, group in groupby(ordered, key=lambda use: use.call.round)]


def read_arguments(arguments: str) -> Any:
    """Parse the arguments of a call as JSON; text that is not JSON is returned unchanged."""
    try:
        return from_json(arguments)
    except ValueError:
        return arguments


def to_messages(uses: Iterable[Use]) -> list[Message]:
    """Convert the uses of one turn to messages: the agent's calls and their results."""
    messages: list[Message] = []
    for group in group_rounds(uses):
        calls = tuple(use.call.wanted for use in group)
        messages.append(Message("assistant", group[0].call.text, calls))
        messages += [
            Message("tool", use.result.text, answers=use.call.wanted.id) for use in group if use.result
        ]
    return messages


Speaker = str  # Name of an agent within its session; in a role-play, `user` instructs and `assistant` solves.
Finish = Literal["stop", "length", "content_filter", "tool_calls", "other"]


@record
class Instruction:
    """An AI user's turn, with the two fields of the inception protocol (paper, figure 2)."""

    instruction: str
    input: str | None = None  # None if the user wrote `Input: None` or no input.
    preface: str = ""  # Text before the instruction, normally empty.


@record
class Solution:
    """An AI assistant's turn, without the protocol's markers."""

    solution: str
    asks_next: bool = False  # True if the turn ends with the request for the next instruction.
    preface: str = ""  # Text before the solution, normally empty.


@record
class Turn:
    """One message of a session, with its cost and origin.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha."]
        >>> turn = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, max_messages=2).turns[0]
        >>> turn.speaker, turn.role, turn.said.instruction
        ('user', 'Beginner', 'Name one.')
    """

    number: int
    """1-based; odd turns are the AI user's in a two-agent session."""
    speaker: Speaker
    role: str
    """Name of the role the speaker plays."""
    text: Text
    said: Instruction | Solution | None
    """The parsed text; None if the markers of the inception protocol are missing."""
    usage: Usage
    seconds: float
    """From sending the request to the last byte of the reply, retries included."""
    first_token: float | None
    """Seconds until the first piece of a streamed reply; None if it was not streamed."""
    model: str
    """The model as the endpoint named it."""
    finish: Finish
    lossy: bool = False
    """True if bytes or characters that cannot be stored were replaced in ``text``."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    uses: tuple[Use, ...] = ()
    """The tool calls of the turn. ``usage`` includes their cost."""
    thought: str = ""
    """Thoughts of a reasoning model before its reply. Agents do not see them, and rules ignore them."""

    @property
    def requests(self) -> int:
        """Number of requests to the model, not counting retries; 0 for a question or a thought that was given.

        Example:
            >>> turn.requests
            1
        """
        final = 1 if self.model or self.usage.total else 0
        return final + len(group_rounds(self.uses)) if self.uses else final


# Candidate turns, and the decisions of a critic or a person on them.


@dataclass(frozen=True, slots=True)
class Preference:
    """Several candidates for one turn, and the candidate that a critic, a person or a judge preferred."""

    number: int  # Of the turn, from 1.
    speaker: Speaker  # The agent that takes the turn.
    texts: tuple[str, ...]
    index: int  # 0-based position of the chosen text in `texts`.
    chooser: str  # The role of the critic, `human`, `judge` or a model's name.
    reason: str = ""


# Policy for a decision that cannot be parsed: take the first proposal, or fail the session.
Unreadable = Literal["first", "fail"]

CRITERIA = "it improves how well the task is done"  # Default criteria of a critic, from the paper.


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """Settings of the critic that chooses among candidate turns (paper, section 3.2)."""

    role: str
    proposals: int = 3  # Candidates for each turn.
    # Maximum rounds of proposals per turn; each round after the first requires feedback on the one before.
    rounds: int = 1
    criteria: str = CRITERIA
    unreadable: Unreadable = "first"  # Policy for a decision that cannot be parsed twice in a row.
    width: int = 1  # Beam width of a search; width 1 and depth 1 mean no search.
    depth: int = 1  # Number of turns that a search looks ahead.

    @property
    def searches(self) -> bool:
        """True if the critic looks further than the next turn or follows more than one line."""
        return (self.width, self.depth) != (1, 1)

    def count_settled(self, turns: int) -> int:
        """Return how many of ``turns`` stored turns a resumed search need not visit again."""
        return turns // self.depth * self.depth


def read_search(text: str) -> tuple[int, int]:
    """Parse the width and depth of ``beam:WIDTHxDEPTH``.

    Raises:
        ValueError: ``text`` does not have this form.
    """
    match = re.fullmatch(r"beam:([1-9]\d?)x([1-9]\d?)", text)
    if match is None:
        raise ValueError("a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate for a turn."""

    number: int  # Of the turn, from 1.
    round: int  # 1 for the first candidates of a turn; feedback begins another round.
    place: int  # Position among the candidates of its round, from 1.
    speaker: Speaker
    text: Text
    # Tokens of its call; if one call returned several candidates, the first one has the full usage.
    usage: Usage
    seconds: float
    model: str  # The model as the endpoint named it.
    finish: Finish
    lossy: bool = False  # True if bytes or characters that cannot be stored were replaced in `text`.
    # In a search, the place of the proposal for the previous turn that this one continues; None if it
    # continues the stored conversation.
    parent: int | None = None
    fingerprint: str | None = None  # The endpoint's name for the exact system that answered, if it gives one.
    thought: str = ""  # Thoughts of a reasoning model before its reply.


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a critic or a person on the proposals of a round."""

    number: int  # Of the turn, from 1.
    round: int
    attempt: int  # From 1; a decision that could not be parsed is requested again.
    speaker: Speaker  # The agent that made the proposals.
    chooser: str  # Name of the role that chose.
    text: Text  # The unparsed answer.
    # Place of the chosen proposal; None if the answer could not be parsed, `instead` replaces the proposals, or a
    # person asked for better ones. A model's critic names the best one beside its feedback.
    place: int | None
    reason: str = ""
    feedback: str = ""  # What would be better; empty if the chosen proposal is good enough.
    instead: Text | None = None  # A person's own text instead of all proposals.
    problem: str = ""  # The reason why the answer could not be parsed.
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""
    kept: tuple[int, ...] = ()  # In a search, the places of the lines that continue, best first.
    thought: str = ""  # Thoughts of a reasoning model before its answer.


@dataclass(frozen=True, slots=True)
class Deliberation:
    """The stored proposals and decisions of a session, in order."""

    proposals: tuple[Proposal, ...] = ()
    verdicts: tuple[Decision, ...] = ()

    def of(self, number: int, round_: int) -> tuple[list[Proposal], list[Decision]]:
        """Return the proposals and decisions of one round of one turn."""
        return (
            [made for made in self.proposals if (made.number, made.round) == (number, round_)],
            [made for made in self.verdicts if (made.number, made.round) == (number, round_)],
        )

    def choices(self) -> Iterator[Preference]:
        """Yield a preference for each round in which something was chosen.

        In a search, the turn of the best line is preferred over its siblings, which continue the same line.
        """
        ordered = sorted(self.verdicts, key=lambda made: (made.number, made.round, made.attempt))
        last = {(made.number, made.round): made for made in ordered}
        best: tuple[int, int | None] | None = None
        searched: list[Preference] = []
        for (number, round_), verdict in reversed(last.items()):
            proposals, _ = self.of(number, round_)
            if not verdict.kept:
                if (choice := _make_preference(verdict, proposals)) is not None:
                    searched.append(choice)
                continue
            # Backwards from the end: the best proposal for a turn is the parent of the best one for the next turn.
            position = best[1] if best is not None and best[0] == number else verdict.kept[0]
            chosen = next((made for made in proposals if made.place == position), None)
            best = None if chosen is None or chosen.parent is None else (number - 1, chosen.parent)
            if chosen is not None:
                rivals = [made for made in proposals if made.parent == chosen.parent]
                if (choice := _make_preference(replace(verdict, place=position), rivals)) is not None:
                    searched.append(choice)
        yield from reversed(searched)


NOTHING_KNOWN = Deliberation()  # The deliberation of a new session.


def _make_preference(verdict: Decision, proposals: Sequence[Proposal]) -> Preference | None:
    offered = [proposal for proposal in proposals if proposal.text.strip()]
    texts = [proposal.text for proposal in offered]
    positions = [proposal.place for proposal in offered]
    if verdict.instead is not None:
        texts.append(verdict.instead)
        index = len(texts) - 1
    elif verdict.place in positions:
        index = positions.index(verdict.place)
    else:
        return None
    chooser = HUMAN if verdict.model == HUMAN else verdict.chooser
    return Preference(verdict.number, verdict.speaker, tuple(texts), index, chooser, verdict.reason)


# Sampling parameters.


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a request. None means the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Maximum length of the reply, in tokens."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the reply."""
    repeat_penalty: float | None = None
    """Only for the local model; endpoints have no common name for it."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model: usually ``low``, ``medium`` or ``high``."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the request body, as JSON values; only for endpoints."""
