"""A kind of job of a package of its own: each job is a story, told by one agent chapter by chapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from bactrian.models.model import Request
from bactrian.recipes.schema import Axis, JobSpec, Recipe, make_fault
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Message, Turn
from bactrian.runs.cost import Estimate
from bactrian.runs.jobs import Grid, JobContext, JobCost, JobKind, SessionCost, make_filler
from bactrian.runs.plan import Plan
from bactrian.runs.scheduler import Job
from bactrian.store import RunStore


class Story(JobSpec):
    """Each job is a story of several chapters."""

    key: ClassVar[str] = "story"
    templates: ClassVar[tuple[str, ...]] = ("plot",)
    later_axes: ClassVar[tuple[str, ...]] = ("mood",)

    plot: Annotated[str, Field(min_length=1)]
    chapters: Annotated[int, Field(gt=0, strict=True)] = 2
    moods: dict[str, str]

    def check(self, recipe: Recipe) -> None:
        """A hero is an axis of its own."""
        if all(axis.name != "hero" for axis in recipe.axes):
            raise make_fault("a story has an axis named hero", "axes", 0, "name")


class StoryJobs(JobKind[Story]):
    """The stories of a plan."""

    spec = Story
    agents = ("teller",)

    async def read_grid(self) -> Grid:
        mood = Axis(name="mood", count=len(self.job.moods), given=tuple(self.job.moods))
        return Grid.of((*self.plan.recipe.axes, mood))

    async def estimate(self) -> JobCost:
        each = Estimate(self.job.chapters, self.job.chapters, self.job.chapters)
        return JobCost(SessionCost(each, each, each, Estimate(0, 0, 0), "Guessed."), ("teller",))

    async def open(self, context: JobContext) -> Teller:
        return Teller(self.plan, self.job, context)


class Teller:
    """Asks for chapter after chapter. All stories but the first wait for the file ``go`` after their first chapter."""

    def __init__(self, plan: Plan, story: Story, context: JobContext) -> None:
        self._fill = make_filler(plan)
        self._story = story
        self._model = context.models["teller"]

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        plot = f"{self._fill('plot', job.values)} {self._story.moods[job.values['mood']]}"
        session = await store.begin(
            Session(
                job.id,
                Role("Teller"),
                Role("Listener"),
                Task(plot),
                Provenance("stories", "", "free", models={"assistant": self._model.name}),
                values=job.values,
            )
        )
        yield Started(session)
        for number in range(len(session.turns) + 1, self._story.chapters + 1):
            while number > 1 and job.number > 0 and not Path("go").exists():
                note(f"{job.id} waits")
                await asyncio.sleep(0.01)
            note(f"{job.id} chapter {number}")
            reply = await self._model.reply(
                Request((Message("user", Text(plot)),), session=job.id, agent="teller", call_index=number - 1)
            )
            turn = Turn(
                number,
                "assistant",
                "Teller",
                Text(reply.text),
                None,
                reply.usage,
                0.0,
                None,
                reply.model,
                "stop",
            )
            await store.add_turn(session.id, turn)
            yield Spoke(turn)
        ending = Ending("told", self._story.chapters, "assistant", "")
        await store.end(session.id, ending, session.usage)
        yield Ended(ending)
        note(f"{job.id} ended")


def note(line: str) -> None:
    """Keep a line that a test can read after a kill."""
    with Path("notes.txt").open("a") as file:
        file.write(f"{line}\n")
