"""Sessions of single questions: each question is a turn, stored before the next one is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from bactrian.errors import BadReply, EmptyReply, Filtered, ModelError
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.seeds import derive_sampling
from bactrian.play.run_session import end_as_failed
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.message import Message
from bactrian.records.session import Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage
from bactrian.store import Store


@dataclass(frozen=True, slots=True)
class Step:
    """One question of a session."""

    agent: str
    """The agent that answers: the speaker of the turn."""
    model: Model
    system: str
    question: str
    form: ResponseFormat | None = None
    """The format of the answer; None for free text."""
    index: int = 0
    """Position among the agent's answers in the session, from 0, for a replayed model."""


async def ask_steps(
    session: Session, steps: Sequence[Step], store: Store, *, keeps_unreadable: bool = False
) -> AsyncGenerator[Event]:
    """Ask the questions that the session has no turn for yet, store each answer, and end the session.

    A model failure ends the session as ``failed``; an endpoint fault leaves it open.

    Args:
        session: As stored.
        steps: All questions of the session; the first one is turn 1.
        store: Opened for writing.
        keeps_unreadable: Store a reply that is malformed or filtered as a turn, instead of a failure.
    """
    yield Started(session)
    used = session.usage
    try:
        for number, step in enumerate(steps[len(session.turns) :], start=len(session.turns) + 1):
            try:
                turn = await _ask(step, session, number)
            except (BadReply, Filtered) as error:
                if not keeps_unreadable or error.endpoint_wide:
                    raise
                turn = _keep(error, step, session, number)
            used += turn.usage
            await store.add_turn(session.id, turn)
            yield Spoke(turn)
    except ModelError as error:
        yield await end_as_failed(replace(session, preparation=used, turns=()), error, store)
        return
    ending = Ending("answered", len(steps), steps[-1].agent, "")
    await store.end(session.id, ending, used)
    yield Ended(ending)


async def _ask(step: Step, session: Session, number: int) -> Turn:
    begun = perf_counter()
    reply = await step.model.reply(
        Request(
            messages=(Message("system", Text(step.system)), Message("user", Text(step.question))),
            sampling=derive_sampling(session.provenance.sampling[step.agent], step.agent, number),
            response_format=step.form,
            session=session.id,
            agent=step.agent,
            call_index=number - 1,
            replay_index=step.index,
        )
    )
    if not reply.text.strip():
        raise EmptyReply("The answer is empty.", where=step.model.name)
    return Turn(
        number=number,
        speaker=step.agent,
        role=session.provenance.cast[step.agent].name,
        text=reply.text,
        said=None,
        usage=reply.usage,
        seconds=perf_counter() - begun,
        first_token=reply.first_token,
        model=reply.model,
        finish=reply.finish,
        lossy=reply.choices[0].lossy,
        fingerprint=reply.fingerprint,
        thought=reply.choices[0].thought,
    )


def _keep(error: ModelError, step: Step, session: Session, number: int) -> Turn:
    """Return a reply that could not be used as a turn: what came, or else the error."""
    prompt, completion = error.spent
    text = clean_text(error.sample.decode("utf-8", "replace")).strip() or f"({error.what})"
    return Turn(
        number=number,
        speaker=step.agent,
        role=session.provenance.cast[step.agent].name,
        text=Text(text),
        said=None,
        usage=Usage(prompt, completion),
        seconds=0.0,
        first_token=None,
        model=step.model.name,
        finish="other",
    )
