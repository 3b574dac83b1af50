"""The form of all commands: help in groups with examples, ``-h`` and ``-v``, and clear errors for wrong arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

from bactrian.cli.examples import EXAMPLES
from bactrian.errors import InputError
from bactrian.files.toml import suggest_name

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_FREE_TEXT = ("idea", "task")
"""Arguments that are sentences, and are often written without quotation marks."""

_GROUPS = {
    "Roles": "assistant user assistant-description user-description roles as",
    "Models": """model assistant-model user-model task-model critic-model list-model judge base-url window timeout
        max-wait send-keys-to""",
    "Sampling": "temperature top-p reply-length stop reasoning-effort body seed",
    "Cost and speed": """budget max-tokens price forecast concurrency requests-per-minute tokens-per-minute
        cpu wall memory workers""",
    "Critic": "critic proposals critic-rounds criteria search unreadable",
    "Tools": "tools mcp tools-for tool-timeout tool-rounds",
    "Selection": """only drop id role pair task mark marked min-rounds unfinished dedup decontaminate grep ending
        behaviour sample equal-roles order limit jobs""",
    "Output": """run out keep raw json quiet format full pager overwrite findings report names""",
    "Help": "verbose help",
}
_METAVARS = {
    "ROLE": "assistant user critic role embodied",
    "MODEL": "model assistant-model user-model task-model critic-model list-model judge made-by extractor base",
    "URL": "base-url send-keys-to",
    "SECONDS": "timeout max-wait tool-timeout cpu wall",
    "USD": "budget",
    "TOKENS": "max-tokens window reply-length",
    "PROMPT/COMPLETION": "price",
    "LANGUAGE": "language",
    "KEY=VALUE": "set body",
    "RUN": "run fork",
    "PATH": "out",
    "FILE.py": "tools",
    "NAME": "mark marked behaviour prompts society license name voter",
    "ID": "id",
    "ADDRESS": "host",
    "FOLDER": "bundle",
    "QUERY": "filter",
    "SET": "questions",
    "CODE": "ending",
    "REGEX": "grep",
    "KIND=CODE": "only drop",
    "NAME=SHARE": "split",
    "'ROLE x ROLE'": "pair",
    "FORMAT": "format",
    "COMMAND": "mcp",
    "WORDS": "task criteria assistant-description user-description note description",
    "N": "requests-per-minute tokens-per-minute",
    "TIER": "tier",
    "VALUE": "temperature top-p",
    "low|medium|high": "reasoning-effort",
    "RULES": "endings",
    "beam:WIDTHxDEPTH": "search",
    "FILE": "plus",
}
_GROUP_OF = {f"--{name}": group for group, names in _GROUPS.items() for name in names.split()}
_METAVAR_OF = {"-k": "K,K"} | {
    f"--{name}": metavar for metavar, names in _METAVARS.items() for name in names.split()
}


class HelpArgument(click.Argument):
    """An argument that the help describes."""

    def __init__(self, names: Sequence[str], *, description: str, shown: str, **more: Any) -> None:
        super().__init__(names, **more)
        self.description = description
        self.shown = shown


class HelpOption(click.Option):
    """An option that says what to do instead of giving it twice."""

    def __init__(self, names: Sequence[str], *, again: str, **more: Any) -> None:
        super().__init__(names, **more)
        self.again = again


class VerbCommand(click.Command):
    """A command with its options in groups, and with examples."""

    allow_extra_args = True
    """So that :meth:`parse_args` can refuse them with the fix."""

    def __init__(self, name: str, *, params: list[click.Parameter], **more: Any) -> None:
        verbose = click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_show_more,
            help="Show the traceback of an error.",
        )
        super().__init__(name, params=[*params, verbose], **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            InputError: there are more than the command takes, or an option that takes one value is repeated: its
                first value would be dropped in silence.
        """
        if not ctx.resilient_parsing:
            self._check_once(ctx, list(args))
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            raise self._refuse(ctx, rest)
        return rest

    def _check_once(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse an option that takes one value and is among the arguments twice."""
        _, _, order = self.make_parser(ctx).parse_args(args)
        for option in order:
            count = order.count(option)
            if isinstance(option, HelpOption) and count > 1 and not (option.is_flag or option.multiple):
                raise InputError(
                    f"{max(option.opts, key=len)} is given {count} times, and takes one value.",
                    next=option.again or "Give it once.",
                )

    def _refuse(self, ctx: click.Context, rest: Sequence[str]) -> InputError:
        name = next((param.name for param in self.params if param.name in _FREE_TEXT), None)
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

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the line that shows how the command is used."""
        arguments = [param for param in self.get_params(ctx) if isinstance(param, click.Argument)]
        return ["[OPTIONS]", *map(_name_argument, arguments)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show arguments, and options in their groups."""
        _write_options(self.get_params(ctx), formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show examples and the environment."""
        _write_examples(ctx, formatter)
        _write_environment(self.get_params(ctx), formatter)


class VerbGroup(click.Group):
    """A command with subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that ``args`` begin with.

        Raises:
            InputError: there is no such command.
        """
        if args and not args[0].startswith("-") and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            if args[0] not in known:
                raise InputError(
                    f"There is no command {args[0]!r}.{suggest_name(args[0], known)}",
                    next=f"`{ctx.command_path} --help` lists the commands.",
                )
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the subcommands, and options in their groups."""
        self.format_commands(ctx, formatter)
        _write_options(self.get_params(ctx), formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands, each with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, " ".join((command.help or "").partition("\n\n")[0].split()))
                    for name in self.list_commands(ctx)
                    if (command := self.get_command(ctx, name)) is not None and not command.hidden
                ]
            )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show examples."""
        _write_examples(ctx, formatter)


def _show_more(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        os.environ["BACTRIAN_DEBUG"] = "1"


def _name_argument(argument: click.Argument) -> str:
    name = argument.metavar.strip("[]{}.…") if argument.metavar else (argument.name or "").upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def list_options(params: Iterable[click.Parameter]) -> dict[str, list[tuple[str, str]]]:
    """Return the names and the help of arguments and options, in their groups."""
    groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *_GROUPS)}
    for param in params:
        extras = _list_extras(param)
        text = param.description if isinstance(param, HelpArgument) else getattr(param, "help", None) or ""
        text = f"{text}  [{'; '.join(extras)}]" if extras else text
        if isinstance(param, click.Argument):
            groups["Arguments"].append((_name_argument(param), text))
        elif isinstance(param, click.Option) and not param.hidden:
            names = sorted(param.opts, key=len)
            shown = ", ".join(names)
            if param.secondary_opts:
                shown += f" / {', '.join(param.secondary_opts)}"
            elif not param.is_flag:
                shown += f" {param.metavar or name_value(names[-1], param.type)}"
            groups[_GROUP_OF.get(names[-1], "Options")].append((shown, text))
    return {title: rows for title, rows in groups.items() if rows}


def _list_extras(param: click.Parameter) -> list[str]:
    """Return what the help shows in brackets: the default, the limits, and whether the option is required."""
    default = param.shown if isinstance(param, HelpArgument) else getattr(param, "show_default", None)
    extras = [f"default: {default}"] if isinstance(default, str) and default else []
    kind: Any = param.type
    if getattr(kind, "min", None) is not None and kind.max is not None:
        extras.append(f"{kind.min} to {kind.max}")
    if param.required and isinstance(param, click.Option):
        extras.append("required")
    return extras


def name_value(option: str, kind: Any) -> str:
    """Return what stands for the value of ``option`` in the help."""
    if kind.name == "choice":
        return "|".join(kind.choices)
    if option in _METAVAR_OF:
        return _METAVAR_OF[option]
    return {"integer": "N", "float": "N", "path": "FILE"}.get(kind.name.removesuffix(" range"), "TEXT")


def _write_options(params: Iterable[click.Parameter], formatter: click.HelpFormatter) -> None:
    for title, rows in list_options(params).items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    words = ctx.command_path.partition(" ")[2]
    if words in EXAMPLES:
        formatter.write("\nExamples:\n")
        for line in EXAMPLES[words]:
            formatter.write(f"  {line}\n")


def _write_environment(params: Iterable[click.Parameter], formatter: click.HelpFormatter) -> None:
    names = [param.opts[-1] for param in params if isinstance(param, click.Option) and param.envvar]
    if names:
        name = "--model" if "--model" in names else names[0]
        variable = f"BACTRIAN_{name.removeprefix('--').replace('-', '_').upper()}"
        formatter.write_paragraph()
        formatter.write_text(
            f"Environment variables set options, too: {variable} sets {name}. "
            "An option on the command line takes precedence."
        )
