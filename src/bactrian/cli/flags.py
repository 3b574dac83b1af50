"""Commands from functions: every parameter becomes an argument or an option of the command line, by its annotation."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from enum import EnumType
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Unpack, cast, get_args, get_origin

import click

from bactrian.cli.help_form import HELP_NAMES, HelpArgument, VerbCommand, VerbGroup
from bactrian.cli.settings import HelpOption
from bactrian.errors import InputError
from bactrian.options import Option, SamplingSpec, list_options, read_option

# Short names of options, the same in every command.
SHORT_NAMES = {"--model": "-m", "--run": "-r", "--out": "-o", "--quiet": "-q", "--count": "-n"}
SPEAKERS = ("assistant", "user", "task", "critic")


@dataclass(frozen=True, slots=True)
class Argument:
    """What an annotation says about an argument."""

    help: str = ""
    metavar: str | None = None
    shown: str = ""  # What the help shows as the default
    check: Callable[[Any], Any] | None = None  # Returns the value to use


@dataclass(frozen=True, slots=True)
class SamplingFlags:
    """Flags of sampling parameters: for all agents, and for each of ``agents``. Without ``agents``, there is one agent.

    The parameter receives them as a table of a recipe: ``{"top_p": 0.5, "user": {"temperature": 0.2}}``. They are
    settings of a command that has ``--set``.
    """

    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldsOf:
    """The options of a dataclass. The parameter receives those that were given, by the names of the fields."""

    declaration: type


def find_run_file(path: Path) -> Path:
    """Return the run that an argument names: a file, or a name in the data folder."""
    from bactrian.api.known_runs import check_exists
    from bactrian.store import find_run

    run = find_run(path)
    check_exists(run)
    return run


def find_run_files(paths: list[Path] | None) -> list[Path]:
    """Return the runs that an argument names."""
    return [find_run_file(path) for path in paths or ()]


# The argument of every command that reads a run.
RunArgument = Annotated[
    Path,
    Argument("The run: a file, or a name in `bactrian runs`.", metavar="RUN", check=find_run_file),
]


# The argument of commands that read several parts as one run.
RunsArgument = Annotated[
    list[Path],
    Argument(
        "The run: a file, or a name in `bactrian runs`. Several are the parts of one run.",
        metavar="RUN...",
        check=find_run_files,
    ),
]


_LIVE = ("generate", "pull", "push", "resume", "status")
"""The commands that work on a shared run itself; others read a copy, which is made and refreshed before."""


class _RunPath(click.Path):
    """A path, or the address of a shared run."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from bactrian.store.locations import is_address, locate_file, locate_run

        if not is_address(value):
            return super().convert(value, param, ctx)
        if ctx is not None and ctx.info_name in _LIVE:
            return locate_run(value)
        if param is not None and "--run" in param.opts:
            return locate_file(value)
        from bactrian.api.known_runs import find_copy

        return find_copy(value)


