"""``bactrian play``: one conversation, live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import typer

from bactrian.api.arguments import PlayOptions
from bactrian.api.models import LOCAL, ChosenModels, choose_models
from bactrian.api.play import (
    AGENTS,
    build_session_order,
)
from bactrian.cli.commands.roles import choose_roles
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.output_flags import OutputFlags
from bactrian.cli.play_flags import CriticFlags, ModelFlags, RoleFlags, SessionFlags, ToolFlags
from bactrian.cli.run_async import run_async
from bactrian.cli.sampling_options import SPEAKERS, add_sampling_flags
from bactrian.cli.view.watching import watch_session, watch_society
from bactrian.errors import InputError
from bactrian.play.human import HUMAN
from bactrian.play.setup_defaults import EXAMPLE, EXAMPLE_SEED, choose_role_names


@add_sampling_flags(*SPEAKERS)
@flatten_groups
def play(
    idea: Annotated[
        str | None,
        typer.Argument(
            help="The task, in one sentence; - reads it from standard input.",
            show_default="the paper's example",
        ),
    ] = None,
    *,
    roles: RoleFlags,
    models: ModelFlags,
    flags: SessionFlags,
    critic: CriticFlags,
    tools: ToolFlags,
    society: Annotated[
        str | None,
        declare_option("--society", "More agents, or more conversations: a society's name or .toml file."),
    ] = None,
    output: OutputFlags,
    sampling: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Watch two agents solve a task."""
    if society is not None:
        if sampling:
            raise refuse_flag("--temperature and its like")
        check_flags(roles, models, flags, critic, tools)
        _play_society(
            society,
            idea,
            models,
            flags,
            output,
            human=critic.critic == HUMAN,
        )
    if idea is None:
        idea, flags = EXAMPLE[0], replace(flags, seed=EXAMPLE_SEED if flags.seed is None else flags.seed)
    text = _read_idea(idea)
    defaults = choose_role_names(text)
    if roles.embodied is not None:
        from bactrian.cli.embodied import ask_consent, check_embodied, play_alone

        check_embodied(roles, flags, critic)
        ask_consent(roles.embodied, (*(tools.tools or ()), *(tools.mcp or ())), yes=roles.yes)
        if roles.user is None:
            keeper = output.keep()
            play_alone(text, roles, models, flags, tools, sampling, keeper)
    pair = choose_roles(
        roles.roles,
        (roles.embodied or roles.assistant, defaults[0], roles.assistant_description),
        (roles.user, defaults[1], roles.user_description),
    )
    critic.check(models.critic_model, sampling)
    chosen = _choose_models(roles, models, critic)
    person = HUMAN in (*chosen.names.values(), critic.critic)
    options, stop_control = models.open(chosen, person=person, idea=idea)
    order = build_session_order(
        text,
        pair,
        chosen,
        options,
        PlayOptions(
            specify=flags.specify,
            word_limit=flags.word_limit,
            plan=flags.plan,
            protocol=flags.protocol.value if flags.protocol else None,
            max_messages=flags.max_messages,
            seed=flags.seed,
            language=flags.language,
            prompts=flags.prompts,
            tool_rounds=tools.tool_rounds,
            tool_timeout=tools.tool_timeout,
            parameters=sampling,
            embodied=roles.embodied,
            **models.addresses(),
        ),
        critic=critic.read(),
        tools=tools.read(),
        endings=flags.endings,
        run=output.run_file,
    )
    keeper = output.keep(options.meter)
    by_default = models.model is None and set(chosen.names.values()) <= {LOCAL, HUMAN}
    work = watch_session(order, keeper, suggest=by_default and not output.json)
    run_async(work, resume=keeper, stop_control=stop_control)


def check_flags(
    roles: RoleFlags, models: ModelFlags, flags: SessionFlags, critic: CriticFlags, tools: ToolFlags
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
        "--embodied": roles.embodied,
        "--critic": None if critic.critic == HUMAN else critic.critic,
        "--plan": flags.plan,
        "--tools": tools.tools,
        "--mcp": tools.mcp,
        "--search": critic.search,
        "--assistant-model": models.assistant_model,
        "--user-model": models.user_model,
        "--assistant-description": roles.assistant_description,
        "--user-description": roles.user_description,
    }
    if wrong := [flag for flag, value in given.items() if value]:
        raise refuse_flag(wrong[0])


def refuse_flag(flag: str) -> InputError:
    """Make the error of a flag that contradicts a society's file."""
    return InputError(
        f"{flag} cannot be combined with --society.",
        where=flag,
        next="Set it in the society's file; docs/societies.md shows how.",
    )


def _choose_models(roles: RoleFlags, models: ModelFlags, critic: CriticFlags) -> ChosenModels:
    """Return the model of each agent; ``human`` for a person."""
    by_agent = models.by_agent()
    if roles.as_ is not None:
        by_agent[roles.as_.value] = HUMAN
    if critic.critic == HUMAN:
        by_agent["critic"] = HUMAN
    agents = (*AGENTS, "critic") if critic.critic else AGENTS
    return choose_models(agents, models.model, by_agent)


def _play_society(
    name: str,
    idea: str | None,
    models: ModelFlags,
    flags: SessionFlags,
    output: OutputFlags,
    *,
    human: bool,
) -> NoReturn:
    """Play a society and end the command."""
    from bactrian.api.playing.society import SocietyOptions, build_society_run
    from bactrian.play.society.stages import name_models
    from bactrian.recipes.society import load_society

    society, _ = load_society(name)
    if human and not any(stage.critic for stage in society.stages):
        raise InputError(
            "No stage of this society has a critic.",
            where="--critic",
            next="Give a stage a [stages.critic] in a file of your own: docs/societies.md.",
        )
    usual = models.model or LOCAL
    names = name_models(
        society,
        usual,
        task_model=models.task_model,
        critic_model=HUMAN if human else models.critic_model,
    )
    options, stop_control = models.open(ChosenModels(names), person=HUMAN in names.values(), idea=idea)
    given = {usual, models.task_model, models.critic_model}
    options = replace(options, distrusted=frozenset(names.values()) - given)
    protocol = flags.protocol.value if flags.protocol else None
    society_run = build_society_run(
        name,
        _read_idea(idea or society.task),
        names,
        SocietyOptions(
            language=flags.language,
            seed=flags.seed,
            max_messages=flags.max_messages,
            protocol=protocol,
            prompts=flags.prompts,
            endings=flags.endings,
            **models.addresses(),
        ),
    )
    keeper = output.keep(options.meter)
    run_async(watch_society(society_run, options, keeper), resume=keeper, stop_control=stop_control)


def _read_idea(given: str) -> str:
    """Return the idea; a dash reads it from standard input."""
    if given != "-":
        return given
    # Invalid UTF-8 becomes surrogates, which the check of the idea refuses with a clear error.
    return sys.stdin.buffer.read().decode(errors="surrogateescape").strip()
