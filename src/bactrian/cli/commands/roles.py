"""``bactrian roles``: the roles that a task needs."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from bactrian.cli.flags import Argument, SamplingFlags
from bactrian.cli.model_options import read_model_options
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_progress
from bactrian.errors import InputError
from bactrian.models.model import Model
from bactrian.models.open import ModelOptions
from bactrian.options import COUNT, JSON, MODEL, BaseUrl, Language, Option, Seed, Tier, Timeout
from bactrian.protocol.checks import check_name, check_text
from bactrian.recipes.parameters import read_parameters
from bactrian.records.session import Role
from bactrian.records.text import to_json, to_line, to_printable
from bactrian.roleplay.role_assignment import RoleSuggestions, SuggestedRole, find_roles
from bactrian.roleplay.start import open_models

_LARGEST = 1 << 20


def roles(
    task: Annotated[str, Argument("The task; - reads it from standard input.")],
    count: Annotated[int, COUNT, "Number of roles."] = 2,
    model: Annotated[str, MODEL] = "local",
    base_url: BaseUrl = None,
    language: Annotated[Language, "Language of the answer."] = None,
    seed: Seed = None,
    timeout: Timeout = 600.0,
    tier: Tier = None,
    sampling: Annotated[Mapping[str, Any], SamplingFlags()] = MappingProxyType({}),
    names: Annotated[bool, Option("--names", "Write names only, for a recipe's axis.")] = False,
    json: Annotated[bool, JSON, "Write JSON lines, for `play --roles`."] = False,
) -> None:
    """Ask a model for the roles that a task needs."""

    task = sys.stdin.buffer.read().decode(errors="surrogateescape").strip() if task == "-" else task
    check_text(task, "task")
    if language is not None:
        check_name(language, "language")
    reach = read_model_options(base_url, model, timeout=timeout, tier=tier)
    parameters = read_parameters(sampling)
    asked = partial(find_roles, task, count, language=language, seed=seed, parameters=(parameters,))
    work = _roles(asked, model, reach, write=_writer(names=names, json=json))
    run_async(work, resume="Run the same command again.")


def read_experts(path: Path) -> list[SuggestedRole]:
    """Read a file written by ``bactrian roles --json``.

    Raises:
        InputError: the file cannot be read, or has other content.
    """

    where = str(path)
    try:
        with path.open("rb") as file:
            lines = file.read(_LARGEST).decode().splitlines()
        values: list[Any] = [jsonlib.loads(line) for line in lines if line.strip()]
        return [
            SuggestedRole(str(row["name"]), str(row["description"]), str(row.get("competencies", "")))
            for row in values
        ]
    except OSError as error:
        raise InputError(
            f"The roles cannot be read: {error.strerror}.",
            where=where,
            next=f"Make the file: bactrian roles TASK --json > {shlex.quote(where)}",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            "This file does not contain roles.",
            where=where,
            next="Make the file with `bactrian roles TASK --json`: a name and a description a line.",
        ) from error


_RoleArgument = tuple[str | None, str, str]  # Given name, default name, and description


def choose_roles(file: Path | None, *roles: _RoleArgument) -> tuple[Role, Role]:
    """Return the roles of both sides, by name or in the order of the file.

    Raises:
        InputError: the file cannot be used, or has too few roles.
    """

    known = [expert.role() for expert in read_experts(file)] if file else []
    taken = [name for name, _, _ in roles if name]
    free = [role for role in known if role.name not in taken]
    made: list[Role] = []
    for name, default, description in roles:
        if name is None and file is not None:
            if not free:
                raise InputError(
                    f"There are {len(known)} roles, and two are needed.",
                    where=str(file),
                    next="Make more: bactrian roles TASK --count 2 --json",
                )
            role = free.pop(0)
        else:
            role = next(
                (role for role in known if role.name == name), Role(default if name is None else name)
            )
        made.append(Role(role.name, description or role.description))
    return made[0], made[1]


def _writer(*, names: bool, json: bool) -> Any:

    def write(number: int, expert: SuggestedRole) -> None:
        if json:
            print(to_json(asdict(expert)), flush=True)
        elif names:
            print(to_line(expert.name), flush=True)
        else:
            print(to_printable(f"{number}. {expert.name}\n   {expert.description}"))
            if expert.competencies:
                print(to_printable(f"   Competencies: {expert.competencies}"))
            sys.stdout.flush()

    return write


async def _roles(
    ask: Callable[[Model], AsyncGenerator[RoleSuggestions]], name: str, reach: ModelOptions, *, write: Any
) -> int:

    written = 0
    suggested: RoleSuggestions | None = None
    async with open_models({"role_assigner": name}, reach) as (models, _):
        async for suggested in ask(models["role_assigner"]):
            for number, expert in enumerate(suggested.experts[written:], start=written + 1):
                write(number, expert)
            written = len(suggested.experts)
    if suggested is not None:
        usage = suggested.usage
        open_progress().say(
            f"{suggested.calls} calls, {usage.prompt:,} + {usage.completion:,} tokens", style="dim"
        )
    return 0
