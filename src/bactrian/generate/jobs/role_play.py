"""What is done at each job of a recipe: a role-play, an answer, or a translation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Protocol

from bactrian.files.template import compile_template
from bactrian.generate.scheduler import Job
from bactrian.models.model import Model
from bactrian.play.run_session import begin_session, run_role_play
from bactrian.play.setup import RolePlaySetup, new_session
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.prompts.pack import Pack
from bactrian.recipes.schema import RolePlay
from bactrian.records.candidate import CriticSettings
from bactrian.records.events import Event
from bactrian.records.session import Provenance, Role, Session
from bactrian.store import Store

RED_TEAM = "red-team"
"""The mark of a session that was made to study misuse."""


class JobPlayer(Protocol):
    """Does a job."""

    def events(self, cell: Job, store: Store) -> AsyncGenerator[Event]:
        """Play the session of ``cell`` from where it is to its ending; each event is on disk when it is given.

        A model that fails ends it as ``failed``; a fault of the endpoint leaves it open.

        Raises:
            InputError: an item of the cell cannot be a role or an idea.
        """
        ...


class TemplateFiller:
    """Templates of a leaf, compiled once and filled with the items of each job."""

    def __init__(self, templates: Mapping[str, str], names: frozenset[str]) -> None:
        self._compiled = {
            key: compile_template(text, may=names) if "{" in text else text
            for key, text in templates.items()
            if text
        }

    def __call__(self, key: str, values: Mapping[str, str]) -> str:
        """The text of template ``key``; empty if the recipe has none."""
        template = self._compiled.get(key, "")
        return template if isinstance(template, str) else template.render(values)


class RolePlayJobs:
    """Two agents solve a task together (paper, section 3)."""

    def __init__(
        self,
        leaf: RolePlay,
        axes: frozenset[str],
        setup: RolePlaySetup,
        pack: Pack,
        models: Mapping[str, Model],
        tools: Mapping[str, Toolbox] = NO_TOOLS,
        *,
        mark: str | None,
    ) -> None:
        keys = ("assistant", "user", "idea", "assistant_description", "user_description")
        self._fill = TemplateFiller({key: getattr(leaf, key) for key in keys}, axes)
        critic = setup.critic
        self._fill_critic = TemplateFiller(
            {"role": critic.role, "criteria": critic.criteria} if critic else {}, axes
        )
        self._setup = replace(setup, tools={agent: box.kit for agent, box in tools.items()})
        self._tools = tools
        self._pack = pack
        self._models = models
        self._mark = mark
        self._rules = setup.rules()
        self._provenance: Provenance | None = None

    def _session(self, cell: Job) -> Session:
        """The session of ``cell``, before anything was said."""
        fill, values = self._fill, cell.values
        seed = self._setup.seed
        setup = replace(
            self._setup,
            idea=fill("idea", values),
            assistant=Role(fill("assistant", values), fill("assistant_description", values).strip()),
            user=Role(fill("user", values), fill("user_description", values).strip()),
            seed=None if seed is None else seed + SEEDS_APART * cell.number,
            critic=self._critic(values),
        )
        session = new_session(setup, self._pack, name=cell.id)
        if session.provenance == self._provenance:
            # One record of where they come from for all of a run's sessions in memory.
            session = replace(session, provenance=self._provenance)
        else:
            self._provenance = session.provenance
        return replace(session, values=values, mark=self._mark)

    async def events(self, cell: Job, store: Store) -> AsyncGenerator[Event]:
        """Specify the task, then play."""
        session = await begin_session(self._session(cell), store)
        events = run_role_play(
            session,
            self._setup,
            self._pack,
            self._models,
            store=store,
            rules=self._rules,
            tools=self._tools,
        )
        async for event in events:
            yield event

    def _critic(self, values: Mapping[str, str]) -> CriticSettings | None:
        critic, fill = self._setup.critic, self._fill_critic
        if critic is None:
            return None
        return replace(critic, role=fill("role", values).strip(), criteria=fill("criteria", values).strip())


SEEDS_APART = 10_000
"""Between the seeds of two jobs; more than the turns of a session, each of which adds one."""
