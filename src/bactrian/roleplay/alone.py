"""An embodied agent without a partner: it is given thoughts, and acts until it answers in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace

from bactrian.options import SamplingSpec
from bactrian.protocol.pack import load_engine_prompts, render_prompt
from bactrian.recipes.parameters import apply_parameters
from bactrian.records.events import Event, Spoke, Started
from bactrian.records.session import Ending, Provenance, Role, Session, Task, check_role, check_text
from bactrian.records.text import Text
from bactrian.records.turn import HUMAN, Sampling, Speaker, Toolkit, Turn, Usage
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.endings import EndpointRefused
from bactrian.roleplay.setup import default_sampling
from bactrian.roleplay.start import OpenSession, PlayOrder, run_scene
from bactrian.roleplay.tool_turns import WithTools
from bactrian.roleplay.turns import Scene

_AGENT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbodiedOrder(PlayOrder):
    """One session of an embodied agent alone; its tools are those of ``assistant``."""

    thoughts: str  # What the agent is to do.
    role: Role
    model: str
    seed: int | None = None
    parameters: tuple[SamplingSpec, ...] = ()
    embodied: bool = True

    def make_session(self, kits: Mapping[str, Toolkit]) -> Session:
        """Return the new session, whose agent has the tools ``kits``."""
        check_text(self.thoughts, "idea")
        check_role(self.role, "embodied role")
        kit = kits[_AGENT]
        sampling = apply_parameters(default_sampling(_AGENT, self.model, self.seed), self.parameters)
        engine = load_engine_prompts().hash
        same = [self.thoughts, asdict(self.role), self.model, asdict(sampling), asdict(kit)]
        identity = hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return Session(
            id=self.name or identity,
            assistant=self.role,
            user=Role("User"),
            task=Task(self.thoughts),
            provenance=Provenance(
                prompts="embodied agent",
                prompts_hash=engine,
                engine_hash=engine,
                protocol="free",
                models={_AGENT: self.model},
                sampling={_AGENT: sampling},
                tools={_AGENT: kit},
            ),
        )

    async def play(self, opened: OpenSession) -> AsyncGenerator[Event]:
        """Return what lets the agent act; the thoughts are the first turn."""
        session, store = opened.session, opened.store
        thoughts = None if session.turns else make_first_turn(session.task.original, HUMAN)
        if thoughts is not None:
            session = replace(session, turns=(thoughts,))
            if store is not None:
                await store.add_turn(session.id, thoughts)
        role, body = session.assistant, opened.tools[_AGENT]
        system = render_prompt(
            "embodied_system",
            role=role.name,
            description=role.description,
            task=session.task.text,
            hands=body.describe(),
        )
        agents = {
            _AGENT: Agent(
                speaker=_AGENT,
                role=role,
                system=Text(system),
                model=opened.models[_AGENT],
                sampling=session.provenance.sampling.get(_AGENT, Sampling()),
                toolbox=body,
            )
        }
        rules = (EndpointRefused(), AnsweredInWords())
        scene = Scene(session, agents, ThoughtsFirst(), rules, {_AGENT: WithTools()}, opened.listener)
        events = run_scene(scene, store)
        return events if thoughts is None else _speak_first(thoughts, events)


async def _speak_first(thoughts: Turn, events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    """Yield the events of a new session, in which the person's thoughts are spoken and not found in the store."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Started):
                yield Started(replace(event.session, turns=()))
                yield Spoke(thoughts)
            else:
                yield event


@dataclass(frozen=True, slots=True)
class AnsweredInWords:
    """Ends the session after the agent's turn."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return Ending("answered", last.number, _AGENT, "") if last.speaker == _AGENT else None


@dataclass(frozen=True, slots=True)
class ThoughtsFirst:
    """Lets the agent answer what a person said first."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        return _AGENT if turns else "user"


def make_first_turn(thoughts: str, author: str = "") -> Turn:
    """Return the turn with which ``author`` begins, who is no model; it costs nothing."""
    return Turn(
        number=1,
        speaker="user",
        role="User",
        text=Text(thoughts),
        said=None,
        usage=Usage(),
        seconds=0.0,
        first_token=None,
        model=author,
        finish="stop",
    )
