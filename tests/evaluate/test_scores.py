"""What a judge's reply says, in both forms, and that a reply that cannot be read is never guessed."""

from __future__ import annotations

import json

import pytest

from bactrian.evaluate.verdicts import ScoreRequest, build_score_format, read_scores
from bactrian.models.model import get_traits
from bactrian.models.scripted import Scripted
from bactrian.protocol.fences import strip_markers


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("8 10\nThe second is more detailed.", (8, 10)),
        ("8 10 Assistant 1 gives a short answer.", (8, 10)),
        ("7.5, 9", (7.5, 9)),
        ("**8 / 10  6/10**", (8, 6)),
        ("Scores: 9 3", (9, 3)),
        ("First, I solve it: 2 + 2 = 4.\nAssistant 1: 1\nAssistant 2: 10", (1, 10)),
        ("**Assistant 1:** 4/10\n**Assistant 2:** 9/10", (4, 9)),
        ("Assistant 1: 3\nAssistant 2: 4\nOn reflection:\nAssistant 1: 5\nAssistant 2: 4", (5, 4)),
        ("Assistant 1's score: 6. Assistant 2's score: 6.", (6, 6)),
        ("8 9\nAssistant 1: 8\nAssistant 2: 9", (8, 9)),
    ],
)
def test_both_forms_of_scores_are_read(text: str, scores: tuple[float, float]) -> None:
    assert read_scores(text) == scores


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Both are good.",
        "8",
        "Assistant 1: 8",
        "11 4",
        "0 5",
        "2 3 + 4",
        "100 20",
        "8 9\nAssistant 1: 9\nAssistant 2: 8",
        "Assistant 1 gives 3 examples and Assistant 2 gives 5.",
    ],
)
def test_what_cannot_be_read_for_certain_has_no_scores(text: str) -> None:
    assert read_scores(text) is None


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("general", ["assistant_1", "assistant_2", "reason"]),  # the scores first, as in the paper
        ("math", ["solution", "assistant_1", "assistant_2"]),
    ],
)
def test_a_reply_that_is_held_to_fields_is_read_like_a_free_one(style: str, names: list[str]) -> None:
    form = build_score_format(style)  # type: ignore[arg-type]
    assert list(form.schema["properties"]) == names  # type: ignore[call-overload]
    reply = json.dumps(
        {"assistant_1": 3, "assistant_2": 9} | {names[0 if style == "math" else 2]: "Both add."}
    )
    assert read_scores(form.read(reply)) == (3, 9)
    assert form.read("3 9, but no JSON") == "3 9, but no JSON"


def test_the_judge_is_told_the_form_that_its_replies_are_held_to() -> None:
    request = ScoreRequest.of_traits("general", get_traits(Scripted([])))
    text = request.write("What is tea?", "A drink.", "A leaf.")
    assert text.index("A drink.") < text.index("A leaf.")
    assert request.by_fields
    assert "first line" not in text


def test_a_solution_keeps_its_code_and_loses_the_words_of_the_protocol() -> None:
    text = (
        "**Solution:** Print it.\n```python\n# Input: none\nprint('Next request.')\n```\n"
        "Instruction: run it.\nIt works. Next request.\n<CAMEL_TASK_DONE>"
    )
    assert strip_markers(text) == (
        "Print it.\n```python\n# Input: none\nprint('Next request.')\n```\nrun it.\nIt works."
    )
    assert strip_markers("It has a dial. Solution: it rings.") == "It has a dial. it rings."
    assert strip_markers("The next request is served at once.") == "The next request is served at once."
