"""Jobs of a society: several agents, or several conversations one after another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from bactrian.generate.jobs.base import JobContext, JobCost, JobKind, ModelChoice, make_filler
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import guess_role_plays
from bactrian.models.registry import find_traits
from bactrian.play.endings.own import read_endings
from bactrian.play.society.group_chat import ChatOptions
from bactrian.play.society.stages import SocietyRun, name_models, play_society
from bactrian.prompts.pack import load_pack
from bactrian.recipes.job_specs import SocietyJob
from bactrian.recipes.schema import Recipe, ToolsSpec
from bactrian.recipes.society import Society, SocietyPrompts, load_society
from bactrian.records.events import Ended, Event, Started
from bactrian.records.session import Session
from bactrian.store import Store


class SocietyJobs(JobKind[SocietyJob]):
    """Runs jobs in which a society works on one task.

    The session of the last stage has the job's id, so that a job is done when that session has ended. The sessions of
    earlier stages are named by the job's id and the stage's name.
    """

    spec = SocietyJob

    @classmethod
    def name_models(cls, recipe: Recipe, choice: ModelChoice) -> dict[str, str]:
        """Return the models of the society's agents and of the helpers in its stages."""
        society, _ = load_society(cast("SocietyJob", recipe.job).file)
        return name_models(
            society,
            choice.default,
            task_model=choice.by_agent.get("task_specifier"),
            critic_model=choice.by_agent.get("critic"),
        )

    @property
    def limit(self) -> int | None:
        """Messages at which the last stage ends at the latest; None where neither recipe nor society says it."""
        return self.job.max_messages or self._society[0].stages[-1].max_messages

    def content(self) -> Mapping[str, Any]:
        """Return the society as JSON.

        Raises:
            PromptError: the prompt pack of its role-plays uses an axis that the recipe lacks.
        """
        if self.job.prompts is not None:
            load_pack(self.job.prompts).check_axes(self.plan.axis_names)
        return {"society": self._society[0].model_dump(mode="json", exclude_none=True)}

    def tools(self) -> Mapping[str, ToolsSpec]:
        """Return the tools of the society's agents."""
        return self._society[0].tools

    async def estimate(self) -> JobCost:
        """Estimate one typical role-play per stage."""
        speakers = tuple(agent for agent in self.plan.models if agent != "lister")
        small = all(find_traits(self.plan.models[agent]).small for agent in speakers)
        return JobCost(
            guess_role_plays(self.job.max_messages, small=small),
            speakers,
            sessions=len(self._society[0].stages),
        )

    async def open(self, context: JobContext) -> SocietyPlayer:
        """Return the player of the stages."""
        return SocietyPlayer(self.plan, self.job, self._society, context)

    @cached_property
    def _society(self) -> tuple[Society, SocietyPrompts]:
        return load_society(self.job.file)


class SocietyPlayer:
    """Plays the stages of one job after another."""

    def __init__(
        self, plan: Plan, spec: SocietyJob, society: tuple[Society, SocietyPrompts], context: JobContext
    ) -> None:
        self._fill = make_filler(plan)
        self._models = context.models
        self._seeds = context.seeds
        names = {agent: model.name for agent, model in context.models.items() if agent != "lister"}
        endings, paper = read_endings(spec.endings)
        self._settings = SocietyRun(
            *society,
            task="",
            given=ChatOptions(names, spec.language, None, spec.max_messages, spec.protocol),
            pack=spec.prompts,
            paper_endings=paper,
            endings=endings,
            mark=plan.mark,
            tools=context.tools,
        )

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Play the stages. Yield only the ending of the last stage, or of a stage that was interrupted."""
        settings = replace(
            self._settings,
            task=self._fill("task", job.values),
            given=replace(self._settings.given, seed=self._seeds.find_job(job.number)),
            name=job.id,
            values=job.values,
        )
        session: Session | None = None
        async for event in play_society(settings, self._models, store):
            match event:
                case Started(session):
                    yield event
                case Ended(ending) if ending.final and session is not None and session.id != job.id:
                    pass
                case _:
                    yield event
