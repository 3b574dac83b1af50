"""Preparation of the task: the task specifier and the task planner (paper, section 3.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from bactrian.errors import BadReply
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.seeds import derive_sampling
from bactrian.models.traits import get_traits
from bactrian.play.agent import MORE_ROOM, is_all_thought, make_room_for_thoughts
from bactrian.play.response_formats import build_small_task_format
from bactrian.play.setup import RolePlaySetup
from bactrian.prompts.pack import Pack
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.usage import Usage


async def prepare(
    session: Session,
    setup: RolePlaySetup,
    pack: Pack,
    models: Mapping[str, Model],
    keep: Callable[[Session], Awaitable[None]] | None = None,
) -> Session:
    """Run the steps of preparation that ``setup`` requests and ``session`` lacks.

    ``keep`` receives the session after each step, before the next request is sent.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    if setup.specify and session.task.specified is None:
        session = await specify(session, pack, models["task_specifier"], word_limit=setup.word_limit)
        if keep is not None:
            await keep(session)
    if setup.plan and session.task.planned is None:
        session = await plan(session, pack, models["task_planner"])
        if keep is not None:
            await keep(session)
    return session


async def specify(session: Session, pack: Pack, model: Model, *, word_limit: int) -> Session:
    """Make the idea of ``session`` concrete. Return the session with its specified task.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    prompt = pack.render(
        "task_specifier",
        session.values,
        task=session.task.original,
        assistant_role=session.assistant.name,
        user_role=session.user.name,
        word_limit=word_limit,
        language=session.provenance.language or "",
    )
    enforced = session.provenance.protocol == "enforced" and get_traits(model).small
    form = build_small_task_format() if enforced else None
    text, usage = await _answer("task_specifier", prompt, session, model, 0, form)
    return replace(
        session,
        task=replace(session.task, specified=text),
        preparation=session.preparation + usage,
    )


async def plan(session: Session, pack: Pack, model: Model) -> Session:
    """Divide the task of ``session`` into subtasks. Return the session with its plan.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    prompt = pack.render(
        "task_planner",
        session.values,
        task=session.task.text,
        assistant_role=session.assistant.name,
        user_role=session.user.name,
        language=session.provenance.language or "",
    )
    call_index = 0 if session.task.specified is None else 1
    text, usage = await _answer("task_planner", prompt, session, model, call_index)
    return replace(
        session,
        task=replace(session.task, planned=text),
        preparation=session.preparation + usage,
    )


async def _answer(
    agent: str,
    prompt: str,
    session: Session,
    model: Model,
    call_index: int,
    form: ResponseFormat | None = None,
) -> tuple[str, Usage]:
    """Return the model's answer to one prompt; an empty one is requested once more."""
    sampling = session.provenance.sampling.get(agent, Sampling())
    before = f"{session.provenance.preamble}\n\n" if session.provenance.preamble else ""
    request = Request(
        messages=(Message("user", Text(before + prompt)),),
        sampling=derive_sampling(sampling, agent, 0),
        session=session.id,
        agent=agent,
        call_index=call_index,
        response_format=form,
    )
    reply = await model.reply(request)
    usage = reply.usage
    if not reply.text.strip():
        again = derive_sampling(sampling, agent, 0, retry=True)
        reply = await model.reply(replace(request, sampling=make_room_for_thoughts(again, reply)))
        usage += reply.usage
    if not reply.text.strip():
        raise BadReply(
            f"The model answered the {agent.replace('_', ' ')} with nothing, twice.",
            where=model.name,
            next=f"{MORE_ROOM}."
            if is_all_thought(reply)
            else "Try another model, or --no-specify to use the idea as it is.",
            sample=reply.raw,
        )
    return reply.text.strip(), usage
