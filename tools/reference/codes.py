"""The pages of exit codes and of environment variables. Both fail at a code or variable of ours that they do not explain."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import bactrian
from bactrian import errors
from bactrian.cli.run_async import INTERRUPTED, SOME_FAILED, TERMINATED
from bactrian.cli.terminal.process import READER_LEFT
from bactrian.models.providers import load_providers

_CODES = {
    0: ("The work is done.", ""),
    1: ("It failed.", "Read the message; the same command resumes a run."),
    2: (
        "A wrong argument, or a file of yours that cannot be used.",
        "The message names the fix. Nothing was changed.",
    ),
    3: (
        "The budget is reached, or requests are out in batches.",
        "Everything is stored. The same command continues: with a larger `--budget`, or later, when batches have ended.",
    ),
    4: (
        "It ended, but some parts failed or are missing.",
        "`bactrian failures RUN` names them; `--retry-failed` retries them.",
    ),
    5: (
        "Other processes have taken over the jobs of this one, which was not heard of for longer than its lease, or a replica of the database has taken its place.",
        "Everything is stored. The same command joins the shared run again.",
    ),
    130: ("Ctrl-C.", "Everything is stored. The same command resumes."),
    141: ("The reader of the output left, as in `bactrian show RUN \\| head`.", ""),
    143: (
        "The process was told to end, or its terminal was closed.",
        "Everything is stored. The same command resumes.",
    ),
}
_VARIABLES = {
    "BACTRIAN_CACHE": "folder of the built-in model's weights",
    "BACTRIAN_CONFIG": "folder of your own `providers.toml`",
    "BACTRIAN_DATA": "folder in which `play` keeps sessions, and in which `bactrian runs` looks; it also has the list of "
    "recent runs, which is otherwise in the user's folder for states (`XDG_STATE_HOME`)",
    "BACTRIAN_DEBUG": "any text: errors show their traceback (`--debug`)",
    "BACTRIAN_TIER": "the tier of the [sandbox](../sandbox.md) in which commands run code, such as `podman:python:3.12-slim`",
    "EDITOR": "editor in which a person edits a proposal (`--critic human`)",
    "FORCE_COLOR": "any text: colour even where output is not a terminal",
    "HF_ENDPOINT": "address of the Hugging Face hub",
    "HF_HOME": "folder of downloaded models",
    "HF_HUB_CACHE": "the same, for the cache alone",
    "HF_TOKEN": "key of the Hugging Face hub and of its router",
    "HTTPS_PROXY": "proxy for addresses that begin with https; never used for this computer",
    "HTTP_PROXY": "proxy for addresses that begin with http; never used for this computer",
    "NO_COLOR": "any text: no colour",
    "NO_PROXY": "hosts that are reached without a proxy",
    "VISUAL": "the same as EDITOR, and takes precedence",
}


def write_exit_codes() -> str:
    """Return the page of exit codes."""
    raised: dict[int, list[str]] = {}
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.BactrianError):
            raised.setdefault(value.exit_code, [])
            if {value, *value.__bases__} & {errors.BactrianError}:
                raised[value.exit_code].append(f"`{name}`")
    used = {0, 4, SOME_FAILED, INTERRUPTED, TERMINATED, READER_LEFT, *raised}
    if used != _CODES.keys():
        raise ValueError(f"Exit codes differ from those of the page: {sorted(used ^ _CODES.keys())}")
    rows = [
        f"| {code} | {what} | {then} | {', '.join(raised.get(code, ())) or '–'} |"
        for code, (what, then) in _CODES.items()
    ]
    return "\n".join(
        (
            "# Exit codes\n",
            "This page is written from the program. An error is one to three lines on standard error: what happened, where, and what to do next.",
            "`--debug` before the command, or `-v` after it, shows the traceback.\n",
            "| code | meaning | what to do | errors in Python |\n|---|---|---|---|",
            *rows,
            "",
            "In Python the same errors are raised; all are `bactrian.BactrianError`, with `what`, `where` and `next`.\n",
        )
    )


def write_variables() -> str:
    """Return the page of environment variables."""
    source = "\n".join(path.read_text("utf-8") for path in Path(bactrian.__file__).parent.rglob("*.py"))
    found = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z][A-Z_]+)\"", source))
    rows = load_providers().values()
    of_options = {"BACTRIAN_BASE_URL", "BACTRIAN_CRITIC_MODEL"}
    ours = {name for name in found if name.startswith("BACTRIAN_")}
    unknown = ours - _VARIABLES.keys() - of_options
    if unknown:
        raise ValueError(f"The page does not explain {', '.join(sorted(unknown))}.")
    keys = [
        f"| {row.title} | `{row.name}` | {f'`{row.key}`' if row.key else '–'} | "
        f"{f'`{row.address_variable}`' if row.address_variable else '–'} |"
        for row in rows
    ]
    others = [f"| `{name}` | {text} |" for name, text in _VARIABLES.items()]
    return "\n".join(
        (
            "# Environment variables\n",
            "This page is written from the program. A file `.env` in the working folder sets variables that the environment lacks, and a message",
            "says so. It cannot set proxies, certificates or configuration folders. Keys are never printed, logged or stored.\n",
            "## Options\n",
            "The variable of an option is its name in capitals, with `BACTRIAN_` before it and `_` for `-`: `BACTRIAN_MODEL` sets `--model`, and",
            "`BACTRIAN_MAX_MESSAGES` sets `--max-messages`. An option on the command line takes precedence.\n",
            "## Providers\n",
            "| provider | name | key | address |\n|---|---|---|---|",
            *keys,
            "",
            "[Models](../models.md) says which key goes to which address.\n",
            "## Others\n",
            "| variable | meaning |\n|---|---|",
            *others,
            "",
        )
    )
