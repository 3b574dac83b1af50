"""The form of all commands: help in groups with examples, ``-h`` and ``-v``, and clear errors in our words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

import bactrian
from bactrian.cli.settings import HelpOption, apply_settings, assign_keys, list_settings, refuse_flag
from bactrian.cli.verbs import HELP, OPTIONS, VERBS, list_verbs, write_overview
from bactrian.errors import BactrianError, InputError

# Wrong command lines in our words: what, where, and the next action. Click's own texts never reach a person.


_METAVAR_OF = {"-k": "K,K"} | {
    f"--{name}": metavar for metavar, names in HELP["values"].items() for name in names.split()
}


def explain_usage(error: click.ClickException, ctx: click.Context) -> InputError:
    """Return our error for one that click raised in the command of ``ctx``."""
    where = ctx.command_path.partition(" ")[2] or None
    match error:
        case click.NoSuchOption():
            return _explain_unknown(error.option_name, ctx)
        case click.MissingParameter(param=click.Parameter() as param):
            is_argument = isinstance(param, click.Argument)
            name = name_argument(param) if isinstance(param, click.Argument) else max(param.opts, key=len)
            return InputError(
                f"The {'argument' if is_argument else 'option'} {name} is missing.",
                where=where,
                next=f"Write `{_write_usage(ctx)}`. {name}: {_read_help(param)}",
            )
        case click.BadParameter(param=click.Parameter() as param):
            return explain_value(error, param, _name_source(param, ctx))
        case click.BadOptionUsage(option_name=name):
            option = next((param for param in ctx.command.get_params(ctx) if name in param.opts), None)
            if isinstance(option, click.Option) and not option.is_flag:
                what, form = "lacks its value", f"{name} {name_value(option)}"
            else:
                what, form = "takes no value", f"{name} alone"
            return InputError(f"{name} {what}.", where=where, next=f"Write {form}.")
        case _:
            more = f"`{ctx.command_path} --help` shows what it takes."
            return InputError(f"{error.message.rstrip('.')}.", where=where, next=more)


_COMMAND = re.compile(r"(`[^`]*`)")
# An argument as Python writes it. What follows a letter, a quote or a bracket is something else.
_NAMED = re.compile(r"(?<!--set )(?<![\w.=/'\"{\[-])([a-z][a-z_]*(?:\.[a-z_]+)*)=(True\b|False\b|RUN\b)?")


def spell_error(error: BactrianError, words: Sequence[str]) -> str:
    """Return the text of an error with the flags of the command ``words`` instead of the names of arguments."""
    names = [word for word in words if not word.startswith("-")]
    verb = next(
        (verb for verb in (" ".join(names[:2]), *names[:1]) if verb in VERBS and VERBS[verb].function), None
    )
    if verb is None:
        return str(error)
    params = load_verb(verb).params

    def spell(match: re.Match[str]) -> str:
        flag, value = _spell_option(match[1], params), match[2] or ""
        if match[0] == "origin=RUN":
            return "--fork NEW"
        if flag is None or flag.startswith("--set "):
            return match[0] if flag is None else f"{flag}={value.lower() if value != 'RUN' else value}"
        if value in ("True", "False"):
            return flag if value == "True" else f"--no-{flag.removeprefix('--')}"
        return f"{flag} {value}"

    def spell_text(text: str) -> str:
        parts = _COMMAND.split(text)
        parts[::2] = [_NAMED.sub(spell, part) for part in parts[::2]]
        return "".join(parts)

    where = error.where
    if error.option is not None:
        where = _spell_option(error.option, params) or error.option
    return str(BactrianError(spell_text(error.what), where=where, next=error.next and spell_text(error.next)))


def _spell_option(name: str, params: Sequence[click.Parameter]) -> str | None:
    """Return how the command line spells the argument ``name``; None if the command lacks it."""
    flag = f"--{name.replace('_', '-')}"
    for param in sorted(
        params, key=lambda param: param.name != name
    ):  # `mark` is --marked where --mark sets one
        if isinstance(param, HelpOption) and (
            param.name in (name, name.replace(".", "_")) or param.key == name or flag in param.opts
        ):
            return f"--set {param.key}" if param.hidden and param.key else param.flag
    has_settings = any(param.name == "settings" for param in params)
    return f"--set {name}" if "." in name and has_settings else None


def explain_value(error: click.BadParameter, param: click.Parameter, where: str) -> InputError:
    """Return the error for a value that an option or an argument does not take."""
    if isinstance(param.type, click.Choice):
        choices = [str(choice) for choice in param.type.choices]
        word = error.message.partition("'")[2].partition("'")[0]
        near = get_close_matches(word, choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        several = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
        return InputError(f"{word!r} is not among its values.{hint}", where=where, next=f"Choose {several}.")
    value = f"{name_value(param)}: " if isinstance(param, click.Option) else ""
    return InputError(error.message, where=where, next=f"It takes {value}{_read_help(param)}")


def _read_help(param: click.Parameter) -> str:
    return getattr(param, "description", None) or getattr(param, "help", None) or ""


def _write_usage(ctx: click.Context) -> str:
    """Return the shortest form of the command: what it cannot do without."""
    words = [ctx.command_path]
    for param in ctx.command.params:
        if param.required and isinstance(param, click.Argument):
            words.append(name_argument(param))
        elif param.required and isinstance(param, click.Option):
            words += [max(param.opts, key=len), name_value(param)]
    return " ".join(words)


def name_argument(argument: click.Argument) -> str:
    """Return the name of an argument as the help shows it, without brackets."""
    return argument.metavar.strip("[]{}.…") if argument.metavar else (argument.name or "").upper()


def name_value(option: click.Option) -> str:
    """Return what stands for the value of ``option`` in the help."""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    name = max(option.opts, key=len)
    return _METAVAR_OF.get(name) or {"integer": "N", "float": "N", "path": "FILE"}.get(
        option.type.name, "TEXT"
    )


def _name_source(param: click.Parameter, ctx: click.Context) -> str:
    """Return the flag, the argument, or the variable of the environment that the value came from."""
    if isinstance(param, click.Argument):
        return name_argument(param)
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return max(param.opts, key=len)


def _explain_unknown(name: str, ctx: click.Context) -> InputError:
    """Return the error for an option that a command lacks, with the nearest option or setting that it has."""
    params = ctx.command.get_params(ctx)
    words = {
        flag: flag
        for param in params
        if isinstance(param, click.Option) and not param.hidden
        for flag in (*param.opts, *param.secondary_opts)
    }
    settings = list_settings(params).values()
    words |= {option.flag: f"--set {option.key}=VALUE" for option in settings if option.hidden}
    near = get_close_matches(name, words, n=1, cutoff=0.7)
    hint = f" Did you mean {words[near[0]]}?" if near else ""
    command, word = ctx.command_path.partition(" ")[2], name.lstrip("-").removeprefix("no-")
    # What `play` has as an option is a key of a recipe.
    keys: dict[str, str] = (
        {**HELP["settings"]["play"], **HELP["flags"]["play"]} if command == "generate" else {}
    )
    if instead := HELP["instead"].get(command, {}).get(word) or (
        keys.get(word) and f"--set {keys[word]}=VALUE"
    ):
        hint = f" Write {instead}."
    return InputError(
        f"There is no option {name}.{hint}",
        where=ctx.command_path.partition(" ")[2] or None,
        next=f"`{ctx.command_path} --help` lists the options.",
    )


# The form of all commands: help in groups with examples, ``-h`` and ``-v``, and clear errors for wrong arguments.


# Help is plain text: with `rich`, which draws conversations, it would take twice as long to start.
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_FREE_TEXT = ("idea", "task")  # Arguments that are sentences, and are often written without quotation marks
_GROUP_OF = {f"--{name}": group for group, names in HELP["groups"].items() for name in names.split()}


class HelpArgument(click.Argument):
    """An argument that the help describes."""

    def __init__(self, names: Sequence[str], *, description: str, shown: str, **more: Any) -> None:
        super().__init__(names, **more)
        self.description = description
        self.shown = shown


class VerbCommand(click.Command):
    """A command with its options in groups, and with examples."""

    allow_extra_args = True  # So that `parse_args` can refuse them with the fix

    def __init__(self, name: str, *, params: list[click.Parameter], **more: Any) -> None:
        verbose = click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_show_more,
            help=OPTIONS["--debug"],
        )
        assign_keys(params, name)
        super().__init__(name, params=[*params, verbose], **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            InputError: there are more than the command takes, or an option that takes one value is repeated: its
                first value would be dropped in silence.
        """
        try:
            if not ctx.resilient_parsing:
                self._check_flags(ctx, list(args))
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            raise explain_usage(error, ctx) from error
        if rest and not ctx.resilient_parsing:
            raise self._refuse(ctx, rest)
        apply_settings(ctx)
        return rest

    def _check_flags(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse a flag that is a setting, and an option that takes one value and is among the arguments twice."""
        values, _, order = self.make_parser(ctx).parse_args(args)
        for option in order:
            if not isinstance(option, HelpOption):
                continue
            if option.hidden and option.key:
                raise refuse_flag(ctx, option, values[str(option.name)])
            count = order.count(option)
            if count > 1 and not (option.is_flag or option.multiple):
                raise InputError(
                    f"{option.flag} is given {count} times, and takes one value.",
                    where=option.flag,
                    next=option.again or "Give it once.",
                )

    def _refuse(self, ctx: click.Context, rest: Sequence[str]) -> InputError:
        name = next((param.name for param in self.params if param.name in _FREE_TEXT), None)
        if name is None:
            takes_model = ":" in rest[0] and any("--model" in param.opts for param in self.params)
            return InputError(
                f"{ctx.command_path} takes no further argument {rest[0]!r}.",
                next=f"Name a model by --model {rest[0]}."
                if takes_model
                else f"`{ctx.command_path} --help` shows what it takes.",
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
        _write_options(self.get_params(ctx), formatter, self.name or "")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show examples, settings and the environment."""
        _write_examples(ctx, formatter)
        if hidden := [key for key, option in list_settings(self.params).items() if option.hidden]:
            formatter.write_paragraph()
            keys = ", ".join(key for key in hidden if key.count(".") < 2)
            formatter.write_text(
                f"Settings, for --set KEY=VALUE or --set FILE.toml: {keys}. See `bactrian help settings`."
            )
        _write_environment(self.get_params(ctx), formatter)


def _check_run(name: str) -> None:
    """Refuse a word that may be meant as a command, and is not a run either. Raises InputError."""
    from bactrian.store import find_run

    if not find_run(name).exists():
        raise InputError(
            f"There is no command and no run {name!r}.",
            next="`bactrian --help` lists the commands, and `bactrian runs` the runs.",
        )


class VerbGroup(click.Group):
    """A command with subcommands, or the whole program. A subcommand is imported when it is called."""

    def __init__(self, words: str, **more: Any) -> None:
        super().__init__(words.rpartition(" ")[2] or "bactrian", context_settings=HELP_NAMES, **more)
        self.words = words
        self.verbs = list_verbs(words)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments before the subcommand.

        Raises:
            InputError: they cannot be used.
        """
        try:
            return super().parse_args(ctx, args)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise explain_usage(error, ctx) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the subcommands."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a subcommand; None if not found."""
        return load_verb(f"{self.words} {cmd_name}".strip()) if cmd_name in self.verbs else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that ``args`` begin with.

        Raises:
            InputError: there is no such command.
        """
        if args[0] not in self.verbs and not args[0].startswith("-") and not ctx.resilient_parsing:
            from bactrian.files.toml import suggest_name

            hint = suggest_name(args[0], self.verbs)
            if (
                "show" in self.verbs and not hint
            ):  # What is listed is shown by its name, or the nearest is named.
                if not self.words and args[0].isalpha():
                    _check_run(args[0])
                return super().resolve_command(ctx, ["show", *args])
            raise InputError(
                f"There is no command {args[0]!r}.{hint}",
                next=f"`{ctx.command_path} --help` lists the commands.",
            )
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return super().get_help(ctx) if self.words else write_overview()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the subcommands with their summaries, and options in their groups."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])
        _write_options(self.get_params(ctx), formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show examples."""
        _write_examples(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with ``incomplete``, without importing them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=verb.summary)
            for name, verb in self.verbs.items()
            if name.startswith(incomplete) and not verb.hidden
        ]


