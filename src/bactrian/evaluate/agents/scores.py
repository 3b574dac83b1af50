"""The scores that a judge gives two answers: how they are asked for, and how they are read.

A reply that cannot be read, or that gives two different pairs of scores, has none: a verdict is never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ValidationError

from bactrian.models.model import Model, ResponseFormat
from bactrian.models.traits import get_traits
from bactrian.prompts.engine import render_prompt

Style = Literal["general", "math"]
"""``general`` scores helpfulness, relevance, accuracy and detail; ``math`` solves the problem first."""
Scores = tuple[float, float]
"""Of the first and the second answer as the judge saw them, each from 1 to 10."""

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
    found = {scores for scores in (_read_leading(text), _read_labels(text)) if scores is not None}
    if len(found) != 1:
        return None
    scores = found.pop()
    return scores if all(_LOWEST <= score <= _HIGHEST for score in scores) else None


def _read_leading(text: str) -> Scores | None:
    found = _LEADING.match(text)
    return None if found is None else (float(found[1]), float(found[2]))


def _read_labels(text: str) -> Scores | None:
    scores = {found["who"]: float(found[2]) for found in _LABEL.finditer(text)}
    return (scores["1"], scores["2"]) if len(scores) == 2 else None


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


def build_score_format(style: Style) -> ResponseFormat:
    """Return the format of a judge's reply. Its text is in one of the forms that :func:`read_scores` reads."""
    first = "solution" if style == "math" else "reason"
    explanation = "schema_compare_solution" if style == "math" else "schema_compare_reason"
    score = {
        f"assistant_{number}": {
            "type": "integer",
            "minimum": _LOWEST,
            "maximum": _HIGHEST,
            "description": render_prompt("schema_compare_score", number=number),
        }
        for number in (1, 2)
    }
    return ResponseFormat(
        name="scores",
        # What comes first is written first: the reasons, and then the scores that follow from them.
        schema={
            "type": "object",
            "properties": {
                first: {"type": "string", "description": render_prompt(explanation)},
                **score,
            },
            "required": [first, *score],
            "additionalProperties": False,
        },
        grammar=_GRAMMARS[style],
        read=_write_math if style == "math" else _write_general,
    )


def _write_general(text: str) -> str:
    fields = _read_fields(text)
    return text if fields is None else f"{fields.assistant_1:g} {fields.assistant_2:g}\n{fields.reason}"


def _write_math(text: str) -> str:
    fields = _read_fields(text)
    if fields is None:
        return text
    return f"{fields.solution}\nAssistant 1: {fields.assistant_1:g}\nAssistant 2: {fields.assistant_2:g}"


def _read_fields(text: str) -> _Fields | None:
    """Return the fields of a reply, or None for a reply that does not follow the schema, which is kept as it is."""
    try:
        return _Fields.model_validate_json(text)
    except ValidationError:
        return None


_PROMPTS: dict[Style, tuple[str, str, str]] = {
    "general": ("compare_request", "compare_form", "compare_form_fields"),
    "math": ("compare_math_request", "compare_math_form", "compare_math_form_fields"),
}
"""The request, and the words about the form of its reply: as text, and as fields."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The words and the format in which one model is asked for scores."""

    style: Style
    form: ResponseFormat | None
    """None for a model that cannot be held to a format."""
    by_fields: bool
    """True if the reply is a JSON object and not text."""

    @classmethod
    def of_model(cls, style: Style, model: Model) -> ScoreRequest:
        """Return how ``model`` is asked."""
        held = get_traits(model).constrained_by
        form = None if held == "none" else build_score_format(style)
        return cls(style, form, held == "schema")

    def write(self, question: str, first: str, second: str) -> str:
        """Return the question to the judge about two answers."""
        request, form, fields = _PROMPTS[self.style]
        request = render_prompt(request, form=render_prompt(fields if self.by_fields else form))
        return render_prompt(
            "compare_question", question=question, first=first, second=second, request=request
        ).strip()
