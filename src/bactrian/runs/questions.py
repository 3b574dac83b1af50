"""Runs jobs of one question and its answer (the paper's math and science data sets)."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import cast

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.models.model import Request, get_traits
from bactrian.models.seeds import derive_sampling
from bactrian.protocol.markers import DONE, read_instruction, read_solution
from bactrian.recipes.job_specs import Answer, Translate
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import Axis, Recipe
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.run import Progress
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Sampling, Speaker, Turn, Usage
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.endings import EndpointRefused
from bactrian.roleplay.start import begin_session, end_as_failed, run_scene
from bactrian.roleplay.turns import Scene
from bactrian.runs.cost import Estimate
from bactrian.runs.jobs import (
    AGENTS,
    Grid,
    JobContext,
    JobCost,
    JobKind,
    SessionCost,
    make_filler,
)
from bactrian.runs.plan import Plan
from bactrian.runs.scheduler import Job
from bactrian.store import RunStore, open_store


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
        assumed = f"{question} tokens a question and {answer} an answer"
        return JobCost(SessionCost.guess(1, question, answer, assumed), ("assistant",), given_turns=1)

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

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, whose task is the question."""
        spec = self._spec
        longest = min(spec.max_tokens, 600) if get_traits(self._model).small else spec.max_tokens
        usual = Sampling(spec.temperature, max_tokens=longest, seed=self._seeds.find_job(job.number))
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
                sampling={"assistant": apply_parameters(usual, self._parameters)},
            ),
            values=job.values,
            mark=self._mark,
        )

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
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
            replace(session, turns=turns),
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


class QuestionPlayer(ABC):
    """Plays sessions whose turns are answers to separate questions, as a translation and a verdict are."""

    @abstractmethod
    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session of ``job`` as it is stored, the turns that it does not have yet, and its ending."""

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Store the turns that are missing one after another, then the ending.

        A model failure ends the session as ``failed``; an endpoint fault leaves it open.
        """
        session, turns, ending = await self.begin(job, store)
        yield Started(session)
        used = session.usage
        try:
            async with aclosing(turns):
                async for turn in turns:
                    used += turn.usage
                    await store.add_turn(session.id, turn)
                    yield Spoke(turn)
        except ModelError as error:
            # What was used is the preparation of a session without turns: its own turns would count twice.
            yield await end_as_failed(replace(session, preparation=used, turns=()), error, store)
            return
        await store.end(session.id, ending, used)
        yield Ended(ending)


# Runs jobs that translate a conversation of another run (the paper's translated AI Society).


_BOLD = r"(?:\*\*|__)"
_KEPT = re.compile(
    rf"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)"
    rf"|(?:^[ \t>#]*)?(?:{_BOLD}|\b)(?:Instruction|Solution|Input){_BOLD}?:{_BOLD}?"
    rf"(?:[ \t]*(?:None|N/A)\.?[ \t]*$)?"
    rf"|{_BOLD}?Next request\.?{_BOLD}?|{DONE})",
    re.MULTILINE | re.DOTALL,
)
"""Matches text that is not translated: the protocol's markers and fenced code."""


def find_source(spec: Translate) -> Path:
    """Return the path of the run to translate. Raises InputError if it is not given."""
    if not spec.source:
        raise InputError(
            "There is no run to translate.", where="translate.source", next="Name it: --set source=RUN"
        )
    return Path(spec.source).expanduser()


_SMALL_LONGEST = 600
"""Maximum tokens of a translated piece for the built-in model, whose window also contains the original."""


class TranslateJobs(JobKind[Translate]):
    """Runs jobs that translate one conversation into one language."""

    spec = Translate
    agents = AGENTS

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that a run to translate is given."""
        find_source(cast("Translate", recipe.job))

    def list_inputs(self) -> Sequence[Path]:
        """Return the run to translate."""
        return (find_source(self.job),)

    async def read_grid(self) -> Grid:
        """Return the grid of languages and sessions to translate."""
        sessions = tuple(one.id for one in await self._list_originals())
        if not sessions:
            raise InputError(
                "The run has no session that has ended.",
                where=str(find_source(self.job)),
                next="Finish it first.",
            )
        languages = self.plan.recipe.axes[0].items or ()
        pairs = ((language, session) for language in languages for session in sessions)
        numbers = {name_translation(*pair): number for number, pair in enumerate(pairs)}
        source = Axis.model_construct(name="source", count=len(sessions), given=sessions)
        return Grid((*self.plan.recipe.axes, source), numbers.get)

    async def estimate(self) -> JobCost:
        """Estimate from the originals: one or two calls for each turn, each with the translator's prompt."""
        originals = await self._list_originals()
        turns = _mean([one.turns for one in originals])
        said = _mean([one.completion for one in originals])
        prompt, completion = said + 70 * turns, 1.5 * said
        session = SessionCost(
            Estimate(1.2 * turns, 0.7 * turns, 2 * turns),
            Estimate(prompt, 0.6 * prompt, 2 * prompt),
            Estimate(completion, 0.8 * said, 3 * said),
            Estimate(0, 0, 0),
            f"Nothing of this run has ended yet. The {len(originals):,} originals have {turns:.0f} messages and "
            f"{said:.0f} tokens on average; assumed: half as many again in another language, up to three times as "
            "many.",
        )
        return JobCost(session, ("assistant",))

    async def open(self, context: JobContext) -> TranslatePlayer:
        """Open the run to translate, and return the player that translates it."""
        source = await context.stack.enter_async_context(open_store(find_source(self.job), read_only=True))
        return TranslatePlayer(self.plan, self.job, context, source)

    async def _list_originals(self) -> list[Progress]:
        """Return the finished sessions that have turns, in stored order."""
        async with open_store(find_source(self.job), read_only=True) as store:
            return [one async for one in store.progress() if one.ending not in (None, "failed") and one.turns]


