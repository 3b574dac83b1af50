"""Runs jobs of one question and its answer (the paper's math and science data sets)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from bactrian.generate.jobs.base import JobContext, JobCost, JobKind, make_filler
from bactrian.generate.jobs.role_play import AGENTS
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import Estimate, SessionCost
from bactrian.models.traits import get_traits
from bactrian.play.agent import Agent
from bactrian.play.endings.rules import EndpointRefused
from bactrian.play.run_session import begin_session, run_scene
from bactrian.play.scene import Scene
from bactrian.recipes.job_specs import Answer
from bactrian.recipes.parameters import apply_parameters
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
    """Ends the session after the answer."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return Ending("answered", last.number, "assistant", "") if last.speaker == "assistant" else None


@dataclass(frozen=True, slots=True)
class _QuestionFirst:
    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        return "assistant" if turns else "user"


_QUESTION_TOKENS = 180
"""Includes the system prompt."""
_ANSWER_TOKENS = 500


class AnswerJobs(JobKind[Answer]):
    """Runs jobs of one question and its answer."""

    spec = Answer
    agents = AGENTS

    async def estimate(self) -> JobCost:
        """Estimate one call per session, with a range from a third of the assumed tokens to three times as many."""
        question, answer = _QUESTION_TOKENS, _ANSWER_TOKENS
        session = SessionCost(
            Estimate(1, 1, 1),
            Estimate(question, question / 3, question * 3),
            Estimate(answer, answer / 3, answer * 3),
            Estimate(0, 0, 0),
            f"Nothing of this run has ended yet. Assumed: {question} tokens a question and {answer} an answer; "
            "the range is a third to three times that.",
        )
        return JobCost(session, ("assistant",), given_turns=1)

    async def open(self, context: JobContext) -> AnswerPlayer:
        """Return the player of the questions."""
        return AnswerPlayer(self.plan, self.job, context)


class AnswerPlayer:
    """Asks a model one question. The question is the session's first turn, the answer its second."""

    def __init__(self, plan: Plan, spec: Answer, context: JobContext) -> None:
        self._spec = spec
        self._fill = make_filler(plan)
        self._recipe = plan.recipe.name
        self._model = context.models["assistant"]
        self._seeds = context.seeds
        self._parameters = plan.parameters.get("assistant", ())
        self._mark = plan.mark
        self._hash = hashlib.sha256(f"{spec.system}\0{spec.question}".encode()).hexdigest()

    def _sample(self, longest: int, seed: int | None) -> Sampling:
        usual = Sampling(self._spec.temperature, max_tokens=longest, seed=seed)
        return apply_parameters(usual, self._parameters)

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, whose task is the question."""
        spec = self._spec
        seed = self._seeds.find_job(job.number)
        small = get_traits(self._model).small
        longest = min(spec.max_tokens, 600) if small else spec.max_tokens
        return Session(
            id=job.id,
            assistant=Role(spec.role),
            user=Role("User"),
            task=Task(clean_text(self._fill("question", job.values))),
            provenance=Provenance(
                prompts=f"recipe {self._recipe}",
                prompts_hash=self._hash,
                protocol="free",
                models={"assistant": self._model.name},
                sampling={"assistant": self._sample(longest, seed)},
            ),
            values=job.values,
            mark=self._mark,
        )

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Store the question, ask the model, and store the answer."""
        session = await begin_session(self._session(job), store)
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
        async with aclosing(run_scene(scene, store)) as events:
            async for event in events:
                yield event


def _question(session: Session) -> Turn:
    """Return the first turn. The question is an item of an axis, and its cost is counted with the axis's list."""
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
