"""The verdicts of a judge on two solutions: how scores are asked for, read and kept, and which solution wins.

A reply that cannot be read, or that gives two different pairs of scores, has none: a verdict is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from bactrian.models.model import ResponseFormat, Traits
from bactrian.models.open import find_traits
from bactrian.protocol.fences import strip_markers
from bactrian.protocol.pack import render_prompt
from bactrian.records.session import Session
from bactrian.records.turn import Turn
from bactrian.store import open_store

# `general` scores helpfulness, relevance, accuracy and detail; `math` solves the problem first.
Style = Literal["general", "math"]
Scores = tuple[float, float]  # Of the first and the second answer as the judge saw them, each from 1 to 10

_NUMBER = r"(\d{1,2}(?:\.\d+)?)(?!\d)(?:\s?/\s?10(?!\d))?"
_LEADING = re.compile(
    rf"\W*(?:scores?\W+)?{_NUMBER}(?:[ \t]*[,;|][ \t]*|[ \t]+){_NUMBER}(?![ \t]*(?:[-+/=^%]|\*[ \t]*\d))",
    re.I,
)
_LABEL = re.compile(
    rf"\bassistant[ \t]*(?P<who>[12])\b(?:'s)?(?:[ \t]+(?:final[ \t]+)?score)?[*_]*[ \t]*[:=][*_ \t]*{_NUMBER}",
    re.I,
)
_LOWEST, _HIGHEST = 1, 10


def read_scores(text: str) -> Scores | None:
    """Return the scores in a judge's reply, or None if they cannot be read for certain.

    Two forms are read: two numbers at the start of the reply, and lines such as ``Assistant 1: 8``. Of several lines
    for one assistant the last one counts, because a judge that solves first may revise its scores.
    """
    pairs: set[Scores] = set()
    if (leading := _LEADING.match(text)) is not None:
        pairs.add((float(leading[1]), float(leading[2])))
    labels = {label["who"]: float(label[2]) for label in _LABEL.finditer(text)}
    if len(labels) == 2:
        pairs.add((labels["1"], labels["2"]))
    if len(pairs) != 1:
        return None
    scores = pairs.pop()
    return scores if all(_LOWEST <= score <= _HIGHEST for score in scores) else None


class _Fields(BaseModel):
    assistant_1: float
    assistant_2: float
    reason: str = ""
    solution: str = ""


_SCORE = '("10" | [1-9])'
_GRAMMARS: dict[Style, str] = {
    "general": f'root ::= {_SCORE} " " {_SCORE} "\\n" [A-Z] [^\\n]{{20,400}} "."\n',
    "math": f'root ::= [^\\n]{{20,400}} "\\nAssistant 1: " {_SCORE} "\\nAssistant 2: " {_SCORE}\n',
}


def _describe_text(prompt: str) -> dict[str, str]:
    return {"type": "string", "description": render_prompt(prompt)}


def build_score_format(style: Style) -> ResponseFormat:
    """Return the format of a judge's reply. Its text is in one of the forms that :func:`read_scores` reads."""
    score: dict[str, Any] = {
        f"assistant_{number}": {
            "type": "integer",
            "minimum": _LOWEST,
            "maximum": _HIGHEST,
            "description": render_prompt("schema_compare_score", number=number),
        }
        for number in (1, 2)
    }

    # What comes first is written first: the scores, as in the paper, then the reasons; but a solution before its score.
    if style == "math":
        fields = {"solution": _describe_text("schema_compare_solution"), **score}
    else:
        fields = {**score, "reason": _describe_text("schema_compare_reason")}

    def write(text: str) -> str:
        try:
            read = _Fields.model_validate_json(text)
        except ValidationError:  # A reply that does not follow the schema is kept as it is.
            return text
        if style == "math":
            return f"{read.solution}\nAssistant 1: {read.assistant_1:g}\nAssistant 2: {read.assistant_2:g}"
        return f"{read.assistant_1:g} {read.assistant_2:g}\n{read.reason}"

    return ResponseFormat(
        name="scores",
        schema={
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        },
        grammar=_GRAMMARS[style],
        read=write,
    )


