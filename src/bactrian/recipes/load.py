"""Loads a recipe: reads a built-in one or a file, applies settings, and checks the result."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from bactrian.errors import InputError, RecipeError
from bactrian.files.template import TemplateFault, check_template
from bactrian.files.toml import FileKind, TomlSource, check_table, find_file, list_built_in, resolve_beside
from bactrian.files.validation_errors import Place, explain_validation_error
from bactrian.language.numbering import strip_count
from bactrian.recipes.axis import LIST_FILE
from bactrian.recipes.overrides import apply_overrides, list_tables
from bactrian.recipes.registry import find_recipe_model
from bactrian.recipes.schema import Recipe

_KIND = FileKind("recipe", RecipeError, "docs/recipes.md", "recipes")
_LARGEST_LIST = 64 * 1024 * 1024
_MOST_LINES = 1_000_000
_CRITIC_TEMPLATES = ("role", "criteria")


def list_recipes() -> tuple[str, ...]:
    """Return the names of the built-in recipes."""
    return list_built_in(_folder())


def read_recipe_text(name_or_path: str) -> str:
    """Return the text of a recipe. Raises RecipeError if it cannot be read."""
    return find_file(name_or_path, _folder(), _KIND).text


def load_recipe(name_or_path: str, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe, change it by ``settings`` (``key=value``, as in ``task.count=5``), and check it.

    A key is one of the job's, of the recipe's, or of an axis after its name. ``fresh=true`` alone asks a model for
    every list that it can be asked for.

    Raises:
        RecipeError: the file cannot be read or is not a recipe; the message names the place.
        InputError: a setting names nothing, or its value does not fit.
    """
    source = find_file(name_or_path, _folder(), _KIND)
    data = source.table()
    model = find_recipe_model(data)
    changed: set[Place] = set()
    for setting in settings:
        places = apply_overrides(setting, data, model, source)
        if places[0] in changed and places[0][-1] != "fresh":
            raise InputError(
                f"{setting.partition('=')[0].strip()!r} is set twice.", where="--set", next="Set it once."
            )
        changed.update(places)
    _read_lists(data, source, changed)
    _freeze_shown(data)
    resolve_beside(source.where, check_table(data.get("tools")), "python")
    try:
        recipe = model.model_validate(data)
    except ValidationError as error:
        raise explain_validation_error(error, source, model, changed) from error
    _check_templates(recipe, source, changed)
    in_files = any(axis.source is not None and axis.source.startswith(LIST_FILE) for axis in recipe.axes)
    return recipe.place_in(str(Path(source.where).parent)) if in_files else recipe


def read_recipe_content(content: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run stores as ``content``."""
    return find_recipe_model(content).model_validate(dict(content))


def list_earlier_recipes(wanted: Recipe) -> Iterator[Recipe]:
    """Yield ``wanted`` as earlier versions of this program would have read it, newest first.

    The texts of a built-in recipe improve; a run that was begun with earlier ones continues with them. What the
    user changed in ``wanted`` stays changed. A recipe of earlier versions has no ``earlier`` where items are asked for
    one at a time.
    """
    apart = [axis for axis in wanted.axes if axis.each and axis.earlier == 0]
    if apart:
        axes = (axis.model_copy(update={"earlier": None}) if axis in apart else axis for axis in wanted.axes)
        yield wanted.model_copy(update={"axes": tuple(axes)})
    folder = resources.files("bactrian.recipes").joinpath("earlier")
    for name in sorted((file.name for file in folder.iterdir()), reverse=True):
        if name.endswith(".toml") and name.rpartition("-")[0] == wanted.name in list_recipes():
            earlier = tomllib.loads(folder.joinpath(name).read_text("utf-8"))
            old = find_recipe_model().model_validate(earlier).content()
            content = _restore(wanted.content(), load_recipe(wanted.name).content(), old)
            yield read_recipe_content(content)


def _restore(wanted: Any, new: Any, old: Any) -> Any:
    """Return ``wanted`` with the values that it has from ``new`` replaced by those of ``old``."""
    three: tuple[Any, Any, Any] = (wanted, new, old)
    if all(isinstance(each, dict) for each in three):
        tables = cast("tuple[dict[str, Any], ...]", three)
        keys = dict.fromkeys(key for table in tables for key in table)
        restored = {key: _restore(*(table.get(key) for table in tables)) for key in keys}
        return {key: value for key, value in restored.items() if value is not None}
    if all(isinstance(each, list) for each in three):
        lists = cast("tuple[list[Any], ...]", three)
        if len({len(each) for each in lists}) == 1:
            return [_restore(*each) for each in zip(*lists, strict=True)]
    return old if wanted == new else wanted


def find_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between two contents, one line each: ``axes.task.count: 10 → 5``."""
    before, after = _flat(old), _flat(new)
    keys = [*before, *(key for key in after if key not in before)]
    return [
        f"{key}: {_short(before.get(key))} → {_short(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _folder() -> Traversable:
    return resources.files("bactrian.recipes").joinpath("built_in")


def _freeze_shown(data: dict[str, Any]) -> None:
    """Add the number of items that a question lists: a stored recipe without it follows an older rule."""
    for axis in list_tables(data, "axes"):
        if axis.get("each") is True:
            axis.setdefault("earlier", 0)


def _read_lists(data: dict[str, Any], source: TomlSource, changed: Collection[Place]) -> None:
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
        return RecipeError(what, where="--set", next=next)
    return source.error(what, "file", next, within=part)


def _check_templates(recipe: Recipe, source: TomlSource, changed: Collection[Place]) -> None:
    def check(text: str | None, may: set[str], *place: str | int) -> None:
        if text is None:
            return
        try:
            check_template(text, may=frozenset(may))
        except TemplateFault as fault:
            key = str(place[-1])
            what = f"{key!r}, line {fault.line}, {fault.what}."
            if place in changed:
                raise RecipeError(what, where="--set", next=fault.next) from fault
            raise source.error(what, key, fault.next, within=source.part(place)) from fault

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
