"""The format of a critic's answer: the choice stands alone in the first line, so that it is unambiguous.

    Choice: 2
    The second one names the prices it needs.
    Feedback: Name the exchange, too.

A number anywhere else is not a choice: "of the 3 proposals I take the second" has three readings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from bactrian.models.model import ResponseFormat
from bactrian.prompts.engine import render_prompt

_CHOICE = re.compile(
    r"[*_#> \t]*choice[*_]*[ \t]*:[*_ \t]*(?:proposal|option)?[ \t]*#?(?P<place>\d{1,6})[*_ \t]*\.?[*_ \t]*",
    re.IGNORECASE,
)
_RANKING = re.compile(
    r"[*_#> \t]*ranking[*_]*[ \t]*:[*_ \t]*(?P<places>\d{1,6}(?:[ \t]*[,>][ \t]*\d{1,6})*)[*_ \t]*\.?[*_ \t]*",
    re.IGNORECASE,
)
_FEEDBACK = re.compile(r"^[*_#> \t]*feedback[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE | re.MULTILINE)
_REASON = re.compile(r"[*_#> \t]*reason[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE)
_NO_FEEDBACK = re.compile(r"(?:none|n/a|no|no feedback|null)?[.\s]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CriticAnswer:
    """A parsed answer."""

    place: int | None
    """None if it could not be read; ``problem`` says why."""
    reason: str = ""
    feedback: str = ""
    problem: str = ""
    kept: tuple[int, ...] = ()
    """All candidates that a ranking names, best first."""


class _Ranking(BaseModel):
    ranking: list[int]
    reason: str


class _CriticFields(BaseModel):
    choice: int
    reason: str
    feedback: str | None = None


def read_answer(text: str, places: Sequence[int]) -> CriticAnswer:
    """Parse an answer to a choice among ``places``."""
    first, _, rest = text.strip().partition("\n")
    match = _CHOICE.fullmatch(first)
    if match is None:
        return CriticAnswer(None, problem=render_prompt("critic_no_choice"))
    place = int(match["place"])
    if place not in places:
        return CriticAnswer(None, problem=render_prompt("critic_no_proposal", place=place))
    marker = _FEEDBACK.search(rest)
    feedback = rest[marker.end() :].strip() if marker else ""
    reason = rest[: marker.start() if marker else None].strip()
    before = _REASON.match(reason)
    return CriticAnswer(
        place,
        reason[before.end() :] if before else reason,
        "" if _NO_FEEDBACK.fullmatch(feedback) else feedback,
    )


def read_ranking(text: str, places: Sequence[int], keep: int) -> CriticAnswer:
    """Parse an answer that ranks the best ``keep`` of ``places``; further ones are ignored."""
    first, _, rest = text.strip().partition("\n")
    match = _RANKING.fullmatch(first)
    if match is None:
        return CriticAnswer(None, problem=render_prompt("critic_no_ranking"))
    named = [int(place) for place in re.findall(r"\d+", match["places"])]
    if strange := [place for place in named if place not in places]:
        return CriticAnswer(None, problem=render_prompt("critic_no_way", place=strange[0]))
    if len(set(named)) < len(named) or len(named) < keep:
        return CriticAnswer(None, problem=render_prompt("critic_few_ways", keep=keep))
    before = _REASON.match(rest.strip())
    reason = rest.strip()[before.end() if before else 0 :]
    return CriticAnswer(named[0], reason, kept=tuple(named[:keep]))


def build_ranking_format(places: Sequence[int], keep: int, *, small: bool = False) -> ResponseFormat:
    """Return the response format of a ranking. ``small``: for the built-in model."""
    numbers = " | ".join(f'"{place}"' for place in places)
    ranked = ' ", " '.join(["place"] * keep)
    longest = 160 if small else 1200
    return ResponseFormat(
        name="ranking",
        schema={
            "type": "object",
            "properties": {
                "ranking": {
                    "type": "array",
                    "items": {"type": "integer", "enum": list(places)},
                    "description": render_prompt("schema_ranking", keep=keep),
                },
                "reason": {"type": "string", "description": render_prompt("schema_ranking_reason")},
            },
            "required": ["ranking", "reason"],
            "additionalProperties": False,
        },
        grammar=(
            f'root ::= "Ranking: " {ranked} "\\n" line\nplace ::= {numbers}\n'
            f'line ::= [A-Z] [^\\n]{{10,{longest}}} "."\n'
        ),
        read=_ranking_from_json,
    )


def _ranking_from_json(text: str) -> str:
    fields = _Ranking.model_validate_json(text)
    return f"Ranking: {', '.join(map(str, fields.ranking))}\n{fields.reason}"


def write_answer(place: int, reason: str, feedback: str | None = None) -> str:
    """Return an answer as text."""
    end = f"\nFeedback: {feedback}" if feedback else ""
    return f"Choice: {place}\n{reason}{end}"


def build_answer_format(places: Sequence[int], *, feedback: bool, small: bool = False) -> ResponseFormat:
    """Return the response format of an answer. ``small``: for the built-in model."""
    properties: dict[str, object] = {
        "choice": {"type": "integer", "enum": list(places), "description": render_prompt("schema_choice")},
        "reason": {"type": "string", "description": render_prompt("schema_choice_reason")},
    }
    if feedback:
        properties["feedback"] = {
            "type": ["string", "null"],
            "description": render_prompt("schema_feedback"),
        }
    return ResponseFormat(
        name="choice",
        schema={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        grammar=_grammar(places, feedback=feedback, longest=160 if small else 1200),
        read=_from_json,
    )


def _grammar(places: Sequence[int], *, feedback: bool, longest: int) -> str:
    numbers = " | ".join(f'"{place}"' for place in places)
    end = ' ("\\nFeedback: " line)?' if feedback else ""
    return f'root ::= "Choice: " ({numbers}) "\\n" line{end}\nline ::= [A-Z] [^\\n]{{10,{longest}}} "."\n'


def _from_json(text: str) -> str:
    fields = _CriticFields.model_validate_json(text)
    return write_answer(fields.choice, fields.reason, fields.feedback)
