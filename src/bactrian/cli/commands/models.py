"""``bactrian models``: what can answer."""

from __future__ import annotations

from rich.table import Table

from bactrian.cli.terminal.console import open_output
from bactrian.models.registry import MODEL_NAMES


def models() -> None:
    """List the kinds of model names, and what each stands for."""

    table = Table("model", "what answers", box=None, pad_edge=False)
    for name, meaning in MODEL_NAMES.items():
        table.add_row(name, meaning)
    open_output().print(table)
