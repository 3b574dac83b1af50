"""Runs jobs of one question and its answer (math and science data sets), or of a conversation to translate."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import cast

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.models.model import Request, derive_sampling, get_traits
from bactrian.protocol.markers import DONE, read_instruction, read_solution
from bactrian.recipes.job_specs import Answer, Translate
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import Axis, Recipe
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.run import Progress
from bactrian.records.session import SOURCE, Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Sampling, Turn, Usage
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.alone import AnsweredInWords, ThoughtsFirst, make_first_turn
from bactrian.roleplay.endings import EndpointRefused
from bactrian.roleplay.start import end_as_failed, run_scene
from bactrian.roleplay.turns import Scene
from bactrian.runs.jobs import (
    AGENTS,
    Grid,
    JobContext,
    JobCost,
    JobKind,
    SessionCost,
    choose_counted,
    count_prompt,
    make_filler,
)
from bactrian.runs.plan import Plan
from bactrian.runs.scheduler import Job
from bactrian.store import RunStore, open_store

# The built-in model's window contains the question, or the original, too.
_SMALL_LONGEST = 600


def make_provenance(
    plan: Plan, context: JobContext, spec: Answer | Translate, agent: str, number: int, *prompts: str
) -> Provenance:
    """Return the provenance of the session of job ``number``, all of whose answers ``agent`` gives."""
    model = context.models["assistant"]
    longest: int | None = spec.max_tokens  # None for the samples of an evaluation
    if get_traits(model).small:
        longest = min(longest or _SMALL_LONGEST, _SMALL_LONGEST)
    usual = Sampling(spec.temperature, max_tokens=longest, seed=context.seeds.find_job(number))
    return Provenance(
        prompts=f"recipe {plan.recipe.name}",
        prompts_hash=hashlib.sha256("\0".join(prompts).encode()).hexdigest(),
        protocol="free",
        models={agent: model.name},
        sampling={agent: apply_parameters(usual, plan.parameters.get(agent, ()))},
    )


_QUESTION_TOKENS = 180  # with the system prompt
_ANSWER_TOKENS = 500


class AnswerJobs(JobKind[Answer]):
    """Runs jobs of one question and its answer."""

    spec = Answer
    agents = AGENTS

    async def estimate(self) -> JobCost:
        """Estimate one call per session, with a range from a third of the assumed tokens to three times as many."""
        question, answer = _QUESTION_TOKENS, min(self.job.max_tokens or _ANSWER_TOKENS, _ANSWER_TOKENS)
        assumed = f"{question} tokens a question and {answer} an answer"
        return JobCost(SessionCost.guess(1, question, answer, assumed), ("assistant",), free_turns=1)

    async def open(self, context: JobContext) -> AnswerPlayer:
        """Return the player of the questions."""
        return AnswerPlayer(self.plan, self.job, context)


class AnswerPlayer:
    """Asks a model one question. The question is the session's first turn, the answer its second."""

    def __init__(self, plan: Plan, spec: Answer, context: JobContext) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._fill = make_filler(plan)

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, whose task is the question."""
        plan, spec = self._plan, self._spec
        return Session(
            id=job.id,
            assistant=Role(spec.role),
            user=Role("User"),
            task=Task(clean_text(self._fill("question", job.values))),
            provenance=make_provenance(
                plan, self._context, spec, "assistant", job.number, spec.system, spec.question
            ),
            values=job.values,
            mark=plan.mark,
        )

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Store the question, ask the model, and store the answer."""
        session = await store.begin(self._session(job))
        if not session.turns:
            # Its cost is counted with the axis's list, of which the question is an item.
            session = replace(session, turns=(make_first_turn(session.task.original),))
            await store.add_turn(session.id, session.turns[0])
        agent = Agent(
            speaker="assistant",
            role=session.assistant,
            system=Text(self._fill("system", session.values).strip()),
            model=self._context.models["assistant"],
            sampling=session.provenance.sampling["assistant"],
        )
        rules = (EndpointRefused(), AnsweredInWords())
        scene = Scene(session, {"assistant": agent}, ThoughtsFirst(), rules)
        async with aclosing(run_scene(scene, store)) as events:
            async for event in events:
                yield event


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
_TRANSLATED = 1.5
"""Tokens of a translation for each one of the original, as most languages need more of them than English."""


def list_pieces(turn: Turn) -> list[tuple[int, str]]:
    """Return the pieces of a turn that are translated, each with its position among all."""
    pieces = enumerate(_KEPT.split(turn.text))
    return [(number, piece) for number, piece in pieces if number % 2 == 0 and any(map(str.isalpha, piece))]


