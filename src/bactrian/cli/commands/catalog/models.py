"""``bactrian models``: models and providers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

from rich.cells import cell_len

from bactrian.cli.options import declare_option
from bactrian.cli.terminal.console import PrintableConsole, open_output
from bactrian.cli.view.facts import write_labelled
from bactrian.files.plugins import list_plugins
from bactrian.language.escape import to_json, to_printable
from bactrian.models.plugins import PLUGINS
from bactrian.models.providers import FILE, Provider, find_config_folder, load_providers
from bactrian.models.registry import MODEL_NAMES

_CONSTRAINED = {"schema": "JSON schema", "grammar": "grammar", "none": "nothing"}
_GAP = 2
"""Cells between two columns."""


def models(
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """List models and providers, whether their keys are set, and what constrains their replies."""

    rows = list(load_providers().values())
    own = find_config_folder() / FILE
    if json:
        found = {
            "names": dict(MODEL_NAMES),
            "providers": [_describe(row) for row in rows],
            "packages": list(list_plugins(PLUGINS)),
            "own_rows": str(own),
        }
        sys.stdout.write(to_json(found) + "\n")
        return

    kinds = {f"{kind}:NAME": "an installed package" for kind in list_plugins(PLUGINS)}
    names = {**MODEL_NAMES, **kinds}
    output = open_output()
    write_labelled(output, names.items(), max(map(len, names)) + _GAP)
    output.print()
    write_providers(output, rows)
    output.print(f"\nRows of your own: {own}")


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
    return os.environ.get(row.address_variable or "") or row.address


def _has_key(row: Provider) -> bool:
    return bool(row.key and os.environ.get(row.key, "").strip())
