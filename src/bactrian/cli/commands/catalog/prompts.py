"""``bactrian prompts``: the prompt packs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from bactrian.cli.terminal.console import open_output, to_printable
from bactrian.language.escape import to_line
from bactrian.prompts.pack import list_packs, load_pack

app = typer.Typer(help="List the prompt packs, or show one.", invoke_without_command=True)


@app.callback()
def prompts(context: typer.Context) -> None:
    """List the built-in prompt packs with the first digits of their hashes."""
    if context.invoked_subcommand is not None:
        return

    table = Table("pack", "hash", "what it is", box=None, pad_edge=False)
    for name in list_packs():
        pack = load_pack(name)
        table.add_row(name, pack.hash[:12], pack.description)
    open_output().print_table(table)


@app.command()
def show(name: Annotated[str, typer.Argument(help="A built-in pack, or the path of a .toml file.")]) -> None:
    """Print every template of a pack."""

    pack = load_pack(name)
    print(f"# {to_line(pack.name)} · {to_line(pack.description)}\n# sha256 {pack.hash}")
    for template, source in pack.templates.items():
        print(f"\n# {template}\n{to_printable(source).strip()}")
