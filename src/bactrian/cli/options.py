"""Declaration of command-line options: with environment variables, and in groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

SHORT_NAMES = {"--model": "-m", "--run": "-r", "--out": "-o", "--quiet": "-q", "--count": "-n"}
"""Short names of options, the same in every command."""


def find_run_file(given: Path) -> Path:
    """Return the run that an argument names: a file, or a name in the data folder."""
    from bactrian.store import find_run

    return find_run(given)


def find_run_files(given: list[Path] | None) -> list[Path]:
    """Return the runs that an argument names."""
    return [find_run_file(one) for one in given or ()]


RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="The run: a file, or a name in `bactrian runs`.", callback=find_run_file
    ),
]
"""The argument of every command that reads a run."""


def declare_option(names: str, text: str, *, short: str | None = None, **more: Any) -> Any:
    """Declare an option, with its short name, that ``BACTRIAN_…`` in the environment sets, too."""
    name = names.split("/", maxsplit=1)[0]
    variable = name.removeprefix("--").replace("-", "_").upper()
    letter = short or SHORT_NAMES.get(name)
    return typer.Option(
        *((letter,) if letter else ()),
        names,
        envvar=f"BACTRIAN_{variable}",
        help=text,
        show_envvar=False,
        **more,
    )


def flatten_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: each field becomes an option of the command line.

    The order of the command's parameters is that of its help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind) or not isinstance(kind, type):
            parameters.append(_make_parameter(name, hints[name], parameter.default))
            continue
        types = get_type_hints(kind, include_extras=True)
        groups[name] = kind, [field.name for field in fields(kind)]
        for field in fields(kind):
            assert field.default is not MISSING
            parameters.append(_make_parameter(field.name, types[field.name], field.default))

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: kind(**{field: given.pop(field) for field in names})
            for name, (kind, names) in groups.items()
        }
        command(**given, **made)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {}  # Typer would evaluate them again, and its signature says all
    return flat


def _make_parameter(name: str, kind: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
