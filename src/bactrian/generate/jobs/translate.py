"""Runs jobs that translate a conversation of another run (the paper's translated AI Society)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import cast

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.generate.jobs.base import (
    Grid,
    JobContext,
    JobCost,
    JobKind,
    make_filler,
)
from bactrian.generate.jobs.role_play import AGENTS
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import Estimate, SessionCost
from bactrian.language.protocol import DONE, read_instruction, read_solution
from bactrian.models.model import Request
from bactrian.models.seeds import derive_sampling, is_derived
from bactrian.models.traits import get_traits
from bactrian.play.run_session import begin_session, end_as_failed
from bactrian.recipes.job_specs import Translate
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import Recipe
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.message import Message
from bactrian.records.run import Progress
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import Store, open_store

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


@dataclass(frozen=True, slots=True)
class _Originals:
    """The second axis: the sessions of the run to translate."""

    items: tuple[str, ...]
    name: str = "source"
    per: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.items)


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
        return Grid((*self.plan.recipe.axes, _Originals(sessions)), numbers.get)

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


class TranslatePlayer:
    """Translates sessions turn by turn. Markers, code and the done token stay unchanged."""

    def __init__(self, plan: Plan, spec: Translate, context: JobContext, source: Store) -> None:
        self._spec = spec
        self._fill = make_filler(plan)
        self._recipe = plan.recipe.name
        self._model = context.models["assistant"]
        self._source = source
        self._seeds = context.seeds
        self._parameters = plan.parameters.get("translator", ())
        self._hash = hashlib.sha256(spec.system.encode()).hexdigest()

    def _sample(self, longest: int, seed: int | None) -> Sampling:
        usual = Sampling(self._spec.temperature, max_tokens=longest, seed=seed)
        return apply_parameters(usual, self._parameters)

    def _session(self, job: Job, original: Session) -> Session:
        """Return the session of ``job``, with the original's roles and task and without turns."""
        name = self._spec.languages.get(job.values["language"], job.values["language"])
        seed = self._seeds.find_job(job.number)
        longest = self._spec.max_tokens
        if get_traits(self._model).small:
            longest = min(longest, _SMALL_LONGEST)
        return replace(
            original,
            id=name_translation(job.values["language"], original.id),
            provenance=Provenance(
                prompts=f"recipe {self._recipe}",
                prompts_hash=self._hash,
                protocol="free",
                models={"translator": self._model.name},
                sampling={"translator": self._sample(longest, seed)},
                language=name,
            ),
            turns=(),
            ending=None,
            preparation=Usage(),
            values={**original.values, **job.values},
        )

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Translate the missing turns, then store the ending of the original."""
        original = await self._original(job.values["source"])
        session = await begin_session(self._session(job, original), store)
        yield Started(session)
        used = session.usage
        try:
            for turn in original.turns[len(session.turns) :]:
                translated = await self._turn(turn, session)
                used += translated.usage
                await store.add_turn(session.id, translated)
                yield Spoke(translated)
        except ModelError as error:
            yield await end_as_failed(replace(session, preparation=used), error, store)
            return
        last = original.turns[-1]
        ending = original.ending or Ending("translated", last.number, last.speaker, "")
        await store.end(session.id, ending, used)
        yield Ended(ending)

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
        if is_derived(sampling.seed):  # Earlier runs use one seed for all pieces of a session.
            sampling = derive_sampling(sampling, "translator", turn, piece)
        return Request(
            messages=(
                Message("system", Text(self._fill("system", values).strip())),
                Message("user", Text(text)),
            ),
            sampling=sampling,
            session=session.id,
            agent="translator",
            call_index=turn * 100 + piece,
        )
