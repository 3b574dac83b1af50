"""The commands by their words, and the overview of all. Nothing slow is imported: people read ``--help`` often."""

from __future__ import annotations

import shutil
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

HELP = tomllib.loads(Path(__file__).with_name("help.toml").read_text("utf-8"))
# The options before a command.
OPTIONS = {
    "--version": "Show the version and stop.",
    "--debug": "Show the traceback of an error.",
}


class Verb(NamedTuple):
    """A command."""

    # `module:function`, in `bactrian.cli.commands`. Empty for a command that only has subcommands.
    function: str = ""
    summary: str = ""
    section: str = ""  # Its section of the overview; empty for a subcommand
    examples: tuple[str, ...] = ()
    hidden: bool = False  # True for a second name of a command, which the help leaves out


# All commands by their words, such as `recipes show`.
VERBS = {words: Verb(**row) for words, row in HELP["verbs"].items()}


def list_verbs(parent: str = "") -> dict[str, Verb]:
    """Return the commands below ``parent`` by their last word."""
    return {
        words.rpartition(" ")[2]: verb for words, verb in VERBS.items() if words.rpartition(" ")[0] == parent
    }


def write_overview() -> str:
    """Return the help of the program: the commands in their sections, and the options before a command."""
    width = max(min(shutil.get_terminal_size().columns, 80) - 2, 50)
    sections: dict[str, dict[str, str]] = {}
    for name, verb in list_verbs().items():
        if not verb.hidden:
            sections.setdefault(verb.section, {})[name] = verb.summary
    indent = max(len(name) for rows in sections.values() for name in rows) + 4
    sections |= {"Options": OPTIONS, "Help": {"-h, --help": "Show this message and exit."}}
    lines = ["Usage: bactrian [OPTIONS] COMMAND [ARGS]...", "", "  " + HELP["about"]]
    for title, rows in sections.items():
        lines += ["", f"{title}:"]
        for name, text in rows.items():
            first = f"  {name}".ljust(indent)
            lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * indent)
    return "\n".join(lines)
