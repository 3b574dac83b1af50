"""Loads a recipe: a built-in one or a file, with the settings and the table of jobs that were given."""

from __future__ import annotations

import csv
import io
import json
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, meta
from pydantic import BaseModel

from bactrian.errors import InputError, RecipeError
from bactrian.files.template import TemplateFault, check_template
from bactrian.files.toml import FileKind, KeyPath, TomlSource, check_table, resolve_beside, suggest_name
from bactrian.options import SamplingSpec
from bactrian.protocol.markers import strip_count
from bactrian.recipes.parameters import AGENT_NAMES, RecipeModels
from bactrian.recipes.schema import LIST_FILE, Axis, CriticSpec, Recipe, RolePlayTools, find_recipe_model
from bactrian.records.text import clean_text

# Jobs from a table, one a row, instead of all combinations of a recipe's axes.


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


# Loads a recipe: reads a built-in recipe or a file, applies settings, and checks the result.


# Changes to a recipe, given as ``key=value``.


# Tables that a setting may add.
_ADDED: dict[str, type[BaseModel]] = {"critic": CriticSpec, "tools": RolePlayTools, "models": RecipeModels}


def apply_overrides(
    setting: str, data: dict[str, Any], model: type[Recipe], source: TomlSource
) -> list[KeyPath]:
    """Change ``data`` as ``setting`` says, and return the paths of the values that it changed.

    Raises:
        InputError: it is not ``key=value``, or its key names nothing.
    """
    key, equals, written = setting.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(
            f"{setting!r} is not key=value.", option="settings", next="For example: task.count=5"
        )
    value = parse_value(written.strip())
    if key == "fresh":
        asked = [(number, axis) for number, axis in enumerate(list_tables(data, "axes")) if "ask" in axis]
        if not asked:
            raise InputError(
                "No list of the recipe can be asked for.", option="settings", next="Leave fresh out."
            )
        for _, axis in asked:
            axis["fresh"] = value
        return [("axes", number, "fresh") for number, _ in asked]
    name, _, last = key.removeprefix("axes.").rpartition(".")
    parts = _parts(data, model)
    if not name and last not in (parts[""].keys or ()):
        name = next((key for key in model.specs if key in parts), "")
    part = parts.get(name)
    if part is None or not last or (part.keys is not None and last not in part.keys):
        known = [f"{each}.{known}".lstrip(".") for each, part in parts.items() for known in part.keys or ()]
        if key not in parts:
            known += filter(None, parts)
        raise InputError(
            f"The recipe has nothing named {key!r}.{suggest_name(key, known)}",
            option="settings",
            next=f"`bactrian recipes show {source.where}` shows what it has.",
        )
    if part.path[:1] == ("axes",) and last in ("given", "file"):  # The new key replaces the other
        part.table.pop("given", None)
        part.table.pop("file", None)
        part.table.pop("source", None)
    part.table[last] = value
    if name in _ADDED:
        data[name] = part.table
    elif part.path[:1] == ("parameters",):
        if part.path == ("parameters",):
            data["parameters"] = part.table
        else:
            data["parameters"] = {**check_table(data.get("parameters")), str(part.path[1]): part.table}
    return [(*part.path, last)]


