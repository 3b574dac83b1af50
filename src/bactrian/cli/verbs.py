"""The common base of all commands: the form of help, ``-h`` and ``-v``, and clear errors for arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from bactrian.cli.examples import EXAMPLES
from bactrian.cli.option_groups import GROUPS, find_group, name_value
from bactrian.errors import InputError
from bactrian.files.toml import suggest_name

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_FREE_TEXT = ("idea", "task")
"""Arguments that are sentences, and are often written without quotation marks."""


class VerbCommand(typer.core.TyperCommand):
    """A command with its options in groups, and with examples.

    Newer versions of Typer include their own click, so no type name is valid for all versions.
    """

    allow_extra_args = True
    """So that :meth:`parse_args` can refuse them with the fix."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        for param in self.params:
            _keep_default(param)
        self.params.append(_make_verbose_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            InputError: there are more than the command takes, or an option that takes one value is repeated: its
                first value would be dropped in silence.
        """
        rest = super().parse_args(ctx, list(args))
        if rest and not ctx.resilient_parsing:
            raise self._refuse(ctx, rest)
        return rest

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser of the arguments that refuses an option that is repeated."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            parsed = parse(args=args)
            _check_once(parsed[2])
            return parsed

        parser.parse_args = parse_args
        return parser

    def _refuse(self, ctx: Any, rest: list[str]) -> InputError:
        name = next((one.name for one in self.params if one.name in _FREE_TEXT), None)
        if name is None:
            return InputError(
                f"{ctx.command_path} takes no further argument {rest[0]!r}.",
                next=f"`{ctx.command_path} --help` shows what it takes.",
            )
        whole = " ".join([str(ctx.params[name]), *rest])
        return InputError(
            f"The {name} is more than one argument.",
            where=whole,
            next=f'Put it in quotation marks: {ctx.command_path} "{whole}"',
        )

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line that shows how the command is used."""
        return _list_usage(self.get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Show arguments, and options in their groups."""
        _write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Show examples and the environment."""
        _write_examples(ctx, formatter)
        _write_environment(self.get_params(ctx), formatter)


class VerbGroup(typer.core.TyperGroup):
    """A command with subcommands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand that ``args`` begin with.

        Raises:
            InputError: there is no such command.
        """
        if args and not args[0].startswith("-") and not ctx.resilient_parsing:
            check_command(ctx.command_path, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Show options in their groups, and the subcommands."""
        self.format_commands(ctx, formatter)
        _write_options(self.get_params(ctx), ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the subcommands, each with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, " ".join((command.help or "").partition("\n\n")[0].split()))
                    for name in self.list_commands(ctx)
                    if (command := self.get_command(ctx, name)) is not None and not command.hidden
                ]
            )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Show examples."""
        _write_examples(ctx, formatter)


def check_command(path: str, given: str, known: Iterable[str]) -> None:
    """Refuse a word that is not one of the ``known`` commands of ``path``.

    Raises:
        InputError: there is no such command.
    """
    known = list(known)
    if given not in known:
        raise InputError(
            f"There is no command {given!r}.{suggest_name(given, known)}",
            next=f"`{path} --help` lists the commands.",
        )


def normalize_app(app: typer.Typer) -> typer.Typer:
    """Give an app and its commands the form of help that all commands have."""
    app.rich_markup_mode = None
    app.info.cls = VerbGroup
    app.info.context_settings = HELP_NAMES
    app._add_completion = False  # pyright: ignore[reportPrivateUsage]
    for command in app.registered_commands:
        command.cls = VerbCommand
        command.context_settings = HELP_NAMES
    return app


def _check_once(order: list[Any]) -> None:
    """Refuse an option that takes one value and is among the arguments twice."""
    for option in order:
        count = order.count(option)
        if count > 1 and not (getattr(option, "is_flag", True) or option.multiple):
            raise InputError(
                f"{max(option.opts, key=len)} is given {count} times, and takes one value.",
                next="Give it once.",
            )


def _keep_default(param: Any) -> None:
    """Convert only a value that is given: newer versions of Typer build a converter for each option that has a value.

    A default is declared in the type of its option, so a conversion would not change it.
    """
    convert = param.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if param.required or param.callback is not None:
            return convert(ctx, value)
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        return value if value is param.default else convert(ctx, value)

    param.process_value = process_value


def _make_verbose_option() -> Any:
    """Return the option that all commands have, made by Typer, so that it suits every version of it."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def command(  # pyright: ignore[reportUnusedFunction]
        verbose: Annotated[
            bool,
            typer.Option("-v", "--verbose", callback=_show_more, help="Show the traceback of an error."),
        ] = False,
    ) -> None: ...

    option = next(one for one in typer.main.get_command(app).params if one.name == "verbose")
    option.expose_value = False
    return option


def _show_more(value: bool) -> None:
    if value:
        os.environ["BACTRIAN_DEBUG"] = "1"


def _list_usage(params: Iterable[Any]) -> list[str]:
    return ["[OPTIONS]", *(_name_argument(one) for one in params if one.param_type_name == "argument")]


def _name_argument(argument: Any) -> str:
    name = argument.metavar.strip("[]{}.…") if argument.metavar else argument.name.upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def list_options(params: Iterable[Any], ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the names and the help of arguments and options, in their groups."""
    groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *GROUPS)}
    for one in params:
        record = one.get_help_record(ctx)
        if record is None:
            continue
        text = re.sub(r"(\S+)<=x<=([^\];]+)", r"\1 to \2", record[1])
        text = re.sub(r"default: (\d+)\.0(?=[\];,])", r"default: \1", text)
        text = re.sub(r"; x>=[\d.]+|\s*\[x>=[\d.]+\]", "", text)
        if one.param_type_name == "argument":
            groups["Arguments"].append((_name_argument(one), text.replace("[required]", "").strip()))
            continue
        names = sorted(one.opts, key=len)
        shown = ", ".join(names)
        if one.secondary_opts:
            shown += f" / {', '.join(one.secondary_opts)}"
        elif not one.is_flag and not one.count:
            kind = record[0].rpartition(names[-1])[2]
            shown += f" {one.metavar or name_value(names[-1], kind)}"
        groups[find_group(names[-1])].append((shown, text))
    return {title: rows for title, rows in groups.items() if rows}


def _write_options(params: Iterable[Any], ctx: Any, formatter: Any) -> None:
    for title, rows in list_options(params, ctx).items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _write_examples(ctx: Any, formatter: Any) -> None:
    words = ctx.command_path.partition(" ")[2]
    if words in EXAMPLES:
        formatter.write("\nExamples:\n")
        for line in EXAMPLES[words]:
            formatter.write(f"  {line}\n")


def _write_environment(params: Iterable[Any], formatter: Any) -> None:
    names = [
        one.opts[-1] for one in params if getattr(one, "envvar", None) and one.param_type_name == "option"
    ]
    if names:
        name = "--model" if "--model" in names else names[0]
        variable = f"BACTRIAN_{name.removeprefix('--').replace('-', '_').upper()}"
        formatter.write_paragraph()
        formatter.write_text(
            f"Environment variables set options, too: {variable} sets {name}. "
            "An option on the command line takes precedence."
        )
