"""``bactrian recipes``, ``societies``, ``prompts`` and ``models``: what there is to choose from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from json import dumps
from typing import Annotated

from rich.cells import cell_len
from rich.table import Table

from bactrian.cli.flags import Argument
from bactrian.cli.terminal.console import PrintableConsole, open_output, write_labelled
from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins
from bactrian.models.http import hide_credentials
from bactrian.models.open import MODEL_NAMES, PLUGINS
from bactrian.models.providers import FILE, Provider, find_config_folder, load_providers
from bactrian.options import JSON, Option
from bactrian.protocol.pack import list_packs, load_pack
from bactrian.recipes.load import list_recipes, load_recipe, read_recipe_text
from bactrian.recipes.schema import find_recipe_model
from bactrian.recipes.society_file import list_societies, load_society, read_society_text
from bactrian.records.text import to_json, to_line, to_printable


def recipes(
    schema: Annotated[bool, Option("--schema", "Write the JSON schema of a recipe.")] = False,
) -> None:
    """List the recipes, or show one."""
    if schema:
        print(json.dumps(find_recipe_model().model_json_schema(), indent=2))
        return
    for name in list_recipes():
        recipe = load_recipe(name)
        size = f"{recipe.size:,}{' each' if recipe.job.later_axes else ''}"
        print(f"{name:<14}{size:>10}  {to_line(recipe.description)}")


def show_recipe(
    recipe: Annotated[str, Argument("Name of a built-in recipe, or a .toml file.")],
) -> None:
    """Print the file of a recipe, to read or to copy."""

    load_recipe(recipe)
    print(to_printable(read_recipe_text(recipe)), end="")


def societies(
    json: Annotated[bool, JSON, "Write one JSON object a line."] = False,
) -> None:
    """List the societies, or show one."""
    for name in list_societies():
        society, _ = load_society(name)
        if json:
            print(
                dumps(
                    {
                        "name": name,
                        "description": society.description,
                        "task": society.task,
                        "agents": [agent.role for agent in society.agents],
                        "stages": [stage.name for stage in society.stages],
                    },
                    ensure_ascii=False,
                )
            )
        else:
            size = (
                f"{len(society.agents)} agents, {len(society.stages)} stage{'s'[: len(society.stages) > 1]}"
            )
            print(f"{name:<16}{size:<22}{society.description}")


def show_society(
    society: Annotated[str, Argument("Name of a built-in society, or a .toml file.")],
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
) -> None:
    """Print the file of a society, to read or to copy."""
    content, _ = load_society(society)
    if json:
        print(dumps(content.model_dump(mode="json", exclude_none=True), ensure_ascii=False))
    else:
        print(read_society_text(society), end="")


def prompts() -> None:
    """List the prompt packs, or show one."""
    table = Table("pack", "hash", "what it is", box=None, pad_edge=False)
    for name in list_packs():
        pack = load_pack(name)
        table.add_row(name, pack.hash[:12], pack.description)
    open_output().print_table(table)


def show_pack(name: Annotated[str, Argument("A built-in pack, or the path of a .toml file.")]) -> None:
    """Print every template of a pack."""

    pack = load_pack(name)
    print(f"# {to_line(pack.name)} · {to_line(pack.description)}\n# sha256 {pack.hash}")
    for template, source in pack.templates.items():
        print(f"\n# {template}\n{to_printable(source).strip()}")


_CONSTRAINED = {"schema": "JSON schema", "grammar": "grammar", "none": "nothing"}
_GAP = 2  # Cells between two columns


def models(
    kind: Annotated[
        str | None, Argument("What a name begins with, such as openai or scripted. Default: all.")
    ] = None,
    json: Annotated[bool, JSON, "Write one JSON object."] = False,
) -> None:
    """List models and providers, whether their keys are set, and what constrains their replies."""

    rows = [row for row in load_providers().values() if kind in (None, row.name)]
    users_rows = find_config_folder() / FILE
    names = {name: what for name, what in MODEL_NAMES.items() if kind in (None, name.partition(":")[0])}
    packages = [package for package in list_plugins(PLUGINS) if kind in (None, package)]
    if not (rows or names or packages):
        raise InputError(
            f"No model has a name that begins with {kind!r}.",
            where="KIND",
            next="`bactrian models` lists all.",
        )
    if json:
        listing = {
            "names": names,
            "providers": [_describe(row) for row in rows],
            "packages": packages,
            "own_rows": str(users_rows),
        }
        sys.stdout.write(to_json(listing) + "\n")
        return

    names |= {f"{package}:NAME": "an installed package" for package in packages}
    output = open_output()
    if names:
        write_labelled(output, names.items(), max(map(len, names)) + _GAP)
        output.print()
    if rows:
        write_providers(output, rows)
        output.print()
    output.print(f"Rows of your own: {users_rows}" if kind is None else "More: bactrian help models.md")


def write_providers(console: PrintableConsole, rows: Sequence[Provider]) -> None:
    """Write a line for each provider; on a terminal without room for it, the address goes on a line of its own.

    No name, variable or address is ever divided, so that each can be copied.
    """
    heads = ("provider", "key", "set", "constrained by", "address")
    cells = [heads, *map(_list_facts, rows)]
    widths = [max(cell_len(row[number]) for row in cells) + _GAP for number in range(len(heads))]
    between = "\n  " if console.file.isatty() and sum(widths) - _GAP > console.width else ""
    for *facts, address in cells:
        line = "".join(
            fact + " " * (width - cell_len(fact)) for fact, width in zip(facts, widths, strict=False)
        )
        console.print(f"{line.rstrip()}{between}{address}" if between else f"{line}{address}")


def _list_facts(row: Provider) -> tuple[str, str, str, str, str]:
    key = (row.key, "yes" if _has_key(row) else "no") if row.key else ("none needed", "")
    facts = (row.name, *key, _CONSTRAINED[row.constrained_by], _address(row) or "your own")
    name, variable, is_set, constrained, address = map(to_printable, facts)
    return name, variable, is_set, constrained, address


def _describe(row: Provider) -> dict[str, object]:
    return {
        "name": row.name,
        "title": row.title,
        "address": _address(row),
        "key_variable": row.key,
        "key_set": _has_key(row),
        "constrained_by": row.constrained_by,
        "local": row.local,
        "window": row.window,
        "priced": row.prices is not None,
    }


def _address(row: Provider) -> str | None:
    address = os.environ.get(row.address_variable or "") or row.address
    return address and hide_credentials(address)


def _has_key(row: Provider) -> bool:
    return bool(row.key and os.environ.get(row.key, "").strip())
