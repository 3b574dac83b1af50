"""``bactrian models``: models and providers."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from rich.table import Table

from bactrian.cli.options import declare_option
from bactrian.cli.terminal.console import open_output
from bactrian.files.plugins import list_plugins
from bactrian.language.escape import to_json
from bactrian.models.providers import FILE, Provider, find_config_folder, load_providers
from bactrian.models.registry import MODEL_NAMES, PLUGINS

_CONSTRAINED = {"schema": "JSON schema", "grammar": "grammar", "none": "nothing"}


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

    names = Table("model", "what answers", box=None, pad_edge=False)
    for name, meaning in (
        *MODEL_NAMES.items(),
        *((f"{kind}:NAME", "an installed package") for kind in list_plugins(PLUGINS)),
    ):
        names.add_row(name, meaning)
    table = Table("provider", "key", "set", "constrained by", box=None, pad_edge=False)
    table.add_column("address", overflow="fold")
    for row in rows:
        key = (row.key, "yes" if _has_key(row) else "no") if row.key else ("none needed", "")
        table.add_row(row.name, *key, _CONSTRAINED[row.constrained_by], _address(row) or "your own")
    output = open_output()
    output.print(names)
    output.print()
    output.print(table)
    output.print(f"\nRows of your own: {own}")


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
