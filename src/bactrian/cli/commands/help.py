"""``bactrian help``: the help of a command."""

from __future__ import annotations

from typing import Annotated

from bactrian.cli.flags import Argument


def show_help(
    verb: Annotated[
        list[str] | None,
        Argument(metavar="COMMAND", help="Words of a command. Default: all commands."),
    ] = None,
) -> None:
    """Show the help of a command."""
    from bactrian.cli.help_form import build_app

    build_app()([*(verb or ()), "--help"], prog_name="bactrian")