def find_source(spec: Translate) -> Path:
    """Return the path of the run to translate. Raises InputError if it is not given."""
    if not spec.source:
        raise InputError(
            "There is no run to translate.", option="translate.source", next="Name it: translate.source=RUN"
        )
    return Path(spec.source).expanduser()


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
        sessions = tuple(session.id for session in await self._list_originals())
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
        """Count the pieces of the originals that are translated, each a call with the translator's prompt."""
        originals = choose_counted(await self._list_originals())
        system = make_filler(self.plan)("system", dict.fromkeys(("language", "language_name"), "language"))
        calls = prompt = written = 0
        async with open_store(find_source(self.job), read_only=True) as store:
            for original in originals:
                session = await store.session(original.id)
                pieces = (
                    [piece for turn in session.turns for _, piece in list_pieces(turn)] if session else []
                )
                calls += len(pieces)
                prompt += sum(count_prompt(system, piece) for piece in pieces)
                written += sum(len(piece.encode()) for piece in pieces) // 4
        calls, prompt, written = (total / len(originals) for total in (calls, prompt, written))
        of = f"{calls:.0f} pieces of a conversation"
        return JobCost(SessionCost.count(calls, prompt, _TRANSLATED * written, of), ("assistant",))

    async def open(self, context: JobContext) -> TranslatePlayer:
        """Open the run to translate, and return the player that translates it."""
        source = await context.stack.enter_async_context(open_store(find_source(self.job), read_only=True))
        return TranslatePlayer(self.plan, self.job, context, source)

    async def _list_originals(self) -> list[Progress]:
        """Return the finished sessions that have turns, in stored order."""
        async with open_store(find_source(self.job), read_only=True) as store:
            states = [session async for session in store.progress() if session.turns]
        return [session for session in states if session.ending not in (None, "failed")]


def name_translation(language: str, session: str) -> str:
    """Return the id of the translation of a session."""
    return f"{language}_{session}"


class TranslatePlayer(QuestionPlayer):
    """Translates sessions turn by turn. Markers, code and the done token stay unchanged."""

    def __init__(self, plan: Plan, spec: Translate, context: JobContext, source: RunStore) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._source = source
        self._fill = make_filler(plan)

    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session with the original's roles and task, the turns that it lacks, and its ending."""
        original = await self._source.session(job.values["source"])
        if original is None:
            raise InputError(
                f"Session {job.values['source']} is no longer there.",
                where=str(self._source.path),
                next="Give the run as it was when the translation began.",
            )
        spec, language = self._spec, job.values["language"]
        provenance = make_provenance(self._plan, self._context, spec, "translator", job.number, spec.system)
        translation = replace(
            original,
            id=name_translation(language, original.id),
            provenance=replace(
                provenance,
                language=spec.languages.get(language, language),
                extra={key: value for key, value in original.provenance.extra.items() if key == SOURCE},
            ),
            turns=(),
            ending=None,
            preparation=Usage(),
            values={**original.values, **job.values},
        )
        session = await store.begin(translation)
        last = original.turns[-1]
        ending = original.ending or Ending("translated", last.number, last.speaker, "")
        return session, self._translate(original, session), ending

    async def _translate(self, original: Session, session: Session) -> AsyncGenerator[Turn]:
        for turn in original.turns[len(session.turns) :]:
            yield await self._translate_turn(turn, session)

    async def _translate_turn(self, turn: Turn, session: Session) -> Turn:
        begun = perf_counter()
        model = self._context.models["assistant"]
        values = {"language": session.values["language"], "language_name": session.provenance.language or ""}
        system = Message("system", Text(self._fill("system", values).strip()))
        pieces = _KEPT.split(turn.text)
        usage = Usage()
        name, fingerprint = turn.model, None
        for number, piece in list_pieces(turn):
            request = Request(
                messages=(system, Message("user", Text(piece.strip()))),
                sampling=derive_sampling(
                    session.provenance.sampling["translator"], "translator", turn.number, number
                ),
                session=session.id,
                agent="translator",
                call_index=turn.number * 100 + number,
            )
            reply = await model.reply(request)
            usage += reply.usage
            name, fingerprint = reply.model or name, reply.fingerprint
            if not reply.text.strip():
                raise BadReply(f"The translation of turn {turn.number} is empty.", where=model.name)
            before = piece[: len(piece) - len(piece.lstrip())]
            pieces[number] = before + reply.text.strip() + piece[len(piece.rstrip()) :]
        text = clean_text("".join(pieces))
        return replace(
            turn,
            text=Text(text),
            said=(read_instruction if turn.speaker == "user" else read_solution)(text),
            usage=usage,
            seconds=perf_counter() - begun,
            first_token=None,
            model=name,
            fingerprint=fingerprint,
        )
