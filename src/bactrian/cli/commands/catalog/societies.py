"""``bactrian societies``: the built-in societies."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.recipes.society import list_societies, load_society, read_society_text

app = typer.Typer(help="List the societies, or show one.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def societies(
    context: typer.Context,
    json: Annotated[bool, declare_option("--json", "Write one JSON object a line.")] = False,
) -> None:
    """List the built-in societies, with their agents and stages."""
    if context.invoked_subcommand:
        return
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


@app.command()
def show(
    society: Annotated[str, typer.Argument(help="Name of a built-in society, or a .toml file.")],
    json: Annotated[bool, declare_option("--json", "Write one JSON object.")] = False,
) -> None:
    """Print the file of a society, to read or to copy."""
    content, _ = load_society(society)
    if json:
        print(dumps(content.model_dump(mode="json", exclude_none=True), ensure_ascii=False))
    else:
        print(read_society_text(society), end="")
