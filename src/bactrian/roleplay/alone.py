"""An embodied agent without a partner: it is given thoughts, and acts until it answers in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bactrian.models.model import Model
from bactrian.models.open import ModelOptions
from bactrian.options import SamplingSpec
from bactrian.protocol.pack import load_engine_prompts, render_prompt
from bactrian.protocol.words import check_idea, check_role
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.events import Event
from bactrian.records.run import Command
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Sampling, Speaker, Toolkit, Turn, Usage
from bactrian.roleplay.agent import Agent, Listener
from bactrian.roleplay.embodied import Body, open_body
from bactrian.roleplay.endings import EndpointRefused
from bactrian.roleplay.setup import default_sampling
from bactrian.roleplay.start import begin_session, find_free_id, open_models, run_scene
from bactrian.roleplay.tool_sources import DEFAULT_LIMITS, open_tools
from bactrian.roleplay.tools import Runnable
from bactrian.roleplay.turns import Scene
from bactrian.store import RunStore, open_store

_AGENT = "assistant"
_PACK = "embodied agent"
"""What a session stores as the name of its prompts."""


@dataclass(frozen=True, slots=True)
class EmbodiedOrder:
    """One session of an embodied agent alone."""

    thoughts: str
    """What the agent is to do."""
    role: Role
    model: str
    options: ModelOptions
    tools: Mapping[str, ToolsSpec] = field(default_factory=dict[str, ToolsSpec])
    """The action space, under ``assistant``."""
    limits: Toolkit = DEFAULT_LIMITS
    seed: int | None = None
    parameters: tuple[SamplingSpec, ...] = ()
    run: Path | None = None
    functions: Mapping[str, Sequence[Callable[..., object] | Runnable]] = field(
        default_factory=dict[str, Sequence[Callable[..., object] | Runnable]]
    )
    """More actions: Python functions and other objects, under ``assistant``."""
    name: str | None = None
    """The id of the stored session to continue; None for the id that the options give."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as JSON values, without keys, to store with the session."""


@dataclass(frozen=True, slots=True)
class AnsweredInWords:
    """Ends the session after the agent's turn."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return Ending("answered", last.number, _AGENT, "") if last.speaker == _AGENT else None


@dataclass(frozen=True, slots=True)
class _ThoughtsFirst:
    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        return _AGENT if turns else "user"


async def play_embodied(
    order: EmbodiedOrder, listener: Listener | None = None, *, kept_in: RunStore | None = None
) -> AsyncGenerator[Event]:
    """Open store, actions and model, and let the agent act, or resume it.

    Raises:
        InputError: something in the order cannot be used.
        SandboxError: this computer has no sandbox.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    check_idea(order.thoughts)
    check_role(order.role, "embodied role")
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(open_tools(order.tools, order.functions))
        body = await stack.enter_async_context(open_body(tools.get(_AGENT), order.limits))
        session = _make_session(order, body.kit)
        store = await stack.enter_async_context(open_store(order.run)) if order.run else kept_in
        if order.name is not None:
            session = replace(session, id=order.name)
        elif store is not None and order.run is None:
            session = replace(session, id=await find_free_id(session.id, store))
        session = await begin_session(session, store)
        if store is not None and order.command and session.ending is None:
            await store.add_command(Command.begin("play", order.command, session.id))
        if not session.turns:
            thoughts = _make_first_turn(order)
            session = replace(session, turns=(thoughts,))
            if store is not None:
                await store.add_turn(session.id, thoughts)
        body.resume(session, None if store is None else store.path)
        sink = store.add_call if store is not None else None
        continues = session.ending is None or not session.ending.final
        models = await stack.enter_async_context(
            open_models(session.provenance.models, order.options, sink=sink, load=continues)
        )
        scene = _build_scene(session, models[_AGENT], body, listener)
        async with aclosing(run_scene(scene, store)) as events:
            async for event in events:
                yield event


def _build_scene(session: Session, model: Model, body: Body, listener: Listener | None) -> Scene:
    role = session.assistant
    system = render_prompt(
        "embodied_system", role=role.name, description=role.description, hands=body.describe()
    )
    agent = Agent(
        speaker=_AGENT,
        role=role,
        system=Text(system),
        model=model,
        sampling=session.provenance.sampling.get(_AGENT, Sampling()),
        toolbox=body,
    )
    rules = (EndpointRefused(), AnsweredInWords())
    return Scene(session, {_AGENT: agent}, _ThoughtsFirst(), rules, listener=listener)


def _make_session(order: EmbodiedOrder, kit: Toolkit) -> Session:
    usual = default_sampling(_AGENT, order.model, order.seed)
    sampling = apply_parameters(usual, order.parameters)
    engine = load_engine_prompts().hash
    same = [order.thoughts, asdict(order.role), order.model, asdict(sampling), asdict(kit)]
    name = hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return Session(
        id=name,
        assistant=order.role,
        user=Role("User"),
        task=Task(order.thoughts),
        provenance=Provenance(
            prompts=_PACK,
            prompts_hash=engine,
            engine_hash=engine,
            protocol="free",
            models={_AGENT: order.model},
            sampling={_AGENT: sampling},
            tools={_AGENT: kit},
        ),
    )


def _make_first_turn(order: EmbodiedOrder) -> Turn:
    return Turn(
        number=1,
        speaker="user",
        role="User",
        text=Text(order.thoughts),
        said=None,
        usage=Usage(),
        seconds=0.0,
        first_token=None,
        model="",
        finish="stop",
    )
