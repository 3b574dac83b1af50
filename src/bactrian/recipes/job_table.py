"""Jobs from a table, one a row, instead of all combinations of a recipe's axes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from jinja2 import Environment, meta

from bactrian.errors import InputError
from bactrian.files.toml import suggest_name
from bactrian.recipes.schema import Axis, Recipe
from bactrian.records.text import clean_text

AXIS = "job"  # The only axis of a recipe with a table; its items are rows as JSON arrays
_LARGEST = 64 * 1024 * 1024
_MOST = 1_000_000
_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class JobTable:
    """Rows of texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    where: str  # The file, for messages
    labels: tuple[str, ...] = ()  # Where each row stands, for messages


def read_job_table(path: Path) -> JobTable:
    """Read a table: ``.jsonl`` with an object a line, or text with a header and values between commas.

    Semicolons and tabs may replace commas.

    Raises:
        InputError: the file cannot be read or is not a table; the message names the line.
    """
    try:
        if not path.is_file():
            reason = "This is not a file" if path.exists() else "There is no such file"
            raise _fail(f"{reason}.", str(path), "Give a .csv or a .jsonl file.")
        if (size := path.stat().st_size) > _LARGEST:
            what = f"The table has {size:,} bytes; the limit is {_LARGEST:,}."
            raise _fail(what, str(path), "Divide it among several runs.")
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _fail("The table is not UTF-8 text.", str(path), "Save it as UTF-8.") from error
    except OSError as error:
        raise _fail(f"The table cannot be read: {error.strerror}.", str(path), "Check the path.") from error
    if path.suffix.lower() in _LINES:
        return build_job_table(_read_lines(text, str(path)), str(path), "line")
    return build_job_table(_read_csv(text, str(path)), str(path), "line")


def build_job_table(
    records: Sequence[Mapping[str, object]] | Iterator[tuple[int, Mapping[str, object]]],
    where: str,
    unit: str,
) -> JobTable:
    """Return the table of ``records``, which all have the same keys and texts as values.

    Raises:
        InputError: there is no record, or a record does not fit; the message names it.
    """
    columns: tuple[str, ...] = ()
    rows: dict[tuple[str, ...], str] = {}
    for number, record in enumerate(records, start=1) if isinstance(records, Sequence) else records:
        label = f"{unit} {number}"
        columns = columns or tuple(record)
        if set(record) != set(columns):
            odd = sorted(set(record) ^ set(columns))
            verb = "has no" if odd[0] in columns else "has a"
            raise _fail(
                f"{label.capitalize()} {verb} {odd[0]!r}, unlike the first.",
                where,
                "Give all rows the same keys.",
            )
        values: list[str] = []
        for column in columns:
            value = record[column]
            if not isinstance(value, str) or "\0" in value:
                raise _fail(f"{label.capitalize()}: {column!r} is not a text.", where, "Put it in quotes.")
            values.append(clean_text(value.strip()))
        if (row := tuple(values)) in rows:
            what = f"{label.capitalize()} and {rows[row]} are the same job."
            raise _fail(what, where, "Leave one of them out, or add a column that differs.")
        rows[row] = label
        if len(rows) > _MOST:
            raise _fail(f"The table has more than {_MOST:,} jobs.", where, "Divide it among several runs.")
    if not rows:
        raise _fail("The table has no jobs.", where, "Give it a row for each job.")
    return JobTable(columns, tuple(rows), where, tuple(rows.values()))


def apply_job_table(recipe: Recipe, table: JobTable) -> Recipe:
    """Return ``recipe`` with the rows of ``table`` as its jobs.

    A column is an axis, or a text of the job itself (``assistant``, ``user``, ``idea``), which then replaces the
    recipe's template.

    Raises:
        InputError: a column is unknown or missing, or a value is empty.
    """
    job = recipe.job
    axes = [axis.name for axis in recipe.axes]
    if job.later_axes:
        raise _fail(f"A recipe with [{job.key}] takes no table of jobs.", table.where, "Leave it out.")
    known = dict.fromkeys((*job.templates, *axes))
    for column in table.columns:
        if column not in known:
            what = f"The column {column!r} is not an axis of the recipe.{suggest_name(column, tuple(known))}"
            raise _fail(what, table.where, f"Columns may be {', '.join(known)}.")
    texts = {key: f"{{{{ {key} }}}}" for key in job.templates if key in table.columns and key not in axes}
    job = job.model_copy(update=texts)
    needed = _find_needed({key: str(getattr(job, key)) for key in job.templates}, recipe)
    for name, key in needed.items():
        if name not in table.columns and name not in job.placeholders:
            instead = f", or {key!r} with the whole text" if key in job.templates else ""
            raise _fail(f"The table has no column {name!r}.", table.where, f"Add it{instead}.")
    for row, label in zip(table.rows, table.labels, strict=True):
        for column, value in zip(table.columns, row, strict=True):
            if not value and column in needed and needed[column] not in _MAY_BE_EMPTY:
                raise _fail(f"{label.capitalize()}: {column!r} is empty.", table.where, "Fill it in.")
    items = tuple(json.dumps(row, ensure_ascii=False) for row in table.rows)
    axis = Axis(name=AXIS, count=len(items), given=items, columns=table.columns)
    return recipe.model_copy(update={"axes": (axis,), job.key: job})


_MAY_BE_EMPTY = ("assistant_description", "user_description")


def expand_row(item: str, columns: Sequence[str]) -> dict[str, str]:
    """Return the values of a row, by column."""
    return dict(zip(columns, cast("list[str]", json.loads(item)), strict=True))


def _find_needed(templates: Mapping[str, str], recipe: Recipe) -> dict[str, str]:
    """Return the placeholders of all templates, with the key of the first template that has each."""
    critic = (
        {"critic.role": recipe.critic.role, "critic.criteria": recipe.critic.criteria}
        if recipe.critic
        else {}
    )
    needed: dict[str, str] = {}
    for key, text in {**templates, **critic}.items():
        for name in sorted(meta.find_undeclared_variables(Environment(autoescape=True).parse(text))):
            needed.setdefault(name, key)
    return needed


def _read_csv(text: str, where: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    header = text.lstrip("\r\n").partition("\n")[0]
    mark = max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    columns: list[str] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if not columns:
                columns = [cell.strip() for cell in row]
                if twice := [name for name in columns if columns.count(name) > 1 or not name]:
                    raise _fail(
                        f"The header has {twice[0]!r} twice or empty.", where, "Name each column once."
                    )
                continue
            if len(row) != len(columns):
                what = f"Line {reader.line_num} has {len(row)} values, and the header has {len(columns)}."
                raise _fail(what, where, "Put values that contain a comma in quotes.")
            yield reader.line_num, dict(zip(columns, row, strict=True))
    except csv.Error as error:
        raise _fail(f"Line {reader.line_num}: {error}.", where, "Check the quotes.") from error


def _read_lines(text: str, where: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _fail(f"Line {number} is not JSON: {error}.", where, "Write an object a line.") from error
        if not isinstance(row, dict) or not row:
            raise _fail(f"Line {number} is not an object with keys.", where, "Write an object a line.")
        yield number, cast("dict[str, object]", row)


def _fail(what: str, where: str, next: str) -> InputError:
    return InputError(what, where=where, next=next)