class _WholeText(click.ParamType[str]):
    """A text that is not divided at its spaces if it comes from the environment."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)

    def split_envvar_value(self, rv: str) -> tuple[str, ...]:
        return (rv,)


_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*", re.IGNORECASE | re.ASCII)


def _read_number(kind: type[int] | type[float], written: str | float) -> float:
    """Return the number that is written; Python would also take digits of other scripts and underscores.

    Raises:
        ValueError: it is none.
    """
    if isinstance(written, str) and not _NUMBER.fullmatch(written):
        raise ValueError
    return kind(written)


class _Number(click.ParamType[float]):
    """A number within the limits of an option."""

    def __init__(self, kind: type[int] | type[float], option: Option) -> None:
        self.name = "integer" if kind is int else "float"
        self.kind = kind
        self.option = option
        self.min, self.max = option.min, option.max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        what = "a whole number" if self.kind is int else "a number"
        try:
            number = _read_number(self.kind, value)
            if not isfinite(number):
                raise ValueError
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not {what}.", param, ctx)
        above, low, high = self.option.above, self.option.min, self.option.max
        # Written so that what is not a number at all is refused, too.
        if above is not None and not number > above:
            self.fail(f"{value} is not {what} above {above:g}.", param, ctx)
        if (low is not None and not number >= low) or (high is not None and not number <= high):
            limits = f"of at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            self.fail(f"{value} is not {what} {limits}.", param, ctx)
        return number


def build_group(function: Callable[..., None] | None, words: str, text: str) -> VerbGroup:
    """Return a command with subcommands. Without one of them, ``function`` does its work if there is one."""
    params, call = _read_signature(function) if function else ([], None)

    def callback(**values: Any) -> None:
        if call is not None and click.get_current_context().invoked_subcommand is None:
            call(values)

    return VerbGroup(
        words,
        params=params,
        callback=callback,
        help=text,
        invoke_without_command=call is not None,
        no_args_is_help=call is None,
    )


def build_command(function: Callable[..., None], name: str, *, hidden: bool = False) -> VerbCommand:
    """Return the command that calls ``function`` with what its parameters are given on the command line."""
    params, call = _read_signature(function)

    def callback(**values: Any) -> None:
        call(values)

    return VerbCommand(
        name,
        params=params,
        callback=callback,
        help=inspect.getdoc(function),
        hidden=hidden,
        context_settings=HELP_NAMES,
    )


class _Flags(NamedTuple):
    """The flags of one parameter of a function, and the value that they make."""

    name: str
    params: list[click.Parameter]
    collect: Callable[[dict[str, Any]], Any]


def _read_signature(
    function: Callable[..., None],
) -> tuple[list[click.Parameter], Callable[[dict[str, Any]], None]]:
    """Return the parameters for click, and what calls ``function`` with their values."""
    parts: list[_Flags] = []
    keywords: list[_Flags] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind: Any = parameter.annotation
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            assert get_origin(kind) is Unpack
            keywords += _read_group(get_args(kind)[0])
        else:
            parts.append(_read_parameter(parameter.name, kind, parameter.default))

    def call(values: dict[str, Any]) -> None:
        arguments = {part.name: part.collect(values) for part in parts}
        options = {part.name: part.collect(values) for part in keywords}
        function(**arguments, **{name: value for name, value in options.items() if value is not None})

    params = [param for part in (*parts, *keywords) for param in part.params]
    taken: set[str] = set()
    for param in params:  # Of several options with the same letter, the first has it.
        param.opts = [name for name in param.opts if name not in taken]
        taken.update(param.opts)
    return params, call


def _read_parameter(name: str, kind: Any, default: Any) -> _Flags:
    if isinstance(kind, type) and is_dataclass(kind):
        fields, make = _read_group(kind), cast("Callable[..., object]", kind)

        def build(values: dict[str, Any]) -> object:
            return make(**{field.name: field.collect(values) for field in fields})

        return _Flags(name, [param for field in fields for param in field.params], build)
    declared = next((part for part in get_args(kind) if isinstance(part, _DECLARATIONS)), None)
    if isinstance(declared, SamplingFlags):
        return _read_sampling(name, declared.agents)
    if isinstance(declared, FieldsOf):
        group = [
            _read_option(
                each.name,
                each.kind,
                None,
                replace(
                    each.option, shown=each.option.shown or _write_default(each.option.default, each.option)
                ),
                f"{name}_{each.name}",
            )
            for each in list_options(declared.declaration)
        ]

        def collect(values: dict[str, Any]) -> dict[str, Any]:
            collected = {part.name: part.collect(values) for part in group}
            return {key: value for key, value in collected.items() if value is not None}

        return _Flags(name, [param for part in group for param in part.params], collect)
    if isinstance(declared, Argument):
        hint = get_args(kind)[0]
        taken = get_args(hint)[0] if isinstance(hint, UnionType) else hint
        return _read_argument(name, taken, default, declared)
    read = read_option(kind)
    assert read is not None, f"{name} is neither an argument nor an option"
    taken, option = read
    if default is inspect.Parameter.empty and option.default is not None:
        default = option.default
    return _read_option(name, taken, default, option)


_DECLARATIONS = (Option, Argument, SamplingFlags, FieldsOf)


def _read_group(declaration: type) -> list[_Flags]:
    """Return the options of a TypedDict or a dataclass."""
    return [
        _read_option(
            each.name,
            each.kind,
            inspect.Parameter.empty if each.required else each.option.default,
            each.option,
        )
        for each in list_options(declaration)
    ]


def _read_argument(name: str, kind: Any, default: Any, argument: Argument) -> _Flags:
    several = get_origin(kind) is list
    required = default is inspect.Parameter.empty
    param = HelpArgument(
        [name],
        description=argument.help,
        shown=argument.shown,
        type=_choose_type(get_args(kind)[0] if several else kind),
        nargs=-1 if several else 1,
        required=required,
        metavar=argument.metavar,
    )

    def collect(values: dict[str, Any]) -> Any:
        value = values[name]
        if value is None or value == ():
            return argument.check(None) if several and argument.check else (None if required else default)
        value = list(value) if several else value
        return value if argument.check is None else argument.check(value)

    return _Flags(name, [param], collect)


def _read_option(name: str, kind: Any, default: Any, option: Option, key: str = "") -> _Flags:
    """Return the flag of ``option``, with the value that it makes; ``key`` is its name among those of the command."""
    several = get_origin(kind) in (list, tuple) or kind is list
    required = default is inspect.Parameter.empty
    long = option.flag.partition("/")[0]
    letter = option.short or SHORT_NAMES.get(long)
    key = key or name
    is_flag = kind is bool
    param = HelpOption(
        [key, *([letter] if letter else []), option.flag],
        type=None if is_flag else _choose_type(get_args(kind)[0] if several else kind, option),
        is_flag=is_flag,
        multiple=several or bool(option.joint),
        required=required,
        # What was not given is None, so that the function's own default applies; the help shows that default.
        # With a default, even None, click would take a required option as given.
        **cast("dict[str, Any]", {} if required else {"default": None}),
        show_default=option.shown or _write_default(default, option) or None,
        help=option.help,
        metavar=option.metavar or None,
        envvar=name_variable(long) if option.variable and long.startswith("--") else None,
        again=option.again,
    )

    def collect(values: dict[str, Any]) -> Any:
        value = values[key]
        if value is None or value == ():
            return None if required else default
        if option.joint:
            return option.joint.join(value)
        if isinstance(kind, EnumType):
            value = kind(value)
        return list(value) if several else value

    return _Flags(name, [param], collect)


def name_variable(flag: str) -> str:
    """Return the variable of the environment that sets ``flag``."""
    return f"BACTRIAN_{flag.removeprefix('--').replace('-', '_').upper()}"


def _write_default(default: Any, option: Option) -> str:
    if default is inspect.Parameter.empty or default is None or default is False or default in ("", (), []):
        return ""
    if default is True:
        return option.flag.partition("/")[0].removeprefix("--")
    return f"{default:g}" if isinstance(default, float) else str(getattr(default, "value", default))


def _choose_type(kind: Any, option: Option | None = None) -> click.ParamType[Any]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return click.Choice([str(value) for value in get_args(kind)])
    if isinstance(kind, EnumType):
        return click.Choice([str(member) for member in kind])
    if kind is Path:
        return _RunPath(path_type=Path)
    if kind in (int, float):
        return _Number(kind, option or Option("", ""))
    return _WholeText()


# Flags of sampling parameters.


def _read_sampling(name: str, agents: tuple[str, ...]) -> _Flags:
    declared = list_options(SamplingSpec)
    # A command has a --seed for all agents already.
    flags = [(None, each) for each in declared if each.name != "seed"]
    flags += [(agent, each) for agent in agents for each in declared]
    params: list[click.Parameter] = []
    for agent, each in flags:
        flag = each.option.flag if agent is None else f"--{agent}-{each.option.flag.removeprefix('--')}"
        text = each.option.help
        if each.name == "temperature":
            text += " The value none omits the parameter, also in the options below."
        if not agents:
            text = text.replace(" of all agents", "").replace(" of all requests", " of the request")
        params.append(
            HelpOption(
                [f"{name}_{agent or 'all'}_{each.name}", flag],
                key=f"parameters.{agent}.{each.name}" if agent else f"parameters.{each.name}",
                type=_WholeText(),
                multiple=each.name == "body",
                help=text,
                envvar=name_variable(flag),
            )
        )

    def collect(values: dict[str, Any]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for (agent, each), param in zip(flags, params, strict=True):
            written = values[str(param.name)]
            if written is not None and written != ():
                sampling = table if agent is None else table.setdefault(agent, {})
                sampling[each.name] = _read_value(each.kind, written)
        return table

    return _Flags(name, params, collect)


def _read_value(kind: Any, written: object) -> object:
    """Return a number if the parameter takes numbers and this is one; else what was written, or set in a file."""
    if isinstance(written, tuple):
        return _read_body(cast("tuple[str, ...]", written))
    with suppress(ValueError):
        return _read_number(kind, written) if kind in (int, float) and isinstance(written, str) else written
    return written


def _read_body(written: tuple[str, ...]) -> dict[str, object]:
    """Parse fields of a request body: a TOML value if possible, else a text."""
    body: dict[str, object] = {}
    for field in written:
        name, equals, value = field.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{field!r} is not a field and its value.", where="--body", next="Write it as 'top_k=40'."
            )
        try:
            parsed = tomllib.loads(f"value = {value}")
            body[name.strip()] = parsed["value"] if parsed.keys() == {"value"} else value
        except (ValueError, RecursionError):
            body[name.strip()] = value
    return body
