"""``bactrian play --embodied``: what is asked before code of an agent runs, and how the agent alone is shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bactrian.cli.play_flags import RoleFlags
from bactrian.cli.terminal.console import to_printable
from bactrian.errors import InputError
from bactrian.sandbox.programs import choose_tier


def check_embodied(roles: RoleFlags, critic: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse flags that do not go with an embodied agent.

    Raises:
        InputError: such a flag was given.
    """
    given: Mapping[str, object] = {
        "--assistant": roles.assistant,
        "--roles": roles.roles,
        "--as": roles.as_,
        "--critic": critic.get("role"),
        "--search": critic.get("search"),
        "--protocol enforced": options.get("protocol") == "enforced",
        "--plan": options.get("plan") and roles.user is None,
        "--language": options.get("language") is not None and roles.user is None,
    }
    if wrong := [flag for flag, value in given.items() if value]:
        raise InputError(
            f"{wrong[0]} cannot be combined with --embodied.",
            where=wrong[0],
            next="Leave it out; docs/embodied.md shows what an embodied agent can do.",
        )


def ask_consent(role: str, outside: Sequence[str], *, yes: bool) -> None:
    """Ask whether code of a model may run, unless ``yes``. ``outside`` names its tools, which run with all rights.

    Raises:
        InputError: there is no terminal to ask on, or the answer is no.
        SandboxError: this computer has no sandbox.
    """
    tier = choose_tier()
    if yes:
        return
    with_tools = f" It can call, with your rights: {', '.join(outside)}." if outside else ""
    question = (
        f"{role} will run Python that a model writes, in a sandbox ({tier.name}).{with_tools} Continue?"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            "Code of a model needs your consent, and there is no terminal to ask on.",
            where="--embodied",
            next="Give --yes.",
        )
    if not click.confirm(to_printable(question), err=True):
        raise InputError("No code was run.", where="--embodied")
