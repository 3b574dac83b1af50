"""Jobs of a society: several agents, or several conversations one after another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from bactrian.generate.jobs.role_play import SEEDS_APART, TemplateFiller
from bactrian.generate.scheduler import Job
from bactrian.models.model import Model
from bactrian.play.society.group_chat import ChatOptions
from bactrian.play.society.stages import SocietyRun, play_society
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.recipes.schema import SocietyJob
from bactrian.recipes.society import Society, SocietyPrompts
from bactrian.records.events import Ended, Event, Started
from bactrian.records.session import Session
from bactrian.store import Store


class SocietyJobs:
    """A society works on one task after another.

    The session of its last stage has the job's id, so that a job is done when that session has ended; those of the
    stages before it have the job's id and the stage's name.
    """

    def __init__(
        self,
        leaf: SocietyJob,
        axes: frozenset[str],
        society: tuple[Society, SocietyPrompts],
        models: Mapping[str, Model],
        tools: Mapping[str, Toolbox] = NO_TOOLS,
        *,
        seed: int | None,
        mark: str | None,
    ) -> None:
        self._fill = TemplateFiller({"task": leaf.task}, axes)
        self._models = models
        self._seed = seed
        names = {agent: model.name for agent, model in models.items() if agent != "lister"}
        self._wish = SocietyRun(
            *society,
            task="",
            given=ChatOptions(names, leaf.language, seed, leaf.max_messages, leaf.protocol),
            pack=leaf.prompts,
            paper_endings=leaf.endings == "paper",
            mark=mark,
            tools=tools,
        )

    async def events(self, cell: Job, store: Store) -> AsyncGenerator[Event]:
        """Play the stages; only the ending of the last one, or of one that broke off, is given."""
        seed = None if self._seed is None else self._seed + SEEDS_APART * cell.number
        wish = replace(
            self._wish,
            task=self._fill("task", cell.values),
            given=replace(self._wish.given, seed=seed),
            name=cell.id,
            values=cell.values,
        )
        session: Session | None = None
        async for event in play_society(wish, self._models, store):
            match event:
                case Started(session):
                    yield event
                case Ended(ending) if ending.final and session is not None and session.id != cell.id:
                    pass
                case _:
                    yield event
