"""Wrong command lines in our words: what, where, and the next action. Click's own texts never reach a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

import click
from click.core import ParameterSource

from bactrian.cli.settings import HelpOption, list_settings
from bactrian.cli.verbs import HELP, VERBS
from bactrian.errors import BactrianError, InputError

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
    from bactrian.cli.help_form import load_verb

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