# The request, and the words about the form of its reply: as text, and as fields.
_PROMPTS: dict[Style, tuple[str, str, str]] = {
    "general": ("compare_request", "compare_form", "compare_form_fields"),
    "math": ("compare_math_request", "compare_math_form", "compare_math_form_fields"),
}


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The words and the format in which one model is asked for scores."""

    style: Style
    form: ResponseFormat | None  # None for a model that cannot be held to a format
    by_fields: bool  # True if the reply is a JSON object and not text

    @classmethod
    def of_traits(cls, style: Style, traits: Traits) -> ScoreRequest:
        """Return how a model with these traits is asked."""
        held = traits.constrained_by
        form = None if held == "none" else build_score_format(style)
        return cls(style, form, held == "schema")

    def write(self, question: str, first: str, second: str) -> str:
        """Return the question to the judge about two answers."""
        request, form, fields = _PROMPTS[self.style]
        request = render_prompt(request, form=render_prompt(fields if self.by_fields else form))
        return render_prompt(
            "compare_question", question=question, first=first, second=second, request=request
        ).strip()

    def write_again(self) -> str:
        """Return what is said to a judge whose scores cannot be read."""
        _, form, fields = _PROMPTS[self.style]
        return render_prompt("compare_again", form=render_prompt(fields if self.by_fields else form)).strip()


# The verdicts of a run, by task and pair of solutions.


# Characters of a solution that the built-in model is shown: two of them and its answer fill its window.
SMALL_LONGEST = 2400
Outcome = Literal["win", "draw", "loss"]  # Of the first solution of the pair


@dataclass(frozen=True, slots=True)
class Judgement:
    """One reply of a judge about a pair."""

    swapped: bool  # True if the second solution of the pair was shown first
    # Of the first and the second solution of the pair; None if the reply cannot be read.
    scores: tuple[float, float] | None

    @property
    def sign(self) -> int | None:
        """1 if the first solution has the higher score, -1 if the second has, 0 for equal scores; None if unread."""
        return None if self.scores is None else _compare(*self.scores)


@dataclass(frozen=True, slots=True)
class JudgedTask:
    """A task with the judgements on a pair of its solutions."""

    task: str  # Id of its session in the run of solutions
    cluster: str  # Tasks of one cluster depend on each other: those of one text, or of one pair of roles
    judgements: tuple[Judgement, ...]
    lengths: tuple[int, int]  # Characters of the two solutions
    cut: int = 0  # Solutions of which the judge was shown only the beginning

    def find_sign(self, *, swapped: bool) -> int | None:
        """Return the sign of the mean difference in scores in one order; None if no reply there can be read."""
        known = [
            judgement.scores
            for judgement in self.judgements
            if judgement.swapped == swapped and judgement.scores is not None
        ]
        if not known:
            return None
        return _compare(sum(first for first, _ in known), sum(second for _, second in known))

    @property
    def outcome(self) -> Outcome | None:
        """A win or loss if the same solution wins in both orders, else a draw; None if an order was not read."""
        straight, swapped = self.find_sign(swapped=False), self.find_sign(swapped=True)
        if straight is None or swapped is None:
            return None
        if straight == swapped and straight:
            return "win" if straight > 0 else "loss"
        return "draw"

    @property
    def mean_score(self) -> float | None:
        """The mean of all scores of both solutions; None if no reply can be read."""
        scores = [
            score
            for judgement in self.judgements
            if judgement.scores is not None
            for score in judgement.scores
        ]
        return fmean(scores) if scores else None


async def read_judged_tasks(
    solutions: Path, *verdicts: Path, by_roles: bool = False
) -> dict[tuple[str, str], list[JudgedTask]]:
    """Return the judged tasks of a judge's runs of verdicts by pair, in the order of the tasks.

    A task without both solutions or without all its judgements is left out. Equal tasks are one cluster; ``by_roles``
    makes it the pair of roles.

    Raises:
        StoreError: a run cannot be read.
    """
    judged: list[Session] = []
    for path in verdicts:
        async with open_store(path, read_only=True) as store:
            judged += [
                session
                async for session in store.sessions()
                if "pair" in session.values and session.turns and (is_answered(session) or is_unread(session))
            ]
    wanted = {session.values["task"] for session in judged}
    async with open_store(solutions, read_only=True) as store:
        solved = {session.id: session async for session in store.sessions() if session.id in wanted}
    tasks: dict[tuple[str, str], list[JudgedTask]] = {}
    for session in sorted(judged, key=lambda session: session.id):
        source = solved.get(session.values["task"])
        pair = split_pair(session.values["pair"])
        texts = {} if source is None else read_solutions(source)
        if source is None or not texts.keys() >= set(pair):
            continue
        judgements: list[Judgement] = []
        for turn in session.turns:
            scores, swapped = read_scores(turn.text), turn.number % 2 == 0
            if scores is not None and swapped:
                scores = scores[1], scores[0]
            judgements.append(Judgement(swapped, scores))
        roles = source.values.get("assistant_role"), source.values.get("user_role")
        cluster = f"{roles[0]} × {roles[1]}" if by_roles and all(roles) else source.task.text.strip()
        lengths = len(texts[pair[0]]), len(texts[pair[1]])
        # The built-in model was shown only the beginning of long solutions.
        small = any(find_traits(name).small for name in session.provenance.models.values())
        cut = sum(length > SMALL_LONGEST for length in lengths) if small else 0
        tasks.setdefault(pair, []).append(JudgedTask(source.id, cluster, tuple(judgements), lengths, cut))
    return tasks


def is_cut(turn: Turn) -> bool:
    """Return True if a solution ended at the longest length of a reply."""
    return turn.finish == "length"


def is_answered(session: Session) -> bool:
    """Return True if all answers of an evaluation's session are there."""
    return session.ending is not None and session.ending.code == "answered"


UNREAD = "The judge's reply cannot be read"


def is_unread(session: Session) -> bool:
    """Return True if a judge has given all its replies, and those in one order cannot be read."""
    return session.ending is not None and session.ending.evidence.startswith(UNREAD)


def find_unread(turns: Sequence[Turn]) -> Turn | None:
    """Return the last reply of an order of which none can be read; None if each order has one that can."""
    read = {turn.number % 2 for turn in turns if read_scores(turn.text) is not None}
    return next((turn for turn in reversed(turns) if turn.number % 2 not in read), None)


def _compare(first: float, second: float) -> int:
    return (first > second) - (first < second)


def split_pair(pair: str) -> tuple[str, str]:
    """Return the two ways of an item of the axis ``pair``."""
    first, _, second = pair.partition(" | ")
    return first, second


def join_pair(first: str, second: str) -> str:
    """Return two ways as an item of the axis ``pair``."""
    return f"{first} | {second}"


def read_solutions(session: Session) -> dict[str, str]:
    """Return the solutions of a task by way, without the words of the protocol, which would tell whose they are."""
    return {turn.speaker: strip_markers(turn.text) for turn in session.turns}
