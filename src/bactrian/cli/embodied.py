"""``bactrian play --embodied``: what is checked and asked before an agent's code runs, and the agent alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer

from bactrian.api.arguments import PlayOptions
from bactrian.api.models import choose_models
from bactrian.api.playing.embodied import build_embodied_order
from bactrian.cli.play_flags import CriticFlags, ModelFlags, Protocol, RoleFlags, SessionFlags, ToolFlags
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import to_printable
from bactrian.cli.view.watching import PlayKeeper, watch_events
from bactrian.errors import InputError
from bactrian.play.embodied.alone import EmbodiedOrder, play_embodied
from bactrian.records.session import Role
from bactrian.sandbox.run import choose_tier


def check_embodied(roles: RoleFlags, flags: SessionFlags, critic: CriticFlags) -> None:
    """Refuse flags that do not go with an embodied agent.

    Raises:
        InputError: such a flag was given.
    """
    given: Mapping[str, object] = {
        "--assistant": roles.assistant,
        "--roles": roles.roles,
        "--as": roles.as_,
        "--critic": critic.critic,
        "--search": critic.search,
        "--protocol enforced": flags.protocol is Protocol.enforced,
        "--plan": flags.plan and roles.user is None,
        "--language": flags.language is not None and roles.user is None,
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
    if not typer.confirm(to_printable(question), err=True):
        raise InputError("No code was run.", where="--embodied")


def play_alone(
    thoughts: str,
    roles: RoleFlags,
    models: ModelFlags,
    flags: SessionFlags,
    tools: ToolFlags,
    sampling: Mapping[str, Any],
    keeper: PlayKeeper,
) -> NoReturn:
    """Let the embodied agent act alone, and end the command."""
    assert roles.embodied is not None
    chosen = choose_models(("user", "assistant"), models.model, models.by_agent())
    options, stop_control = models.open(chosen, person=False, idea=thoughts)
    keeper.meter = options.meter
    order = build_embodied_order(
        thoughts,
        Role(roles.embodied, roles.assistant_description),
        chosen,
        options,
        PlayOptions(
            seed=flags.seed,
            parameters=sampling,
            tool_rounds=tools.tool_rounds,
            tool_timeout=tools.tool_timeout,
            **models.addresses(),
        ),
        tools={"assistant": tools.read().get("assistant", [])},
        run=keeper.given,
    )
    run_async(watch_embodied(order, keeper), resume=keeper, stop_control=stop_control)


async def watch_embodied(order: EmbodiedOrder, keeper: PlayKeeper) -> int:
    """Show an embodied agent without a partner, and return the exit code."""
    return await watch_events(lambda listener, store: play_embodied(order, listener, kept_in=store), keeper)
