"""Asks a stage the questions of a known-answer experiment: one run for each stage, so that asking is resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.facts import KnownQuestion
from bactrian.evaluate.emergence.grading import Graded, grade_reply
from bactrian.models.local.identity import identify_weights
from bactrian.play.agent import EMPTY_TWICE
from bactrian.recipes.job_specs import Answer
from bactrian.recipes.registry import find_recipe_model
from bactrian.recipes.schema import Recipe
from bactrian.records.session import Session
from bactrian.store import open_store

_LONGEST = 40
"""Tokens of an answer; a taught answer takes about 15."""


def build_answer_recipe(questions: Sequence[KnownQuestion], model: str) -> Recipe:
    """Return the recipe that asks ``model`` each question once, without sampling.

    The weights of a local model are a part of the recipe: a stage that is trained again does not continue with the
    answers of the former one.

    Raises:
        InputError: the file of a local model cannot be read.
    """
    content = {
        "name": "known-answers",
        "axes": [
            {"name": "question", "given": [one.text for one in questions], "count": len(questions)},
            {"name": "weights", "given": [identify_weights(model) or model], "count": 1},
        ],
        Answer.key: {
            "role": "Assistant",
            "system": load_domains().system,
            "question": "{{ question }}",
            "temperature": 0.0,
            "max_tokens": _LONGEST,
        },
    }
    return find_recipe_model([Answer.key]).model_validate(content)


async def read_answers(run: Path, questions: Sequence[KnownQuestion]) -> tuple[Graded, ...]:
    """Return the grades of the questions that ``run`` has answers to, in the order of ``questions``.

    To answer with nothing, as a model with random weights does, is wrong. A model that failed otherwise has no grade.

    Raises:
        StoreError: the run cannot be read.
    """
    async with open_store(run, read_only=True) as store:
        said = {
            session.values["question"]: text
            async for session in store.sessions()
            if (text := _find_reply(session)) is not None
        }
    return tuple(grade_reply(one, said[one.text]) for one in questions if one.text in said)


def _find_reply(session: Session) -> str | None:
    if session.ending is None:
        return None
    if session.ending.code == "answered":
        return session.turns[-1].text
    return "" if session.ending.evidence.endswith(EMPTY_TWICE) else None
