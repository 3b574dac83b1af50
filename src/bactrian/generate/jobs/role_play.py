"""Jobs in which two agents solve a task together (paper, section 3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from bactrian.errors import InputError
from bactrian.generate.fork import find_task
from bactrian.generate.jobs.base import (
    JobContext,
    JobCost,
    JobKind,
    ListStyle,
    TemplateFiller,
    make_filler,
)
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import guess_role_plays
from bactrian.play.embodied.body import Body, open_body
from bactrian.play.endings.own import read_endings
from bactrian.play.run_session import begin_session, run_role_play
from bactrian.play.setup import RolePlaySetup, new_session
from bactrian.play.tools.loading import DEFAULT_LIMITS
from bactrian.prompts.pack import Pack, load_pack
from bactrian.recipes.job_specs import RolePlay
from bactrian.recipes.schema import Recipe, ToolsSpec, to_critic_settings
from bactrian.records.candidate import CriticSettings
from bactrian.records.events import Event
from bactrian.records.session import Provenance, Role, Session
from bactrian.records.tool import Toolkit
from bactrian.records.usage import Usage
from bactrian.store import Store

AGENTS = ("task_specifier", "task_planner", "user", "assistant")
"""The agents whose models are frozen in a run. The format has always named all four, including unused ones."""
_SPECIFIED = Usage(prompt=140, completion=70)
_PLANNED = Usage(prompt=200, completion=200)


class RolePlayJobs(JobKind[RolePlay]):
    """Runs jobs of one conversation of two agents."""

    spec = RolePlay
    agents = AGENTS

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that a red-team recipe has a preamble, since none is shipped."""
        job = recipe.job
        if recipe.red_team and isinstance(job, RolePlay) and not job.preamble:
            raise InputError(
                "This recipe needs a preamble, and none is shipped.",
                where="role_play.preamble",
                next="Give your own: --set role_play.preamble=TEXT",
            )

    @property
    def limit(self) -> int:
        """Messages at which a conversation ends at the latest."""
        return self._setup.limit

    def content(self) -> Mapping[str, Any]:
        """Return the name and hash of the prompt pack.

        Raises:
            PromptError: it uses an axis that the recipe lacks.
        """
        self._pack.check_axes(self.plan.axis_names)
        return {"prompts": {"name": self._pack.name, "hash": self._pack.hash}}

    def tools(self) -> Mapping[str, ToolsSpec]:
        """Return the tools of the agent that has tools."""
        tools = self.plan.recipe.tools
        return {} if tools is None else {tools.agent: tools}

    def list_style(self) -> ListStyle:
        """Return the preamble of the conversations, and enforce the list format if they enforce theirs."""
        return ListStyle(self.job.preamble, enforced=self.job.protocol == "enforced")

    async def estimate(self) -> JobCost:
        """Estimate a typical role-play, with the preparation of its task."""
        job = self.job
        return JobCost(
            guess_role_plays(job.longest, small=self._setup.small),
            ("user", "assistant"),
            preparation=(*[_SPECIFIED] * job.specify, *[_PLANNED] * job.plan),
            critic=self.plan.recipe.critic,
        )

    async def open(self, context: JobContext) -> RolePlayPlayer:
        """Return the player of the role-plays."""
        if not self.job.embodied:
            return RolePlayPlayer(self.plan, self._setup, self._pack, context)
        actions = context.tools.get("assistant")
        embodiment = partial(open_body, actions, actions.kit if actions is not None else DEFAULT_LIMITS)
        async with embodiment() as body:
            kits = {"assistant": body.kit}
        return RolePlayPlayer(self.plan, self._setup, self._pack, context, kits, embodiment)

    @cached_property
    def _pack(self) -> Pack:
        return load_pack(self.job.prompts or self._setup.pack)

    @cached_property
    def _setup(self) -> RolePlaySetup:
        """The settings that all role-plays of the run share."""
        job, critic = self.job, self.plan.recipe.critic
        temperatures = {
            "assistant": job.temperature,
            "user": job.temperature,
            "task_specifier": job.specify_temperature,
        }
        endings, paper = read_endings(job.endings)
        return RolePlaySetup(
            idea="",
            assistant=Role(""),
            user=Role(""),
            models={agent: name for agent, name in self.plan.models.items() if agent != "lister"},
            specify=job.specify,
            word_limit=job.word_limit,
            plan=job.plan,
            protocol=job.protocol,
            paper_endings=paper,
            endings=(*endings, *self.plan.endings),
            max_messages=job.max_messages,
            language=job.language,
            preamble=job.preamble,
            needs_code=job.needs_code,
            critic=critic and to_critic_settings(critic),
            temperatures={agent: value for agent, value in temperatures.items() if value is not None},
            parameters=self.plan.parameters,
        )


class RolePlayPlayer:
    """Plays the role-plays of a run."""

    def __init__(
        self,
        plan: Plan,
        setup: RolePlaySetup,
        pack: Pack,
        context: JobContext,
        kits: Mapping[str, Toolkit] = MappingProxyType({}),
        embodiment: Callable[[], AbstractAsyncContextManager[Body]] | None = None,
    ) -> None:
        """Prepare the settings. ``embodiment`` opens the body of a session's assistant; ``kits`` contains its tools."""
        self._fill = make_filler(plan)
        critic = setup.critic
        self._fill_critic = TemplateFiller(
            {"role": critic.role, "criteria": critic.criteria} if critic else {}, plan.axis_names
        )
        self._setup = replace(
            setup, tools={**{agent: box.kit for agent, box in context.tools.items()}, **kits}
        )
        self._tools = context.tools
        self._embodiment = embodiment
        self._pack = pack
        self._models = context.models
        self._seeds = context.seeds
        self._has_tasks = context.has_tasks
        self._mark = plan.mark
        self._rules = setup.rules()
        self._last: tuple[int | None, CriticSettings | None, Provenance | None] = (None, None, None)
        """Seed, critic and provenance of the newest session."""

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, before its first turn."""
        fill, values = self._fill, job.values
        setup = replace(
            self._setup,
            idea=fill("idea", values),
            assistant=Role(fill("assistant", values), fill("assistant_description", values).strip()),
            user=Role(fill("user", values), fill("user_description", values).strip()),
            seed=self._seeds.find_job(job.number),
            critic=self._critic(values),
        )
        # Sessions with the same seed and critic share one provenance object, to save memory.
        last = self._last if self._last[:2] == (setup.seed, setup.critic) else (None, None, None)
        session = new_session(setup, self._pack, name=job.id, provenance=last[2])
        self._last = (setup.seed, setup.critic, session.provenance)
        return replace(session, values=values, mark=self._mark)

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Specify the task, then play."""
        session = self._session(job)
        if self._has_tasks:
            session = replace(session, task=await find_task(store, job.id, session.task.original))
        session = await begin_session(session, store)
        async with AsyncExitStack() as stack:
            tools = self._tools
            if self._embodiment is not None:
                body = await stack.enter_async_context(self._embodiment())
                body.resume(session, store.path)
                tools = {**tools, "assistant": body}
            events = await run_role_play(
                session,
                self._setup,
                self._pack,
                self._models,
                store=store,
                rules=self._rules,
                tools=tools,
            )
            async with aclosing(events):
                async for event in events:
                    yield event

    def _critic(self, values: Mapping[str, str]) -> CriticSettings | None:
        critic, fill = self._setup.critic, self._fill_critic
        if critic is None:
            return None
        return replace(critic, role=fill("role", values).strip(), criteria=fill("criteria", values).strip())
