"""Errors in the words of the Python API: arguments where the command line has options."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from bactrian.errors import BactrianError

_NEGATED = re.compile(r"(?<![\w-])--no-([a-z][a-z-]*)")
_WITH_VALUE = re.compile(r"(?<![\w-])--([a-z][a-z-]*)[ =]([A-Z][A-Z/]+|[\d'\"][^\s,;)]*)")
_SETTING = re.compile(r"(?<![\w-])--set ([a-z_]+(?:\.[a-z_]+)?)=([^\s,;)]*[^\s,;).])")
_ALONE = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
_COMMAND = re.compile(r"`bactrian [^`]*`|\bbactrian [a-z]+ .*")
# Options without a value: their arguments are True.
_SWITCHES = frozenset(
    """acknowledge-misuse equal-roles forecast keep-tasks overwrite plan retry-failed run-code thoughts
    unfinished""".split()
)
_OTHER_NAMES = {
    "set": "a setting of bactrian.recipe",
    "for": "tool",
    "help": "help(bactrian)",
    "reply-length": "max_tokens of `parameters`",
    "reasoning-effort": "reasoning_effort of `parameters`",
}


@contextmanager
def use_python_words() -> Generator[None]:
    """Let errors name arguments and not options of the command line. Whole commands in them stay as they are.

    Use it as a decorator of public functions that only Python calls.
    """
    try:
        yield
    except BactrianError as error:
        error.what = rename_options(error.what)
        error.where = rename_options(error.where) if error.where else error.where
        error.next = rename_options(error.next) if error.next else error.next
        error.args = (error.what, *error.args[1:])
        raise


def rename_options(text: str) -> str:
    """Return ``text`` with ``max_tokens`` for ``--max-tokens``, and ``specify=False`` for ``--no-specify``."""
    parts = re.split(f"({_COMMAND.pattern})", text)
    return "".join(part if number % 2 else _rename(part) for number, part in enumerate(parts))


def _rename(text: str) -> str:
    text = _SETTING.sub(lambda match: _write_setting(match[1], match[2]), text)
    text = text.replace("--fork NEW", "run=NEW and origin=RUN")
    text = _NEGATED.sub(lambda match: f"{_name(match[1])}=False", text)
    text = _WITH_VALUE.sub(lambda match: f"{_name(match[1])}={match[2]}", text)
    return _ALONE.sub(lambda match: f"{_name(match[1])}{'=True' * (match[1] in _SWITCHES)}", text)


def _write_setting(key: str, value: str) -> str:
    """Return how Python gives a setting of a recipe: ``bactrian.recipe(NAME, critic={"role": ROLE})``."""
    table, _, field = key.partition(".")
    return (
        f'bactrian.recipe(NAME, {table}={{"{field}": {value}}})'
        if field
        else f"bactrian.recipe(NAME, {table}={value})"
    )


def _name(option: str) -> str:
    return _OTHER_NAMES.get(option, option.replace("-", "_"))
