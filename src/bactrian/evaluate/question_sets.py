"""What is compared: tasks drawn from a run, and sets of questions, which a file has or a model writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from bactrian.errors import BadReply, InputError
from bactrian.evaluate.comparison_jobs import Solutions
from bactrian.files.atomic import write_atomically
from bactrian.files.json_text import parse_json, read_lines
from bactrian.files.toml import suggest_name
from bactrian.models.model import Model, RunSeeds, derive_seed
from bactrian.recipes.schema import Axis
from bactrian.records.text import clean_text, to_json
from bactrian.runs.lists import ModelSource
from bactrian.runs.scheduler import ListRequest
from bactrian.store import open_store

# The sets of table 2, with our own questions: 20 each, and 60 for science.
SETS = ("ai-society", "code", "math", "science")


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with a name."""

    name: str
    questions: tuple[str, ...]

    @property
    def has_one_answer(self) -> bool:
        """True if the judge is to solve each problem first."""
        return self.name == "math"


def load_questions(name: str) -> QuestionSet:
    """Return a set by its name, or from a file: JSON lines with ``text``, or plain lines.

    Raises:
        InputError: there is no such set, or the file cannot be read or contains no question.
    """
    if name in SETS:
        text = files("bactrian.evaluate").joinpath("questions", f"{name}.jsonl").read_text("utf-8")
        return QuestionSet(name, tuple(_parse(enumerate(text.splitlines(), start=1), name)))
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(
            f"There is no set of questions {name!r}.{suggest_name(name, SETS)}",
            option="questions",
            next=f"One of {', '.join(SETS)}, or a file of JSON lines with `text`.",
        )
    questions = tuple(dict.fromkeys(_parse(read_lines(path), name)))
    if not questions:
        raise InputError("The file contains no question.", where=name, next="Write one a line.")
    return QuestionSet(path.stem, questions)


def _parse(lines: Iterable[tuple[int, str]], where: str) -> Iterable[str]:
    for number, line in lines:
        text: str = line.strip()
        if line.lstrip().startswith("{"):
            try:
                row = cast("dict[str, Any]", parse_json(line))
            except ValueError as error:
                raise InputError(
                    "This line is not JSON.", where=f"{where}:{number}", next="Correct it."
                ) from error
            value = row.get("text")
            text = value if isinstance(value, str) else ""
            if not text.strip():
                raise InputError(
                    "This line has no `text`.", where=f"{where}:{number}", next="Add the question."
                )
        if text.strip():
            yield clean_text(text.strip())


# Asks a model for questions of a category, with examples (paper, section 5.2 and appendix I).


EXAMPLES = 3  # Examples that a model is shown, as in CAMEL's script
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
    written: tuple[str, ...] = ()
    async for progress in source.list_items(request):
        written = progress.items
    kept = [question for question in written if question not in examples]
    if not kept:
        raise BadReply("The model wrote no questions.", where=model.name, next="Try another model.")
    return kept


def write_questions(path: Path, category: str, questions: Sequence[str], model: str) -> None:
    """Write a set of questions as JSON lines, to be edited and read by ``--questions``.

    Raises:
        InputError: the file exists already, or cannot be written.
    """
    rows = (
        {"question_id": number, "text": text, "category": category, "model": model}
        for number, text in enumerate(questions, start=1)
    )
    with write_atomically(path) as folder:
        (folder / path.name).write_text("".join(f"{to_json(row)}\n" for row in rows), "utf-8")


# Draws the tasks of an evaluation from a run of conversations.


async def list_conversations(run: Path) -> list[str]:
    """Return the ids of the conversations of ``run`` that have ended with a turn of each side.

    Raises:
        InputError: there is none.
        StoreError: the run cannot be read.
    """
    async with open_store(run, read_only=True) as store:
        progress = [session async for session in store.progress()]
    conversations = [
        session.id
        for session in progress
        if session.ending not in (None, "failed", "stopped") and (session.turns or 0) > 1
    ]
    if not conversations:
        raise InputError(
            "The run has no conversation that has ended." if progress else "The run has no conversation.",
            where=str(run),
            next=f"Finish it first: bactrian resume {run}" if progress else "Generate one first.",
        )
    return conversations


def draw_tasks(sessions: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return ``count`` of ``sessions``, or all if there are fewer, drawn at random by ``seed``, in their order.

    Without a ``count``, all are returned.

    The draw depends on the ids alone: not on their order, and not on the machine.
    """
    drawn = set(sorted(sessions, key=lambda session: derive_seed(seed, "task", session))[:count])
    return [session for session in sessions if session in drawn]


def read_task_file(path: Path, sessions: Sequence[str]) -> list[str]:
    """Return the session ids in a file, one a line.

    Raises:
        InputError: the file cannot be read, is empty, or names a session that is not in ``sessions``.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "The file cannot be read as text.", where=str(path), next="Check the path."
        ) from error
    names = list(dict.fromkeys(line for line in lines if line))
    if not names:
        raise InputError("The file names no session.", where=str(path), next="Write one id a line.")
    for name in names:
        if name not in sessions:
            raise InputError(
                f"{name!r} is not a conversation of the run that has ended.{suggest_name(name, sessions)}",
                where=str(path),
                next="`bactrian show RUN` lists the conversations.",
            )
    return names


def find_stored_draw(content: Mapping[str, Any], spec: Solutions) -> list[str] | None:
    """Return the tasks of the solutions of ``content`` if they were drawn in the same way; None if not.

    That they were drawn from the same run is checked when the solutions are resumed.
    """
    recipe = content.get("recipe", {})
    stored = recipe.get(Solutions.key, {})
    same = all(stored.get(key) == getattr(spec, key) for key in ("seed", "drawn"))
    return list(recipe["axes"][0]["given"]) if same and spec.drawn is not None else None


async def find_author(run: Path, session_id: str) -> str | None:
    """Return the model of the assistant in a session; None if it cannot be asked, as an object or a person."""
    async with open_store(run, read_only=True) as store:
        session = await store.session(session_id)
    name = session.provenance.models.get("assistant", "") if session else ""
    return None if not name or name.startswith(("python:", "human", "scripted", "recorded")) else name
