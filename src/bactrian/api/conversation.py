"""One conversation from Python: :func:`play` waits for its end, :func:`stream` yields its events as they come."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from bactrian.api import arguments
from bactrian.api.bridge import run_sync, shorten_errors, shorten_traceback
from bactrian.api.endpoints import RunTerms, find_addresses, read_play_terms, read_terms, use_run_terms
from bactrian.errors import BactrianError, BactrianWarning, ContextFull, InputError, ModelError
from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.models.pricing import choose_prices
from bactrian.options import Critic, PlayArguments, PlayOptions, SocietyOptions, check_options, fill_defaults
from bactrian.recipes.parameters import read_parameters
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending, Role, Session
from bactrian.records.text import write_count
from bactrian.records.turn import Toolkit, Turn
from bactrian.roleplay.chosen_endings import EndingLike, read_endings
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import EXAMPLE, EXAMPLE_SEED, ROLES, RolePlaySetup, complete_setup
from bactrian.roleplay.start import play_one
from bactrian.runs.spending import add_paid, count_paid
from bactrian.store import open_store
from bactrian.store.locations import locate_file

if TYPE_CHECKING:
    from bactrian.roleplay.alone import EmbodiedOrder
    from bactrian.roleplay.society import SocietyRun


# Collects the events of a session into a session, for the Python API.


class SessionCollector:
    """Builds a session from its events."""

    def __init__(self) -> None:
        self._begun: Session | None = None
        self._turns: list[Turn] = []
        self._ending: Ending | None = None
        self.error: Exception | None = None  # What failed, once the session has ended

    @property
    def session(self) -> Session | None:
        """The session so far; None if it has not begun."""
        if self._begun is None:
            return None
        return replace(self._begun, turns=tuple(self._turns), ending=self._ending)

    def add(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case Started(session):
                self._begun, self._turns = session, list(session.turns)
            case Spoke(turn):
                self._turns.append(turn)
            case Ended(ending, error):
                self._ending, self.error = ending, error
            case _:
                pass

    async def collect(self, events: AsyncGenerator[Event], run: Path | None = None) -> Session:
        """Consume and close ``events``, and return the session, with what ``run`` knows that was paid for it.

        Raises:
            BactrianError: the session failed before its first turn.
        """
        async with aclosing(events):
            async for event in events:
                self.add(event)
                if isinstance(event, Ended) and (not self._turns or self._begun is None):
                    raise_failure(event)
        session = self.session
        if session is None:
            raise BactrianError("The session did not begin.", next="Report this.")
        if run is None:
            return session
        async with open_store(run, read_only=True) as store:
            return add_paid(session, await count_paid(store, [session.id]))


def raise_failure(event: Event) -> None:
    """Raise if ``event`` ends a session by a fault; ignore all other events.

    Raises:
        ModelError: a model failed, or the first request does not fit the context window.
    """
    if isinstance(event, Ended) and event.ending.code == "failed":
        raise event.error or ModelError(event.ending.evidence)
    if isinstance(event, Ended) and event.ending.code == "token_limit" and not event.ending.turn:
        raise ContextFull(
            f"The session has no turns: {event.ending.evidence.partition(chr(10))[0]}",
            next="Use a model with a larger window, or a shorter idea.",
        )


# Events from a task of their own, so that a caller may leave them at any time.


_Item = TypeVar("_Item")


async def yield_from_task(items: AsyncGenerator[_Item]) -> AsyncGenerator[_Item]:
    """Yield ``items``, which are produced in a task, each one when it is asked for.

    A caller that breaks out of its loop leaves closing to the event loop. At its end, the event loop closes all
    asynchronous generators at once, and those that wait for each other fail. It ends tasks before that, in order.
    """
    asked: asyncio.Queue[asyncio.Future[_Item | None]] = asyncio.Queue()

    async def produce() -> None:
        async with aclosing(items):
            while True:
                answer = await asked.get()
                try:
                    item = await anext(items, None)
                except Exception as error:  # noqa: BLE001  the caller gets it
                    if not answer.done():
                        answer.set_exception(error)
                    return
                if not answer.done():
                    answer.set_result(item)
                if item is None:
                    return

    task = asyncio.create_task(produce())
    try:
        while True:
            answer = asyncio.get_running_loop().create_future()
            asked.put_nowait(answer)
            done, _ = await asyncio.wait([task, answer], return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                break
            item = answer.result()
            if item is None:
                break
            yield item
    finally:
        task.cancel()
        if not task.done():
            await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


# One conversation from Python: :func:`play` waits for its end, :func:`stream` yields its events.


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


@shorten_errors
def play(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: arguments.ModelLike | None = None,
    models: Mapping[str, arguments.ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: arguments.ToolsLike | None = None,
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
    named = {"idea": idea, "assistant": assistant, "user": user, "run": run}
    check_options(play, {**named, **options}, PlayArguments)
    order = order_session(idea, assistant, user, model, models, critic, tools, endings, run, options=options)
    collected = SessionCollector()
    try:
        session = run_sync(collected.collect(play_one(order), order.run))
    except KeyboardInterrupt:
        raise Interrupted(collected.session, run) from None
    if session.ending is not None and session.ending.code == "failed":
        reason = collected.error or session.ending.evidence
        warnings.warn(
            f"The session {session.id} failed after {write_count(len(session.turns), 'turn')}: {reason}",
            BactrianWarning,
            3,  # the caller: the second is the frame that translates errors
        )
    return session


async def stream(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: arguments.ModelLike | None = None,
    models: Mapping[str, arguments.ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: arguments.ToolsLike | None = None,
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
    with shorten_traceback():
        named = {"idea": idea, "assistant": assistant, "user": user, "run": run}
        check_options(stream, {**named, **options}, PlayArguments)
        order = order_session(
            idea, assistant, user, model, models, critic, tools, endings, run, options=options
        )
    async with aclosing(yield_from_task(play_one(order))) as events:
        async for event in events:
            yield event


@dataclass(frozen=True, slots=True)
class AskingTerms:
    """Where the models of an order may be asked, and the stored session that it continues."""

    name: str | None = None  # The id of that session
    # Models of a file of unknown origin: a key goes to none of the addresses in their names.
    distrusted: frozenset[str] = frozenset()
    confirmed: Collection[str] | None = None  # To resume: the addresses that a person allows
    beside: Iterable[Path] = ()  # Runs whose models are asked where those runs asked them


_NEW = AskingTerms()


def order_session(
    idea: str | None,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: arguments.ModelLike | None = None,
    models: Mapping[str, arguments.ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: arguments.ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    *,
    options: PlayOptions,
    asking: AskingTerms = _NEW,
) -> SessionOrder | EmbodiedOrder:
    """Combine the arguments of :func:`play` into one order, which a command may change before it is played.

    Raises:
        InputError: an argument cannot be used.
    """
    options = copy(options)
    if idea is None:
        idea = EXAMPLE[0]
        options.setdefault("seed", EXAMPLE_SEED)
    critic = Critic(critic) if isinstance(critic, str) else critic
    embodied = options.get("embodied")
    alone = embodied is not None and user is None
    if embodied is not None:
        _check_embodied(options, assistant=assistant, critic=critic, endings=endings, alone=alone)
    roles = [
        role if isinstance(role, Role) else Role(usual if role is None else role)
        for role, usual in zip(
            (embodied or assistant, user), EXAMPLE[1:] if idea == EXAMPLE[0] else ROLES, strict=True
        )
    ]
    agents = ("user", "assistant") if alone else (*AGENTS, CRITIC) if critic else AGENTS
    chosen = arguments.choose_models(agents, model, models)
    arguments.check_base_url(options.get("base_url"), chosen.names.values())
    where = locate_file(run) if run is not None else None
    terms = where and read_play_terms(where, idea, chosen.names, asking.name)
    access, command = _open_access(options, chosen, where, terms, asking)
    specs, functions, stored_tools = arguments.read_tools(tools or (), options)
    filled = fill_defaults(options, PlayOptions)
    limits = Toolkit((), filled["tool_rounds"], filled["tool_timeout"])
    parameters = read_parameters(options.get("parameters", {})).by_agent()
    if any(map(arguments.is_object, chosen.names.values())):
        stored_tools[arguments.OWN] = True
    command |= {"idea": idea, "assistant": asdict(roles[0]), **stored_tools}
    if embodied is not None:
        command["embodied"] = roles[0].name
    if alone:
        from bactrian.roleplay.alone import EmbodiedOrder

        if wrong := specs.keys() - {"assistant"}:
            raise InputError(
                f"{min(wrong)!r} does not take part.",
                option="tools",
                next="Give the tools to the embodied role.",
            )
        return EmbodiedOrder(
            thoughts=idea,
            role=roles[0],
            model=chosen.names["assistant"],
            seed=filled["seed"],
            parameters=parameters.get("assistant", ()),
            options=access,
            tools=specs,
            functions=functions,
            limits=limits,
            run=where,
            name=asking.name,
            command=command,
        )
    rules, paper = read_endings(endings)
    setup, pack = complete_setup(
        RolePlaySetup(
            idea=idea,
            assistant=roles[0],
            user=roles[1],
            models=chosen.names,
            word_limit=filled["word_limit"],
            plan=filled["plan"],
            protocol=filled["protocol"],
            paper_endings=paper,
            endings=rules,
            max_messages=filled["max_messages"],
            seed=filled["seed"],
            language=filled["language"],
            critic=critic.settings() if critic else None,
            parameters=parameters,
        ),
        filled["specify"],
        filled["prompts"],
    )
    pack.check_axes((), next=_NO_AXES)
    text = endings if isinstance(endings, str) else None
    command |= {
        "user": asdict(roles[1]),
        "critic": critic and asdict(critic),
        "endings": text or "default",
        arguments.OWN: command[arguments.OWN] or (text is None and bool(rules)),
    }
    return SessionOrder(
        setup=setup,
        pack=pack,
        options=access,
        tools=specs,
        functions=functions,
        limits=limits,
        run=where,
        name=asking.name,
        embodied=embodied is not None,
        command=command,
    )


def _open_access(
    options: Mapping[str, Any],
    models: arguments.ChosenModels,
    run: Path | None,
    terms: RunTerms | None,
    asking: AskingTerms,
) -> tuple[ModelOptions, dict[str, Any]]:
    """Return the options for opening ``models``, with what counts their tokens and their cost, and the stored command.

    ``terms`` are those of the session in ``run`` that is continued.

    Raises:
        InputError: a model may not be asked where it would be, ``price`` is not a price, or there is a ``budget`` and a
            price is unknown.
    """
    names = list(models.names.values())
    others = [
        each for path in asking.beside if (each := read_terms(path)) and not each.models.isdisjoint(names)
    ]
    options = use_run_terms(options, names, terms, others, asking.confirmed)
    access, budget = arguments.build_model_options(options), options.get("budget")
    prices = choose_prices(names, options.get("price"), access.base_url, models.objects, budget=budget)
    access = replace(
        access,
        meter=UsageMeter(None, budget, prices),
        objects=arguments.limit_time(models.objects, access.timeout),
        distrusted=asking.distrusted,
        run="" if run is None else str(run.absolute()),
    )
    return access, {
        **arguments.describe_options({**options, "base_url": access.base_url}),
        "addresses": find_addresses(names, access.base_url),
        "models": dict(models.names),
    }


_NO_AXES = "Use another pack, or a recipe with these axes: bactrian generate RECIPE --set prompts=PACK."
_NOT_ALONE = ("plan", "language", "protocol", "prompts", "max_messages", "word_limit")


def _check_embodied(
    options: PlayOptions, *, assistant: object, critic: object, endings: object, alone: bool
) -> None:
    """Refuse what does not go with an embodied role.

    Raises:
        InputError: such an argument was given.
    """
    refused = {
        "assistant": assistant is not None,
        "critic": critic is not None,
        "protocol": options.get("protocol") == "enforced",
    }
    if wrong := [name for name, value in refused.items() if value]:
        raise InputError(
            "This cannot be combined with an embodied role.",
            option=wrong[0],
            next="Leave it out; `bactrian help embodied` shows what an embodied agent can do.",
        )
    if not alone:
        return
    if endings not in ((), "default"):
        raise InputError(
            "An embodied agent alone takes no endings.", option="endings", next="Leave them out."
        )
    usual = fill_defaults({}, PlayOptions)
    if wrong := [name for name in _NOT_ALONE if options.get(name, usual[name]) not in (None, usual[name])]:
        raise InputError(
            "An embodied agent alone does not take this option.",
            option=wrong[0],
            next="Leave it out, or give the agent a partner: user=ROLE.",
        )


def order_society(
    society: str,
    idea: str | None,
    model: str | None,
    models: Mapping[str, str],
    options: SocietyOptions,
    *,
    endings: str = "default",
    run: Path | None = None,
    asking: AskingTerms = _NEW,
) -> tuple[SocietyRun, ModelOptions]:
    """Combine a society, by its name or file, with the options of a command, and return it with its models.

    Args:
        society: A built-in name, or a .toml file.
        idea: The task; None for that of the society's file.
        model: Of all agents for which the society names none.
        models: Of ``task`` and ``critic``; to resume, those of all agents.
        options: The other options.
        endings: As a list of codes.
        run: The run that stores it.
        asking: As for order_session.

    Raises:
        InputError: the society or an option cannot be used.
    """
    from bactrian.recipes.society_file import load_society
    from bactrian.roleplay.society import ChatOptions, SocietyRun, name_models

    content, prompts = load_society(society)
    names = models
    if asking.confirmed is None:
        if models.get("critic") == HUMAN and not any(stage.critic for stage in content.stages):
            raise InputError(
                "No stage of this society has a critic.",
                option="critic",
                next="Give a stage a [stages.critic] in a file of your own: `bactrian help societies.md`.",
            )
        usual = model or arguments.LOCAL
        names = name_models(content, usual, task_model=models.get("task"), critic_model=models.get("critic"))
        arguments.check_base_url(options.get("base_url"), names.values())
        # A society's file may come from another person: the addresses in it get no key.
        asking = replace(asking, distrusted=frozenset(names.values()) - {usual, *models.values()})
    task = idea or content.task
    terms = run and read_play_terms(run, task, names, None)
    access, command = _open_access(options, arguments.ChosenModels(names), run, terms, asking)
    rules, paper = read_endings(endings)
    command |= {
        "endings": endings,
        "society": society,
        "content": content.model_dump(mode="json", exclude_none=True),
        "idea": task,
    }
    chat_options = ChatOptions(
        names,
        options.get("language"),
        options.get("seed"),
        options.get("max_messages"),
        options.get("protocol"),
    )
    ordered = SocietyRun(
        content,
        prompts,
        task,
        chat_options,
        options.get("prompts"),
        paper_endings=paper,
        endings=rules,
        name=asking.name,
        command=command,
    )
    return ordered, access
