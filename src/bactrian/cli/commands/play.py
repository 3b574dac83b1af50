"""``bactrian play``: one conversation, live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, Unpack, cast

from bactrian.api.conversation import order_session
from bactrian.api.model_arguments import LOCAL
from bactrian.cli.commands.roles import choose_roles
from bactrian.cli.flags import SPEAKERS, Argument, FieldsOf, SamplingFlags
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.play_flags import (
    OutputFlags,
    PlayFlags,
    RoleFlags,
    ToolFlags,
    check_critic_flags,
    split_models,
)
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.terminal.keyboard import add_person
from bactrian.cli.view.watching import watch_session, watch_society
from bactrian.errors import InputError
from bactrian.options import Critic, Option, PlayOptions, SocietyOptions
from bactrian.records.session import Role
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import EXAMPLE, choose_role_names


def play(
    idea: Annotated[
        str | None,
        Argument("The task, in one sentence; - reads it from standard input.", shown="the paper's example"),
    ] = None,
    *,
    roles: RoleFlags,
    endings: Annotated[
        str,
        Option(
            "--endings",
            "Rules that end the conversation: default, paper, camel, or a list as in "
            "task_done,user_no_instruct=3,max_messages=40.",
        ),
    ] = "default",
    critic: Annotated[Mapping[str, Any], FieldsOf(Critic)] = MappingProxyType({}),
    tools: ToolFlags,
    society: Annotated[
        str | None,
        Option("--society", "More agents, or more conversations: a society's name or .toml file."),
    ] = None,
    output: OutputFlags,
    sampling: Annotated[Mapping[str, Any], SamplingFlags(SPEAKERS)] = MappingProxyType({}),
    **flags: Unpack[PlayFlags],
) -> None:
    """Watch two agents solve a task."""
    model, models, options = split_models(flags)
    if critic.get("role") == HUMAN:
        models["critic"] = HUMAN
    if society is not None:
        if sampling:
            raise _refuse_flag("--temperature and its like")
        _check_society_flags(roles, critic, tools, models, options)
        _play_society(society, idea, model, models, options, endings, output)
    if roles.as_ is not None:
        models[roles.as_.value] = HUMAN
    check_critic_flags(critic.get("role"), models, sampling, "Give --critic ROLE, too.")
    text = _read_idea(idea)
    if options.get("embodied") is not None:
        _prepare_embodied(roles, critic, tools, options)
    assistant, user = _choose_roles(roles, text, options)
    order = order_session(
        text,
        assistant,
        user,
        model,
        models,
        critic=_read_critic(critic),
        tools={tools.tools_for.value: tools.names},
        endings=endings,
        run=output.run_file,
        options=cast("PlayOptions", {**options, "parameters": sampling}),
    )
    keeper = output.keep(order.options.meter)
    access, stop_control = show_model_progress(order.options), StopControl()
    names = set(order.setup.models.values()) if isinstance(order, SessionOrder) else set[str]()
    if HUMAN in names:
        access = add_person(access, stop_control, idea)
    suggest = model is None and bool(names) and names <= {LOCAL, HUMAN} and not output.json
    work = watch_session(replace(order, options=access), keeper, suggest=suggest)
    run_async(work, resume=keeper, stop_control=stop_control)


def _prepare_embodied(
    roles: RoleFlags, critic: Mapping[str, Any], tools: ToolFlags, options: dict[str, Any]
) -> None:
    """Check the flags, ask for consent, and give the role its description."""
    from bactrian.cli.consent import ask_consent, check_embodied

    role = options["embodied"]
    check_embodied(roles, critic, options)
    ask_consent(role, (*(tools.tools or ()), *(tools.mcp or ())), yes=roles.yes)
    options["embodied"] = Role(role, roles.assistant_description)


def _choose_roles(
    roles: RoleFlags, idea: str | None, options: Mapping[str, Any]
) -> tuple[Role | None, Role | None]:
    """Return the roles of assistant and user; None for an embodied assistant, and for its user if it acts alone."""
    defaults = choose_role_names(EXAMPLE[0] if idea is None else idea)
    embodied: Role | None = options.get("embodied")
    if embodied is not None and roles.user is None:
        return None, None
    assistant, user = choose_roles(
        roles.roles,
        (embodied.name if embodied else roles.assistant, defaults[0], roles.assistant_description),
        (roles.user, defaults[1], roles.user_description),
    )
    return (None if embodied else assistant), user


def _read_critic(critic: Mapping[str, Any]) -> Critic | None:
    """Return the critic; None if not given. Raises InputError for a search without a critic."""
    if "role" in critic:
        return Critic(**critic)
    if "search" in critic:
        raise InputError(
            "A search needs a critic that ranks its lines.", where="--search", next="Give --critic ROLE, too."
        )
    return None


def _check_society_flags(
    roles: RoleFlags,
    critic: Mapping[str, Any],
    tools: ToolFlags,
    models: Mapping[str, str],
    options: Mapping[str, Any],
) -> None:
    """Refuse flags that contradict a society's file.

    Raises:
        InputError: such a flag was given.
    """
    given: Mapping[str, object] = {
        "--assistant": roles.assistant,
        "--user": roles.user,
        "--roles": roles.roles,
        "--as": roles.as_,
        "--embodied": options.get("embodied"),
        "--critic": critic.get("role", HUMAN) != HUMAN,
        "--plan": options.get("plan"),
        "--tools": tools.tools,
        "--mcp": tools.mcp,
        "--search": critic.get("search"),
        "--assistant-model": models.get("assistant"),
        "--user-model": models.get("user"),
        "--assistant-description": roles.assistant_description,
        "--user-description": roles.user_description,
    }
    if wrong := [flag for flag, value in given.items() if value]:
        raise _refuse_flag(wrong[0])


def _refuse_flag(flag: str) -> InputError:
    return InputError(
        f"{flag} cannot be combined with --society.",
        where=flag,
        next="Set it in the society's file; docs/societies.md shows how.",
    )


def _play_society(
    name: str,
    idea: str | None,
    model: str | None,
    models: Mapping[str, str],
    options: Mapping[str, Any],
    endings: str,
    output: OutputFlags,
) -> NoReturn:
    """Play a society and end the command."""
    from bactrian.api.society_play import order_society

    settings = {name: value for name, value in options.items() if name in SocietyOptions.__annotations__}
    society, access = order_society(
        name, _read_idea(idea), model, models, cast("SocietyOptions", settings), endings=endings
    )
    access, stop_control = show_model_progress(access), StopControl()
    if HUMAN in society.given.models.values():
        access = add_person(access, stop_control, idea)
    keeper = output.keep(access.meter)
    run_async(watch_society(society, access, keeper), resume=keeper, stop_control=stop_control)


def _read_idea(given: str | None) -> str | None:
    """Return the idea; a dash reads it from standard input."""
    if given != "-":
        return given
    # Invalid UTF-8 becomes surrogates, which the check of the idea refuses with a clear error.
    return sys.stdin.buffer.read().decode(errors="surrogateescape").strip()