def list_tables(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tables of the list under ``key``; the schema rejects anything else later."""
    entries = data.get(key)
    return [
        cast("dict[str, Any]", each)
        for each in (cast("list[Any]", entries) if isinstance(entries, list) else [])
        if isinstance(each, dict)
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    """A table of the recipe whose values can be set."""

    path: KeyPath
    table: dict[str, Any]
    keys: tuple[str, ...] | None  # None if any key is allowed


def _parts(data: dict[str, Any], model: type[Recipe]) -> dict[str, _Part]:
    """Return the settable keys, by the name before the key."""
    tables = {**model.specs, **_ADDED}
    parts = {
        str(axis.get("name")): _Part(("axes", number), axis, tuple(Axis.model_fields))
        for number, axis in enumerate(list_tables(data, "axes"))
    }
    parts[""] = _Part(
        (), data, tuple(key for key in model.model_fields if key not in ("axes", "parameters", *tables))
    )
    for name, table_model in tables.items():
        table = data.get(name, {} if name in _ADDED else None)
        if isinstance(table, dict):
            parts[name] = _Part((name,), cast("dict[str, Any]", table), tuple(table_model.model_fields))
    parameters = check_table(data.get("parameters"))
    parts["parameters"] = _Part(("parameters",), parameters, tuple(SamplingSpec.model_fields))
    for agent in AGENT_NAMES:
        part = _Part(
            ("parameters", agent), check_table(parameters.get(agent)), tuple(SamplingSpec.model_fields)
        )
        parts[f"parameters.{agent}"] = part
    for name in model.specs:
        for key, value in check_table(data.get(name)).items():
            if value and check_table(value) is value:
                part = parts[f"{name}.{key}"] = _Part((name, key), check_table(value), None)
                parts.setdefault(key, part)
    return parts


def parse_value(written: str) -> Any:
    """Parse a TOML value; anything else is a text."""
    try:
        match tomllib.loads(f"value = {written}"):
            case {"value": value, **others} if not others:
                return value
            case _:  # further lines, with keys of their own
                return written
    except (ValueError, RecursionError):  # ValueError: no TOML, or a number with too many digits
        return written


_KIND = FileKind("recipe", RecipeError, "`bactrian help recipes.md`", "recipes", "recipes/built_in")
_LARGEST_LIST = 64 * 1024 * 1024
_MOST_LINES = 1_000_000
_CRITIC_TEMPLATES = ("role", "criteria")


def list_recipes() -> tuple[str, ...]:
    """Return the names of the built-in recipes."""
    return _KIND.list_built_in()


def read_recipe_text(name_or_path: str) -> str:
    """Return the text of a recipe. Raises RecipeError if it cannot be read."""
    return _KIND.find(name_or_path).text


def load_recipe(name_or_path: str, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe, change it by ``settings`` (``key=value``, as in ``task.count=5``), and check it.

    A key is one of the job's, of the recipe's, or of an axis after its name. ``fresh=true`` alone asks a model for
    every list that it can be asked for.

    Raises:
        RecipeError: the file cannot be read or is not a recipe; the message names the line.
        InputError: a setting names nothing, or its value does not fit.
    """
    source = _KIND.find(name_or_path)
    data = source.table()
    model = find_recipe_model(data)
    changed: set[KeyPath] = set()
    for setting in settings:
        paths = apply_overrides(setting, data, model, source)
        if paths[0] in changed and paths[0][-1] != "fresh":
            raise InputError(
                f"{setting.partition('=')[0].strip()!r} is set twice.", option="settings", next="Set it once."
            )
        changed.update(paths)
    _read_lists(data, source, changed)
    resolve_beside(source.where, check_table(data.get("tools")), "python")
    recipe = source.validate(model, data, changed)
    _check_templates(recipe, source, changed)
    in_files = any(axis.source is not None and axis.source.startswith(LIST_FILE) for axis in recipe.axes)
    return recipe.with_folder(str(Path(source.where).parent)) if in_files else recipe


def read_recipe_content(content: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run stores as ``content``."""
    return find_recipe_model(content).model_validate(dict(content))


def find_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between two contents, one line each: ``axes.task.count: 10 → 5``."""
    before, after = _flat(old), _flat(new)
    keys = [*before, *(key for key in after if key not in before)]
    return [
        f"{key}: {_short(before.get(key))} → {_short(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _read_lists(data: dict[str, Any], source: TomlSource, changed: Collection[KeyPath]) -> None:
    """Replace list files by their lines as given items, so that the run stores them."""
    for number, axis in enumerate(list_tables(data, "axes")):
        name = axis.get("file")
        if isinstance(name, str) and "{{" in name and "given" not in axis and "source" not in axis:
            axis["source"] = f"{LIST_FILE}{name}"
            del axis["file"]
        elif isinstance(name, str) and "given" not in axis:
            part = None if ("axes", number, "file") in changed else source.part(("axes", number))
            axis["given"] = _lines(Path(source.where).parent / name, name, source, part)
            del axis["file"]


def _lines(path: Path, name: str, source: TomlSource, part: tuple[int, int] | None) -> list[str]:
    """Return the non-blank lines of a list file, without their numbering."""
    items: list[str] = []
    lines = 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_LIST:
                raise _too_large(name, f"{size:,} bytes", f"{_LARGEST_LIST:,}", source, part)
            for line in file:
                lines += 1
                if len(items) < _MOST_LINES and (item := line.strip()):
                    items.append(item)
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"The list is not UTF-8 text from about line {lines + 1:,} on.",
            where=str(path),
            next="Save it as UTF-8.",
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        what, next = (
            f"The list {name!r} cannot be read: {reason}.",
            "Give the path to a text file beside the recipe.",
        )
        raise _file_error(what, next, source, part) from error
    if lines > _MOST_LINES:
        raise _too_large(name, f"{lines:,} lines", f"{_MOST_LINES:,}", source, part)
    # Numbering is recognised from two lines on; CAMEL's files number a single line, too.
    return [items[0].removeprefix("1. ")] if len(items) == 1 else strip_count(items)


def _too_large(
    name: str, size: str, limit: str, source: TomlSource, part: tuple[int, int] | None
) -> InputError:
    return _file_error(f"The list {name!r} has {size}; the limit is {limit}.", "Split it.", source, part)


def _file_error(what: str, next: str, source: TomlSource, part: tuple[int, int] | None) -> InputError:
    """Make an error at the key ``file`` of a part of the recipe, or at ``--set`` if the part has no such key."""
    if part is None:
        return RecipeError(what, option="settings", next=next)
    return source.error(what, "file", next, within=part)


def _check_templates(recipe: Recipe, source: TomlSource, changed: Collection[KeyPath]) -> None:
    def check(text: str | None, may: set[str], *path: str | int) -> None:
        if text is None:
            return
        try:
            check_template(text, may=frozenset(may))
        except TemplateFault as fault:
            key = str(path[-1])
            what = f"{key!r}, line {fault.line}, {fault.what}."
            if path in changed:
                raise RecipeError(what, option="settings", next=fault.next) from fault
            raise source.error(what, key, fault.next, within=source.part(path)) from fault

    known: set[str] = set()
    for number, axis in enumerate(recipe.axes):
        check(axis.ask, {"count", *axis.per}, "axes", number, "ask")
        if axis.source is not None and axis.source.startswith(LIST_FILE):
            check(axis.source.removeprefix(LIST_FILE), set(axis.per), "axes", number, "file")
        known.update(axis.names)
    job = recipe.job
    for key in job.templates:
        check(getattr(job, key) or None, known | job.placeholders, job.key, key)
    for key in _CRITIC_TEMPLATES if recipe.critic else ():
        check(getattr(recipe.critic, key), known, "critic", key)


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        elif key == "axes":
            for axis in value:
                flat |= _flat(axis, f"{prefix}axes.{axis['name']}.")
        else:
            flat[prefix + key] = value
    return flat


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value) if isinstance(value, (int, float)) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
