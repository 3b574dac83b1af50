"""Jobs of one question and its answer (the paper's math and science data sets)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from bactrian.generate.jobs.role_play import SEEDS_APART, TemplateFiller
from bactrian.generate.scheduler import Job
from bactrian.models.model import Model
from bactrian.models.traits import get_traits
from bactrian.play.agent import Agent
from bactrian.play.endings import EndpointRefused
from bactrian.play.run_session import begin_session, run_scene
from bactrian.play.scene import Scene
from bactrian.recipes.schema import Answer
from bactrian.records.ending import Ending
from bactrian.records.events import Event
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Speaker, Turn
from bactrian.records.usage import Usage
from bactrian.store import Store


@dataclass(frozen=True, slots=True)
class AnswerGiven:
    """The one answer has been given."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return Ending("answered", last.number, "assistant", "") if last.speaker == "assistant" else None


@dataclass(frozen=True, slots=True)
class _QuestionFirst:
    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        return "assistant" if turns else "user"


class AnswerJobs:
    """A model answers one question. The question is the session's first turn, the answer its second."""

    def __init__(
        self,
        leaf: Answer,
        axes: frozenset[str],
        recipe: str,
        models: Mapping[str, Model],
        *,
        seed: int | None,
        mark: str | None,
    ) -> None:
        self._leaf = leaf
        self._fill = TemplateFiller({"system": leaf.system, "question": leaf.question}, axes)
        self._recipe = recipe
        self._model = models["assistant"]
        self._seed = seed
        self._mark = mark
        self._hash = hashlib.sha256(f"{leaf.system}\0{leaf.question}".encode()).hexdigest()

    def _session(self, cell: Job) -> Session:
        """The session of ``cell``: its task is the question."""
        leaf = self._leaf
        seed = None if self._seed is None else self._seed + SEEDS_APART * cell.number
        small = get_traits(self._model).small
        longest = min(leaf.max_tokens, 600) if small else leaf.max_tokens
        return Session(
            id=cell.id,
            assistant=Role(leaf.role),
            user=Role("User"),
            task=Task(clean_text(self._fill("question", cell.values))),
            provenance=Provenance(
                prompts=f"recipe {self._recipe}",
                prompts_hash=self._hash,
                protocol="free",
                models={"assistant": self._model.name},
                sampling={"assistant": Sampling(leaf.temperature, max_tokens=longest, seed=seed)},
            ),
            values=cell.values,
            mark=self._mark,
        )

    async def events(self, cell: Job, store: Store) -> AsyncGenerator[Event]:
        """Store the question, ask, store the answer."""
        session = await begin_session(self._session(cell), store)
        turns = session.turns
        if not turns:
            turns = (_question(session),)
            await store.add_turn(session.id, turns[0])
        agent = Agent(
            speaker="assistant",
            role=session.assistant,
            system=Text(self._fill("system", session.values).strip()),
            model=self._model,
            sampling=session.provenance.sampling["assistant"],
        )
        scene = Scene(
            Session(
                session.id,
                session.assistant,
                session.user,
                session.task,
                session.provenance,
                turns,
                session.ending,
            ),
            {"assistant": agent},
            _QuestionFirst(),
            (EndpointRefused(), AnswerGiven()),
        )
        async for event in run_scene(scene, store):
            yield event


def _question(session: Session) -> Turn:
    """The first turn. It was made as an item of an axis, and what that cost is with the axis's list."""
    return Turn(
        number=1,
        speaker="user",
        role=session.user.name,
        text=Text(session.task.original),
        said=None,
        usage=Usage(),
        seconds=0.0,
        first_token=None,
        model="",
        finish="stop",
    )