def name_translation(language: str, session: str) -> str:
    """Return the id of the translation of a session."""
    return f"{language}_{session}"


def _mean(numbers: Sequence[int | None]) -> float:
    return fmean([number or 0 for number in numbers]) if numbers else 0.0


class TranslatePlayer(QuestionPlayer):
    """Translates sessions turn by turn. Markers, code and the done token stay unchanged."""

    def __init__(self, plan: Plan, spec: Translate, context: JobContext, source: RunStore) -> None:
        self._spec = spec
        self._fill = make_filler(plan)
        self._recipe = plan.recipe.name
        self._model = context.models["assistant"]
        self._source = source
        self._seeds = context.seeds
        self._parameters = plan.parameters.get("translator", ())
        self._hash = hashlib.sha256(spec.system.encode()).hexdigest()

    def _session(self, job: Job, original: Session) -> Session:
        """Return the session of ``job``, with the original's roles and task and without turns."""
        name = self._spec.languages.get(job.values["language"], job.values["language"])
        longest = self._spec.max_tokens
        longest = min(longest, _SMALL_LONGEST) if get_traits(self._model).small else longest
        usual = Sampling(self._spec.temperature, max_tokens=longest, seed=self._seeds.find_job(job.number))
        return replace(
            original,
            id=name_translation(job.values["language"], original.id),
            provenance=Provenance(
                prompts=f"recipe {self._recipe}",
                prompts_hash=self._hash,
                protocol="free",
                models={"translator": self._model.name},
                sampling={"translator": apply_parameters(usual, self._parameters)},
                language=name,
            ),
            turns=(),
            ending=None,
            preparation=Usage(),
            values={**original.values, **job.values},
        )

    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session, the turns that are not translated yet, and the ending of the original."""
        original = await self._original(job.values["source"])
        session = await begin_session(self._session(job, original), store)
        last = original.turns[-1]
        ending = original.ending or Ending("translated", last.number, last.speaker, "")
        return session, self._translate(original, session), ending

    async def _translate(self, original: Session, session: Session) -> AsyncGenerator[Turn]:
        for turn in original.turns[len(session.turns) :]:
            yield await self._turn(turn, session)

    async def _original(self, session_id: str) -> Session:
        original = await self._source.session(session_id)
        if original is None:
            raise InputError(f"Session {session_id} is no longer there.", where=str(self._source.path))
        return original

    async def _turn(self, turn: Turn, session: Session) -> Turn:
        begun = perf_counter()
        pieces: list[str] = []
        usage = Usage()
        model, fingerprint = "", None
        for number, piece in enumerate(_KEPT.split(turn.text)):
            if number % 2 or not any(character.isalpha() for character in piece):
                pieces.append(piece)
                continue
            text = piece.strip()
            reply = await self._model.reply(self._request(text, turn.number, number, session))
            usage += reply.usage
            model, fingerprint = reply.model, reply.fingerprint
            if not reply.text.strip():
                raise BadReply(f"The translation of turn {turn.number} is empty.", where=self._model.name)
            before = piece[: len(piece) - len(piece.lstrip())]
            pieces.append(before + reply.text.strip() + piece[len(piece.rstrip()) :])
        said = clean_text("".join(pieces))
        return replace(
            turn,
            text=Text(said),
            said=(read_instruction if turn.speaker == "user" else read_solution)(said),
            usage=usage,
            seconds=perf_counter() - begun,
            first_token=None,
            model=model or turn.model,
            fingerprint=fingerprint,
        )

    def _request(self, text: str, turn: int, piece: int, session: Session) -> Request:
        values = {"language": session.values["language"], "language_name": session.provenance.language or ""}
        sampling = session.provenance.sampling["translator"]
        return Request(
            messages=(
                Message("system", Text(self._fill("system", values).strip())),
                Message("user", Text(text)),
            ),
            sampling=derive_sampling(sampling, "translator", turn, piece),
            session=session.id,
            agent="translator",
            call_index=turn * 100 + piece,
        )
