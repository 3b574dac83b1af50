"""Jobs that translate a conversation of another run (the paper's translated AI Society)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.generate.jobs.role_play import SEEDS_APART, TemplateFiller
from bactrian.generate.scheduler import Job
from bactrian.language.protocol import DONE, read_instruction, read_solution
from bactrian.models.model import Model, Request
from bactrian.models.traits import get_traits
from bactrian.play.run_session import begin_session, end_as_failed
from bactrian.recipes.schema import Translate
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import Store

_BOLD = r"(?:\*\*|__)"
_KEPT = re.compile(
    rf"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)"
    rf"|(?:^[ \t>#]*)?(?:{_BOLD}|\b)(?:Instruction|Solution|Input){_BOLD}?:{_BOLD}?"
    rf"(?:[ \t]*(?:None|N/A)\.?[ \t]*$)?"
    rf"|{_BOLD}?Next request\.?{_BOLD}?|{DONE})",
    re.MULTILINE | re.DOTALL,
)
"""What stays as it is: the protocol's words, and fenced code."""


def find_source(leaf: Translate) -> Path:
    """The run to translate. Raises InputError if none was named."""
    if not leaf.source:
        raise InputError(
            "There is no run to translate.", where="translate.source", next="Name it: --set source=RUN"
        )
    return Path(leaf.source).expanduser()


_SMALL_LONGEST = 600
"""Tokens of a piece's translation by the built-in model, whose window has to hold the piece too."""


async def list_translatable(run: Store) -> tuple[str, ...]:
    """Ids of the run's sessions that have ended with something said, in their order.

    Raises:
        InputError: it holds none.
    """
    found = tuple(
        [one.id async for one in run.progress() if one.ending not in (None, "failed") and one.turns]
    )
    if not found:
        raise InputError(
            "The run holds no session that has ended.", where=str(run.path), next="Finish it first."
        )
    return found


class TranslateJobs:
    """A model translates what was said, a turn at a time. Markers, code and the done token stay as they are."""

    def __init__(
        self,
        leaf: Translate,
        recipe: str,
        models: Mapping[str, Model],
        source: Store,
        *,
        seed: int | None,
    ) -> None:
        self._leaf = leaf
        self._fill = TemplateFiller({"system": leaf.system}, frozenset({"language", "language_name"}))
        self._recipe = recipe
        self._model = models["assistant"]
        self._source = source
        self._seed = seed
        self._hash = hashlib.sha256(leaf.system.encode()).hexdigest()

    def _session(self, cell: Job, original: Session) -> Session:
        """The session of ``cell``, before anything is translated: the original's roles and task."""
        name = self._leaf.languages.get(cell.values["language"], cell.values["language"])
        seed = None if self._seed is None else self._seed + SEEDS_APART * cell.number
        longest = self._leaf.max_tokens
        if get_traits(self._model).small:
            longest = min(longest, _SMALL_LONGEST)
        return replace(
            original,
            id=f"{cell.values['language']}_{original.id}",
            provenance=Provenance(
                prompts=f"recipe {self._recipe}",
                prompts_hash=self._hash,
                protocol="free",
                models={"translator": self._model.name},
                sampling={"translator": Sampling(self._leaf.temperature, max_tokens=longest, seed=seed)},
                language=name,
            ),
            turns=(),
            ending=None,
            preparation=Usage(),
            values={**original.values, **cell.values},
        )

    async def events(self, cell: Job, store: Store) -> AsyncGenerator[Event]:
        """Translate the turns that are missing, then end as the original did."""
        original = await self._original(cell.values["source"])
        session = await begin_session(self._session(cell, original), store)
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
        model = ""
        for number, piece in enumerate(_KEPT.split(turn.text)):
            if number % 2 or not any(character.isalpha() for character in piece):
                pieces.append(piece)
                continue
            text = piece.strip()
            reply = await self._model.reply(self._request(text, turn.number, number, session))
            usage += reply.usage
            model = reply.model
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
        )

    def _request(self, text: str, turn: int, piece: int, session: Session) -> Request:
        values = {"language": session.values["language"], "language_name": session.provenance.language or ""}
        return Request(
            messages=(
                Message("system", Text(self._fill("system", values).strip())),
                Message("user", Text(text)),
            ),
            sampling=session.provenance.sampling["translator"],
            session=session.id,
            agent="translator",
            call_index=turn * 100 + piece,
        )
