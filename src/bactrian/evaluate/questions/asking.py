"""Asks a model for questions of a category, with examples (paper, section 5.2 and appendix I)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bactrian.errors import BadReply
from bactrian.files.atomic import write_atomically
from bactrian.generate.lists.ask import ModelSource
from bactrian.generate.lists.source import ListRequest
from bactrian.language.escape import to_json
from bactrian.models.model import Model
from bactrian.models.seeds import RunSeeds
from bactrian.recipes.axis import Axis

EXAMPLES = 3
"""Examples that a model is shown, as in CAMEL's script."""
_ASK = """
List {{ count }} questions of the category {{ category }}, by which two language models can be compared.
Make them differ in topic and in difficulty. Each must be complete in itself, on one line.
Write the questions only, each with its number, and no answers.

Examples of such questions:
{{ examples }}
"""


async def ask_questions(
    model: Model, category: str, examples: Sequence[str], count: int, *, seed: int | None = None
) -> list[str]:
    """Return ``count`` questions of ``category`` that ``model`` writes, none of them an example.

    Raises:
        BadReply: three replies in a row contained no new question.
        ModelError: the model does not answer.
    """
    axis = Axis(name="question", count=count, ask=_ASK, per=("category", "examples"), temperature=1.0)
    shown = "\n".join(f"- {example}" for example in examples[:EXAMPLES])
    request = ListRequest(
        f"question@{category}", "question", {"category": category, "examples": shown}, count, count
    )
    source = ModelSource([axis], model, enforced=True, seeds=RunSeeds(seed))
    found: tuple[str, ...] = ()
    async for progress in source.list_items(request):
        found = progress.items
    kept = [question for question in found if question not in examples]
    if not kept:
        raise BadReply("The model wrote no questions.", where=model.name, next="Try another model.")
    return kept


def write_questions(path: Path, category: str, questions: Sequence[str], model: str) -> None:
    """Write a set of questions as JSON lines, to be edited and to be given to ``--questions``.

    Raises:
        InputError: the file exists already, or cannot be written.
    """
    rows = (
        {"question_id": number, "text": text, "category": category, "model": model}
        for number, text in enumerate(questions, start=1)
    )
    with write_atomically(path) as folder:
        (folder / path.name).write_text("".join(f"{to_json(row)}\n" for row in rows), "utf-8")
