"""One conversation from Python: :func:`play` waits for its end, :func:`stream` yields its events."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from bactrian.api.arguments import (
    ToolsLike,
    check_base_url,
    describe_session,
    read_limits,
    read_role,
    read_tools,
)
from bactrian.api.bridge import run_sync
from bactrian.api.collector import SessionCollector, yield_from_task
from bactrian.api.model_arguments import ChosenModels, ModelLike, choose_models, limit_time, open_access
from bactrian.errors import BactrianWarning, InputError
from bactrian.models.open import ModelOptions
from bactrian.options import Critic, PlayArguments, PlayOptions, check_names, check_values, fill_defaults
from bactrian.protocol.argument_names import use_python_words
from bactrian.recipes.parameters import read_parameters
from bactrian.records.events import Event
from bactrian.records.session import Role, Session
from bactrian.records.text import write_count
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.endings import EndingLike, read_endings
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import (
    EXAMPLE,
    EXAMPLE_SEED,
    RolePlaySetup,
    choose_role_names,
    complete_setup,
)
from bactrian.roleplay.start import play_one

if TYPE_CHECKING:
    from bactrian.roleplay.alone import EmbodiedOrder


AGENTS = ("task_specifier", "task_planner", "user", "assistant")


class Interrupted(KeyboardInterrupt):
    """Raised when Ctrl-C ends a session. ``session`` has the turns so far; the same call resumes a stored one.

    Example:
        >>> import bactrian as bt
        >>> def press_ctrl_c(messages):
        ...     raise KeyboardInterrupt
        >>> user = bt.Scripted(["Instruction: Name one.\\nInput: None"])
        >>> try:
        ...     _ = bt.play("Choose a tea", models={"user": user, "assistant": press_ctrl_c}, specify=False)
        ... except bt.Interrupted as interrupt:
        ...     print(interrupt.session.turns[-1].text)
        Instruction: Name one.
        Input: None
    """

    def __init__(self, session: Session | None, run: str | Path | None = None) -> None:
        resume = "" if run is None else f" It is stored in {run}; the same call resumes it."
        super().__init__(
            f"The session was interrupted; the attribute `session` of this exception has its turns.{resume}"
        )
        self.session = session


def play(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: ModelLike | None = None,
    models: Mapping[str, ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    **options: Unpack[PlayOptions],
) -> Session:
    """Let two agents solve a task together, and return the session.

    Without an idea, they play the paper's example. Works in a notebook, too.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> session = bt.play("Choose a tea", assistant="Tea merchant", model=bt.Scripted(script), specify=False)
        >>> session.ending.code
        'task_done'

    Args:
        idea: The task in one sentence.
        assistant: Role that solves the task: a name, or a :class:`Role` with a description.
        user: Role that gives instructions.
        model: Model of every agent: a name, an object with ``reply``, or a function of messages that returns a text.
            Default: the built-in model, or the assistant's if ``models`` has one for each side.
        models: Models by agent: ``user``, ``assistant``, ``critic``, ``task`` (specifier and planner).
        critic: Chooses each turn among several proposals: a :class:`Critic`, or its role.
        tools: Tools of the agents; see :data:`ToolsLike`.
        endings: Rules, and functions made by :func:`ending`, are added to the default endings; ``"paper"``,
            ``"camel"`` or codes replace them.
        run: File to store the session in. The same call resumes it, or returns it if it has ended.
        options: See :class:`PlayOptions`.

    Raises:
        InputError: an argument cannot be used.
        ModelError: a model fails before the first turn. A session that fails later is returned, with a warning.
        Interrupted: Ctrl-C was pressed; it is a KeyboardInterrupt, and has the turns so far.
        StoreError: the run is damaged, in use, or written by a newer version of this program.
    """
    check_names(play, options, PlayOptions)
    events = stream(
        idea,
        assistant=assistant,
        user=user,
        model=model,
        models=models,
        critic=critic,
        tools=tools,
        endings=endings,
        run=run,
        **options,
    )
    collected = SessionCollector()
    try:
        session = run_sync(collected.collect(events))
    except KeyboardInterrupt:
        raise Interrupted(collected.session, run) from None
    if session.ending is not None and session.ending.code == "failed":
        reason = collected.error or session.ending.evidence
        warnings.warn(
            f"The session {session.id} failed after {write_count(len(session.turns), 'turn')}: {reason}",
            BactrianWarning,
            2,
        )
    return session


async def stream(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: ModelLike | None = None,
    models: Mapping[str, ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    **options: Unpack[PlayOptions],
) -> AsyncGenerator[Event]:
    """Let two agents solve a task together, and yield the events. The arguments are those of :func:`play`.

    The next request is sent when the next event is requested. A model that fails ends the session as ``failed``.

    Example:
        >>> import asyncio
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> async def names():
        ...     events = bt.stream("Choose a tea", model=bt.Scripted(script), specify=False)
        ...     return [type(event).__name__ async for event in events]
        >>> asyncio.run(names())
        ['Started', 'Spoke', 'Spoke', 'Spoke', 'Ended']

    Raises:
        InputError: an argument cannot be used.
        StoreError: the run is damaged, in use, or written by a newer version of this program.
    """
    with use_python_words():
        check_names(stream, options, PlayOptions)
        check_values(
            {"idea": idea, "assistant": assistant, "user": user, "run": run, **options}, PlayArguments
        )
        order = order_session(
            idea,
            assistant,
            user,
            model,
            models,
            critic=critic,
            tools=tools,
            endings=endings,
            run=run,
            options=options,
        )
    async with aclosing(yield_from_task(play_one(order))) as events:
        async for event in events:
            yield event


def order_session(
    idea: str | None,
    assistant: str | Role | None,
    user: str | Role | None,
    model: ModelLike | None,
    models: Mapping[str, ModelLike] | None,
    *,
    critic: Critic | str | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    options: PlayOptions,
) -> SessionOrder | EmbodiedOrder:
    """Combine the arguments of :func:`play` into one order, which a command may change before it is played.

    Raises:
        InputError: an argument cannot be used.
    """
    options = copy(options)
    if idea is None:
        idea = EXAMPLE[0]
        options.setdefault("seed", EXAMPLE_SEED)
    embodied = options.get("embodied")
    _check_embodied(options, assistant=assistant, critic=critic)
    defaults = choose_role_names(idea)
    critic = Critic(critic) if isinstance(critic, str) else critic
    alone = embodied is not None and user is None
    agents = ("user", "assistant") if alone else (*AGENTS, CRITIC) if critic else AGENTS
    chosen = choose_models(agents, model, models)
    check_base_url(options.get("base_url"), chosen.names.values())
    access = open_access(options, chosen)
    if access.base_url is not None:
        options["base_url"] = access.base_url  # stored with the session, which is resumed there
    if embodied is not None and alone:
        if endings not in ((), "default"):
            raise InputError(
                "An embodied agent alone takes no endings.", where="endings", next="Leave them out."
            )
        from bactrian.api.embodied_play import build_embodied_order

        role = read_role(embodied, defaults[0])
        return build_embodied_order(idea, role, chosen, access, options, tools=tools, run=run)
    return build_session_order(
        idea,
        (read_role(embodied or assistant, defaults[0]), read_role(user, defaults[1])),
        chosen,
        access,
        options,
        critic=critic,
        tools=tools,
        endings=endings,
        run=run,
    )


def _check_embodied(
    options: PlayOptions, *, assistant: str | Role | None, critic: Critic | str | None
) -> None:
    """Refuse what does not go with an embodied role.

    Raises:
        InputError: such an argument was given.
    """
    if options.get("embodied") is None:
        return
    given = {
        "assistant": assistant is not None,
        "critic": critic is not None,
        "protocol": options.get("protocol") == "enforced",
    }
    if wrong := [name for name, value in given.items() if value]:
        raise InputError(
            f"{wrong[0]} cannot be combined with embodied.",
            where=wrong[0],
            next="Leave it out; docs/embodied.md shows what an embodied agent can do.",
        )


_NO_AXES = "Use another pack, or a recipe with these axes: bactrian generate RECIPE --set prompts=PACK."


def build_session_order(
    idea: str,
    roles: tuple[Role, Role],
    models: ChosenModels,
    access: ModelOptions,
    options: PlayOptions,
    *,
    critic: Critic | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    name: str | None = None,
) -> SessionOrder:
    """Combine the arguments of :func:`play` into one order. ``roles`` are those of assistant and user.

    ``name`` is the id of the stored session to continue.

    Raises:
        InputError: an argument cannot be used.
    """
    rules, paper = read_endings(endings)
    filled = fill_defaults(options, PlayOptions)
    setup = RolePlaySetup(
        idea=idea,
        assistant=roles[0],
        user=roles[1],
        models=models.names,
        word_limit=filled["word_limit"],
        plan=filled["plan"],
        protocol=filled["protocol"],
        paper_endings=paper,
        endings=rules,
        max_messages=filled["max_messages"],
        seed=filled["seed"],
        language=filled["language"],
        critic=critic.settings() if critic else None,
        parameters=read_parameters(options.get("parameters", {})).by_agent(),
    )
    specify, prompts = filled["specify"], filled["prompts"]
    setup, pack = complete_setup(setup, specify, prompts)
    pack.check_axes((), next=_NO_AXES)
    specs, functions = read_tools(tools or (), options)
    return SessionOrder(
        setup=setup,
        pack=pack,
        options=replace(access, objects={**access.objects, **limit_time(models.objects, access.timeout)}),
        tools=specs,
        functions=functions,
        run=Path(run) if run is not None else None,
        name=name,
        embodied=options.get("embodied") is not None,
        limits=read_limits(options),
        command=describe_session(
            idea, roles, models.names, options, critic=critic, tools=tools, endings=endings
        ),
    )
