"""The page of the command line: every command with its options and examples, from what ``--help`` is made of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from bactrian.cli.help_form import build_app, list_options
from bactrian.cli.verbs import VERBS, list_verbs

_HEAD = """# Command line

This page is written from the program: `bactrian COMMAND --help` shows the same.

- **Output.** Results go to standard output, progress and messages to standard error. With `--json`, standard output is JSON and nothing else.
- **Precedence.** An option takes precedence over the [environment](environment.md), and that over the recipe. The variable of an
  option is its name in capitals: `BACTRIAN_MODEL` sets `--model`.
- **Settings**, options that are not flags of `play` and `generate`, are on [a page of their own](settings.md).
- **Exit codes** tell programs what happened: [exit codes](exit-codes.md).
- **Names of models**, such as `openai:gpt-4o-mini` or `local`: [models](../models.md).
- `eval "$(_BACTRIAN_COMPLETE=bash_source bactrian)"` in `~/.bashrc` lets the shell complete commands and options; zsh and fish have
  `zsh_source` and `fish_source`.
"""


def write_commands() -> str:
    """Return the page."""
    os.environ.pop("BACTRIAN_MODEL", None)
    root: Any = build_app()
    context = _make_context(root, "bactrian", None)
    parts = [_HEAD, "## `bactrian`\n", *_write_options(root, context)]
    title = ""
    for name, verb in list_verbs().items():
        if verb.hidden:
            continue
        if verb.section != title:
            title = verb.section
            parts.append(f"## {title}\n")
        parts += _write_command(root.get_command(context, name), name, context, 3)
    return "\n".join(parts)


def _make_context(command: Any, name: str, parent: Any) -> Any:
    return command.make_context(name, [], parent=parent, resilient_parsing=True, max_content_width=200)


def _write_command(command: Any, name: str, parent: Any, level: int) -> Iterator[str]:
    context = _make_context(command, name, parent)
    yield f"{'#' * level} `{context.command_path}`\n"
    yield _join_paragraphs(command.help or "") + "\n"
    subcommands = getattr(command, "list_commands", None)
    if subcommands is None:
        yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield from _write_options(command, context)
    words = context.command_path.partition(" ")[2]
    if examples := VERBS[words].examples:
        yield "```sh\n" + "\n".join(examples) + "\n```\n"
    for sub in subcommands(context) if subcommands else ():
        yield from _write_command(command.get_command(context, sub), sub, context, level + 1)


def _write_options(command: Any, context: Any) -> Iterator[str]:
    for title, rows in list_options(command.get_params(context), command.name or "").items():
        if title != "Help":
            yield f"| {title.lower()} | |\n|---|---|"
            shown = ((_escape(names), _escape(text).replace("<", "&lt;")) for names, text in rows)
            yield "\n".join(f"| `{names}` | {text} |" for names, text in shown) + "\n"


def _join_paragraphs(text: str) -> str:
    paragraphs = text.replace("\b", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _escape(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
