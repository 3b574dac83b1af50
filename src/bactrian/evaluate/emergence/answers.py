"""Asks a stage the questions of a known-answer experiment: one run for each stage, so that asking is resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bactrian.errors import InputError
from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.facts import KnownQuestion
from bactrian.evaluate.emergence.grading import Graded, grade_reply
from bactrian.recipes.job_specs import Answer
from bactrian.recipes.registry import find_recipe_model
from bactrian.recipes.schema import Recipe
from bactrian.store import open_store

_LONGEST = 40
"""Tokens of an answer; a taught answer takes about 15."""


def build_answer_recipe(questions: Sequence[KnownQuestion], model: str) -> Recipe:
    """Return the recipe that asks ``model`` each question once, without sampling.

    The weights of a local model are a part of the recipe: a stage that is trained again does not go on with the
    answers of the former one.

    Raises:
        InputError: the file of a local model cannot be read.
    """
    content = {
        "name": "known-answers",
        "description": "Questions with known answers.",
        "axes": [
            {"name": "question", "given": [one.text for one in questions], "count": len(questions)},
            {"name": "weights", "given": [identify_weights(model)], "count": 1},
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


def identify_weights(model: str) -> str:
    """Return the hash of the GGUF file of ``local:PATH``, and the name of any other model.

    Raises:
        InputError: the file cannot be read.
    """
    kind, _, path = model.partition(":")
    if kind != "local" or not Path(path).expanduser().is_file():
        return model
    try:
        with Path(path).expanduser().open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise InputError(
            f"The weights cannot be read: {error.strerror}.", where=path, next="Check the file's permissions."
        ) from error


async def read_answers(run: Path, questions: Sequence[KnownQuestion]) -> tuple[Graded, ...]:
    """Return the grades of the questions that ``run`` has answers to, in the order of ``questions``.

    Raises:
        StoreError: the run cannot be read.
    """
    async with open_store(run, read_only=True) as store:
        said = {
            session.values["question"]: session.turns[-1].text
            async for session in store.sessions()
            if session.ending is not None and session.ending.code == "answered"
        }
    return tuple(grade_reply(one, said[one.text]) for one in questions if one.text in said)
