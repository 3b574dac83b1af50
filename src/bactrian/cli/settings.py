"""Settings: options that a command takes as ``--set KEY=VALUE`` or from a .toml file, with the keys of a recipe."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from bactrian.cli.verbs import HELP
from bactrian.errors import InputError, explain_os_errors

_OF_THE_COMMAND = "endpoint."  # The settings of a command with a recipe that are not the recipe's
_LARGEST = 256 * 1024


class HelpOption(click.Option):
    """An option that says what to do instead of giving it twice, and which setting it is."""

    def __init__(self, names: list[str], *, again: str = "", key: str = "", **more: Any) -> None:
        super().__init__(names, **more)
        self.again = again
        self.key = key

    @property
    def flag(self) -> str:
        """Its long name."""
        return max(self.opts, key=len)


def assign_keys(params: Iterable[click.Parameter], command: str) -> None:
    """Give the options of a command their keys, and hide those that are settings only."""
    moved: dict[str, str] = HELP["settings"].get(command, {})
    flags: dict[str, str] = HELP["flags"].get(command, {})
    for param in params:
        if moved and isinstance(param, HelpOption):
            name = param.flag.removeprefix("--")
            param.hidden = param.hidden or bool(param.key) or name in moved
            param.key = param.key or moved.get(name) or flags.get(name, "")


def list_settings(params: Iterable[click.Parameter]) -> dict[str, HelpOption]:
    """Return the options that are settings, by key."""
    return {param.key: param for param in params if isinstance(param, HelpOption) and param.key}


def list_given() -> dict[str, str]:
    """Return how the options of the current command are spelt that it was given, by their names among its parameters.

    What the environment sets for all commands is left out.
    """
    ctx = click.get_current_context()
    return {
        str(param.name): f"--set {param.key}" if param.hidden else param.flag
        for param in ctx.command.params
        if isinstance(param, HelpOption)
        and param.name != "settings"
        and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }


def refuse_flag(ctx: click.Context, option: HelpOption, value: Any) -> InputError:
    """Return the error for a flag that is a setting: it names the setting, with the value that was given."""
    if option.is_flag:
        written = "true"
    elif not isinstance(value, list):
        written = str(value)
    elif option.key.endswith(".body"):
        written = f"{{{', '.join(cast('list[str]', value))}}}"
    else:
        values = cast("list[str]", value)
        written = json.dumps(values, ensure_ascii=False) if len(values) > 1 else values[0]
    return InputError(
        f"This is a setting of `{ctx.command_path}`, and no option.",
        where=option.flag,
        next=f"Write --set {shlex.quote(f'{option.key}={written}')}; `bactrian help settings` lists all settings.",
    )


def apply_settings(ctx: click.Context) -> None:
    """Put the values of ``--set`` into the options that they are for.

    A setting on the command line takes precedence over the environment, and that over a file. What belongs to a recipe
    stays in ``ctx.params["settings"]``.

    Raises:
        InputError: a setting does not exist, is set twice, or its value does not fit.
    """
    options = list_settings(ctx.command.params)
    if not options or not ctx.params.get("settings"):
        return
    rest: list[str] = []
    seen: dict[str, bool] = {}
    for text in cast("Iterable[str]", ctx.params["settings"]):
        in_file = text.endswith(".toml") and "=" not in text
        for key, value, written in _read_file(text, options) if in_file else _read_line(text):
            if "recipe" in ctx.params and not key.startswith(_OF_THE_COMMAND):
                rest.append(written)
                continue
            option = _find_option(key, options, text if in_file else "--set")
            source = ctx.get_parameter_source(str(option.name))
            in_earlier_file = seen.get(option.key, False)
            is_given = source is ParameterSource.COMMANDLINE and not in_earlier_file
            if is_given and not in_file:
                raise InputError(f"{option.key!r} is set twice.", where="--set", next="Set it once.")
            if not (in_file and (is_given or source is ParameterSource.ENVIRONMENT)):
                where = f"{text}: {option.key}" if in_file else f"--set {option.key}"
                ctx.params[str(option.name)] = _convert(ctx, option, value, where)
                ctx.set_parameter_source(str(option.name), ParameterSource.COMMANDLINE)
                seen[option.key] = in_file
    ctx.params["settings"] = tuple(rest)


def _read_line(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the key, the value and the text of ``KEY=VALUE``."""
    from bactrian.recipes.load import parse_value

    key, equals, written = text.partition("=")
    if not equals or not key.strip():
        raise InputError(
            f"{text!r} is neither KEY=VALUE nor a .toml file.",
            where="--set",
            next="For example: --set parameters.temperature=0.2; `bactrian help settings` lists the keys.",
        )
    yield key.strip(), parse_value(written.strip()), text


def _read_file(path: str, options: Mapping[str, HelpOption]) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys and values of a file, each with its text as ``KEY=VALUE``."""
    from bactrian.files.toml import FileKind, decode

    kind = FileKind("settings file", InputError, "`bactrian help settings`", "settings")
    name = "Name a .toml file, or KEY=VALUE."
    with explain_os_errors("The settings cannot be read", path, name), Path(path).open("rb") as file:
        source = decode(path, file.read(_LARGEST + 1), kind, os.fstat(file.fileno()).st_size)

    def flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, str]]:
        for name, value in table.items():
            key = f"{prefix}{name}"
            if isinstance(value, dict) and key not in options:
                yield from flatten(cast("dict[str, Any]", value), f"{key}.")
            else:
                yield key, value, f"{key}={json.dumps(value, ensure_ascii=False, default=str)}"

    yield from flatten(source.table(), "")


def _find_option(key: str, options: Mapping[str, HelpOption], where: str) -> HelpOption:
    """Return the option of this key; its table may be left out where no other has such a key.

    Raises:
        InputError: there is none.
    """
    from bactrian.files.toml import suggest_name

    near = [full for full in options if full == key] or [
        full for full in options if full.partition(".")[2] == key
    ]
    if len(near) != 1:
        short = (full.partition(".")[2] for full in options)
        hint = f" Write {' or '.join(near)}." if near else suggest_name(key, [*options, *short])
        raise InputError(
            f"There is no setting {key!r}.{hint}",
            where=where,
            next="`bactrian help settings` lists the settings.",
        )
    return options[near[0]]


def _convert(ctx: click.Context, option: HelpOption, value: Any, where: str) -> Any:
    """Return ``value`` as the option has it. Parameters of the sampling are checked where they are read.

    Raises:
        InputError: it does not fit.
    """
    if option.key.startswith("parameters."):
        return value
    if option.is_flag:
        if isinstance(value, bool):
            return value
        raise InputError(f"{value!r} is neither true nor false.", where=where, next="Write true or false.")
    values = cast("list[Any]", value if isinstance(value, list) else [value])
    if any(isinstance(each, (bool, dict, list)) for each in values) or (
        isinstance(value, list) and not option.multiple
    ):
        raise InputError(
            f"{value!r} does not fit.", where=where, next="`bactrian help settings` says what it takes."
        )
    try:
        converted = tuple(option.type.convert(str(each), option, ctx) for each in values)
    except click.BadParameter as error:
        from bactrian.cli.help_form import explain_value

        raise explain_value(error, option, where) from error
    return converted if option.multiple else converted[0]
