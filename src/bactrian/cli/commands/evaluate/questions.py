"""``bactrian evaluate questions``: a model writes a set of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.model_options import read_model_options
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.errors import InputError
from bactrian.evaluate.questions.asking import ask_questions, write_questions
from bactrian.evaluate.questions.question_set import SETS, load_questions
from bactrian.models.registry import open_model
from bactrian.models.wrappers.retry import Retry


def questions(
    category: Annotated[
        str, typer.Argument(help=f"A category, such as {', '.join(SETS)}, or any other in words.")
    ],
    model: Annotated[str, declare_option("--model", "Model that writes the questions.")] = "local",
    count: Annotated[int, declare_option("--count", "Number of questions.", min=1)] = 20,
    examples: Annotated[
        str | None,
        declare_option(
            "--examples", "A set or file whose first three questions are shown. Default: the category's."
        ),
    ] = None,
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None,
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    out: Annotated[
        Path | None, declare_option("--out", "The file. Default: CATEGORY.questions.jsonl.")
    ] = None,
) -> None:
    """Let a model write questions of a category, with examples; the file can be edited and given to --questions."""
    path = out or Path(f"{'-'.join(category.split())}.questions.jsonl")
    if path.exists():
        raise InputError("This file exists already.", where=str(path), next="Name another --out.")
    shown = load_questions(examples or (category if category in SETS else SETS[0])).questions
    run_async(_ask(category, shown, model, count, seed, base_url, path), resume="Nothing was written.")


async def _ask(
    category: str,
    examples: tuple[str, ...],
    model: str,
    count: int,
    seed: int | None,
    base_url: str | None,
    path: Path,
) -> int:
    access = read_model_options(base_url, model)
    opened = Retry(open_model(model, access))
    try:
        found = await ask_questions(opened, category, examples, count, seed=seed)
    finally:
        await opened.close()
    write_questions(path, category, found, model)
    typer.echo(f"{len(found)} of {count} questions: {path}", err=True)
    return 0
