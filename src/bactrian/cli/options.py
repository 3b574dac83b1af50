"""Options that several verbs have in common."""

from __future__ import annotations

from typing import Any

import typer


def declare_option(names: str, text: str, **more: Any) -> Any:
    """An option that ``BACTRIAN_…`` in the environment mirrors."""
    variable = names.split("/", maxsplit=1)[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(names, envvar=f"BACTRIAN_{variable}", help=text, show_envvar=False, **more)