def load_verb(words: str) -> click.Command:
    """Import a command."""
    from bactrian.cli.flags import build_command, build_group

    verb = VERBS[words]
    module, _, name = verb.function.partition(":")
    function: Any = getattr(import_module(f"bactrian.cli.commands.{module}"), name) if name else None
    if list_verbs(words):
        return build_group(function, words, verb.summary)
    return build_command(function, words.rpartition(" ")[2], hidden=verb.hidden)


def build_app() -> VerbGroup:
    """Return the command ``bactrian``."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_version,
        help=OPTIONS["--version"],
    )
    debug = click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        envvar="BACTRIAN_DEBUG",
        callback=_show_more,
        help=OPTIONS["--debug"],
    )
    return VerbGroup("", params=[version, debug], help=HELP["about"], no_args_is_help=True)


def run_app() -> int:
    """Run the command of this process's arguments, and return its exit code.

    Raises:
        InputError: the arguments cannot be used.
    """
    try:
        code: object = build_app()(prog_name="bactrian", standalone_mode=False)
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.Abort:
        from bactrian.cli.run_async import INTERRUPTED  # which loads asyncio

        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: ARG001
    if wanted and not ctx.resilient_parsing:
        print(bactrian.__version__)
        ctx.exit()


def _show_more(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        os.environ["BACTRIAN_DEBUG"] = "1"


def _name_argument(argument: click.Argument) -> str:
    name = name_argument(argument)
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def list_options(params: Iterable[click.Parameter], command: str = "") -> dict[str, list[tuple[str, str]]]:
    """Return the names and the help of arguments and options, in their groups; the common ones of ``command`` first."""
    common = [f"--{name}" for name in HELP["common"].get(command, "").split()]
    groups: dict[str, list[tuple[str, str]]] = {
        name: [] for name in ("Arguments", "Common", "Options", *HELP["groups"])
    }
    first: dict[str, tuple[str, str]] = {}
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
                shown += f" {name_value(param)}"
            if names[-1] in common:
                first[names[-1]] = (shown, text)
            else:
                groups[_GROUP_OF.get(names[-1], "Options")].append((shown, text))
    groups["Common"] = [first[name] for name in common if name in first]
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


def _write_options(
    params: Iterable[click.Parameter], formatter: click.HelpFormatter, command: str = ""
) -> None:
    for title, rows in list_options(params, command).items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    if examples := VERBS[ctx.command_path.partition(" ")[2]].examples:
        formatter.write("\nExamples:\n")
        for line in examples:
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
