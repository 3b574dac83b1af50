"""``camel-lists``: the lists of a run (roles, tasks, topics) in the layout of CAMEL's own list files.

An axis is one file, ``assistant_roles.txt``; a list for each combination is a file of its own,
``tasks/Accountant_Actor.txt``. A line is ``N. Item``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.export.counts import ExportCounts
from bactrian.export.manifest import build_manifest, describe_files, list_written
from bactrian.files.atomic import MANIFEST, name_companion, write_atomically
from bactrian.language.escape import to_path_part
from bactrian.store import RunReader, list_run_files

NAME = "camel-lists"
_PLURALS = {"programming_language": "languages"}
"""Names of CAMEL's files that are not the axis with an s."""

Items = Mapping[str, Sequence[str]]
"""The items of each list, by its id: the axis, and after ``@`` the positions of the items it depends on."""


async def export_lists(store: RunReader, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the lists of a run to the folder ``out``, and return the manifest.

    Raises:
        InputError: the target exists or cannot be written, the run was not made from a recipe, or two lists would
            have the same file.
        StoreError: the run cannot be read.
    """
    async with store.snapshot() as run:
        recipe = await run.recipe()
        if recipe is None or "recipe" not in recipe:
            raise InputError(
                "This run was not made from a recipe, so it has no lists.",
                where=str(store.path),
                next="Export a run of `generate`.",
            )
        axes: Sequence[Mapping[str, Any]] = recipe["recipe"]["axes"]
        lists = {one.id: one.items async for one in run.item_lists()}
    lists |= {f"{axis['name']}@": axis["given"][: axis["count"]] for axis in axes if _is_given(axis)}
    with write_atomically(out, overwrite=overwrite, protect=list_run_files(store.path)) as stage:
        target = stage / out.name
        target.mkdir()
        counts = ExportCounts()
        for list_id, items in lists.items():
            path = target / _find_path(list_id, axes, lists)
            if path.exists():
                raise InputError(
                    f"Two lists of the run would be the file {path.name!r}.",
                    where=str(out),
                    next="Rename an item that contains an underscore.",
                )
            path.parent.mkdir(exist_ok=True)
            lines = (f"{number}. {' '.join(item.split())}\n" for number, item in enumerate(items, start=1))
            path.write_text("".join(lines), "utf-8")
            counts.rows[path.relative_to(target).parts[0].removesuffix(".txt")] += len(items)
        made = {
            "format": NAME,
            "run": {
                "name": store.path.stem,
                "recipe": recipe["recipe"].get("name"),
                "seed": recipe.get("seed"),
            },
            "notes": {},
        }
        manifest = build_manifest(made, counts)
        manifest["files"] = describe_files(stage)
        (stage / name_companion(target, MANIFEST)).write_text(list_written(manifest), "utf-8")
    return manifest


def _is_given(axis: Mapping[str, Any]) -> bool:
    """Return True if all items of an axis are given, so that the run stores no list for it."""
    enough = len(axis.get("given") or ()) >= axis["count"]
    return enough and not axis.get("fresh") and not axis.get("columns")


def _find_path(list_id: str, axes: Sequence[Mapping[str, Any]], lists: Items) -> str:
    """Return the path of a list: the axis in the plural, and the items that the list depends on."""
    name, _, positions = list_id.partition("@")
    plural = _PLURALS.get(name, f"{name}s")
    per: Sequence[str] = _find_axis(name, axes).get("per") or ()
    places: dict[str, int] = dict(zip(per, map(int, filter(None, positions.split("_"))), strict=False))
    if not places:
        return f"{plural}.txt"
    return f"{plural}/{'_'.join(to_path_part(_find_item(axis, places, axes, lists)) for axis in per)}.txt"


def _find_item(name: str, places: Mapping[str, int], axes: Sequence[Mapping[str, Any]], lists: Items) -> str:
    """Return the item of the axis ``name`` at its place; its number if the list that contains it is not determined."""
    per: Sequence[str] = _find_axis(name, axes).get("per") or ()
    if not set(per) <= places.keys():
        return str(places[name])
    numbers = (f"{places[one]:0{max(3, len(str(_find_axis(one, axes)['count'])))}}" for one in per)
    items = lists.get(f"{name}@{'_'.join(numbers)}", ())
    return items[places[name] - 1] if places[name] <= len(items) else str(places[name])


def _find_axis(name: str, axes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((axis for axis in axes if axis["name"] == name), {"count": 0})
