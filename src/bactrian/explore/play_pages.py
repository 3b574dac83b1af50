"""Play a conversation from a page: start, watch, pause, stop, and take the part of an agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from bactrian.analyze.behaviours import find_behaviours
from bactrian.api.conversation import AGENTS, EXAMPLE, build_session_order
from bactrian.api.model_arguments import build_model_options, choose_models
from bactrian.errors import InputError
from bactrian.explore.conversation_pages import find_session, show_turns
from bactrian.explore.library import DataSet
from bactrian.explore.playing import SEATS, LiveStage, start_play, stop_play
from bactrian.explore.rendering import get_explorer, has_agreed, read_form, render_page, render_text
from bactrian.options import Critic, PlayOptions
from bactrian.records.session import Role, Session
from bactrian.records.turn import NOTHING_KNOWN
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.role_play import SessionOrder

PLAYED = "played.db"
"""The run in the working folder that stores what is played."""
_LONGEST = 4000
"""Characters of an idea or a name."""


async def show_play(request: Request) -> Response:
    """Show the form of a new conversation, and the conversation that is being played."""
    explorer = get_explorer(request)
    return render_page(request, "play.html", example=EXAMPLE, stage=explorer.stage, models=explorer.models)


async def begin_play(request: Request) -> Response:
    """Begin a conversation and show it."""
    _check_edit(request)
    explorer = get_explorer(request)
    form = await read_form(request)
    if explorer.stage is not None and explorer.stage.is_running:
        raise InputError("A conversation is being played.", next="Stop it first, on its page.")
    order = _read_order(form, explorer.models, Path(PLAYED))
    one = await explorer.add_played(Path(PLAYED))
    agents = SEATS if order.setup.critic else SEATS[:2]
    stage = LiveStage(one.name, agents, {agent for agent in agents if form.get(f"take_{agent}")})
    explorer.stage = stage
    start_play(order, stage)
    await stage.began.wait()
    if not stage.session:
        raise InputError(
            stage.problem or "The conversation did not begin.", next="Go back and change the form."
        )
    return RedirectResponse(f"/c/{stage.data}/{stage.session}#live", 303)


async def handle_control(request: Request) -> Response:
    """Pause, resume or stop the conversation, take or release a part, or answer for it."""
    _check_edit(request)
    form = await read_form(request)
    stage = get_explorer(request).stage
    if stage is None or not stage.is_running:
        raise InputError("No conversation is being played.", next="Begin one on the page Play.")
    match form.get("do"):
        case "pause":
            stage.pause()
        case "resume":
            stage.resume()
        case "stop":
            await stop_play(stage)
        case "take" if form.get("agent") in stage.agents:
            stage.take(form["agent"])
        case "release" if form.get("agent") in stage.agents:
            stage.release(form["agent"])
        case "answer":
            if not stage.answer(f"{form.get('choice', '')} {form.get('text', '')}".strip()):
                raise InputError("Nothing is being asked now.", next="Go back; copy your text first.")
        case _:
            raise InputError("This is not an action.", next="Go back and reload the page.")
    if request.headers.get("accept") == "application/json":
        return JSONResponse(describe_stage(stage))
    return RedirectResponse(f"/c/{stage.data}/{stage.session}#live", 303)


async def play_again(request: Request) -> Response:
    """Resume the conversation that was stopped, or whose model failed."""
    _check_edit(request)
    await read_form(request)
    stage = get_explorer(request).stage
    if stage is None or stage.order is None:
        raise InputError("No conversation was played here.", next="Begin one on the page Play.")
    if not stage.is_running:
        stage.began.clear()
        start_play(stage.order, stage)
        await stage.began.wait()
    return RedirectResponse(f"/c/{stage.data}/{stage.session}#live", 303)


def describe_stage(stage: LiveStage) -> dict[str, object]:
    """Return the state of the play as JSON values."""
    question = stage.question
    return {
        "running": stage.is_running,
        "paused": stage.is_paused,
        "taken": sorted(stage.taken),
        "asks": question.agent if question else None,
        "question": question.text[-20_000:] if question else None,
        "proposals": [[one.place, one.text] for one in question.proposals] if question else [],
        "problem": stage.problem,
    }


def _check_edit(request: Request) -> None:
    if not get_explorer(request).edit:
        raise HTTPException(403)


def _read_order(form: Mapping[str, str], models: tuple[str, ...], run: Path) -> SessionOrder:
    """Return the order that the form describes.

    Raises:
        InputError: a number or the model is not valid, or the idea is empty.
    """

    def read(name: str, default: str = "") -> str:
        return form.get(name, "").strip()[:_LONGEST] or default

    model = read("model", models[0])
    if model not in models:
        raise InputError(
            f"The model {model!r} was not named when the explorer was started.",
            next=f"Start it with --model {model}, or choose one of: {', '.join(models)}.",
        )
    # A person who plays the critic need not invent a role for it.
    role = read("critic", "Critic" if "take_critic" in form else "")
    critic = Critic(role, _read_count(form, "proposals", 3, 10)) if role else None
    options = PlayOptions(
        specify="specify" in form,
        word_limit=_read_count(form, "words", 50, 1000),
        max_messages=_read_count(form, "messages", 12, 50),
        language=read("language") or None,
        seed=_read_count(form, "seed", 1, 1 << 31),
    )
    agents = (*AGENTS, CRITIC) if critic else AGENTS
    return build_session_order(
        read("idea", EXAMPLE[0]),
        (Role(read("assistant", EXAMPLE[1])), Role(read("user", EXAMPLE[2]))),
        choose_models(agents, model),
        build_model_options({}),
        options,
        critic=critic,
        run=run,
    )


def _read_count(form: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = form.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise InputError(
            f"{text!r} is not a number from 1 to {most:,}.", where=name, next="Go back and change it."
        )
    return int(text)


# Server-sent events of a conversation that is being written, by a page or by another process.


_EVERY = 0.25
"""Seconds between two looks at the run."""
_ALIVE = 15.0
"""Seconds after which a silent stream says that it lives."""


async def stream_conversation(request: Request) -> Response:
    """Stream the turns after the one that the browser has."""
    one, session = await find_session(request)
    if session.mark and not has_agreed(request):
        raise HTTPException(403)
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    after = int(given) if given.isdecimal() else 0
    stage = get_explorer(request).stage
    if stage is not None and (not stage.is_running or (stage.data, stage.session) != (one.name, session.id)):
        stage = None
    return StreamingResponse(_follow(request, one, session.id, after, stage), media_type="text/event-stream")


async def _follow(
    request: Request, one: DataSet, session_id: str, after: int, stage: LiveStage | None
) -> AsyncIterator[bytes]:
    queue = stage.subscribe() if stage is not None else None
    seen, silent = -1, 0.0
    try:
        if stage is not None:
            yield _write("state", describe_stage(stage))
        while True:
            playing = stage is not None and stage.is_running
            last, _ = await one.store.find_touched(1 << 62)
            if last != seen or silent >= 1 or (stage is not None and not playing):
                seen = last
                session = await one.store.session(session_id)
                assert session is not None
                async for number, html in _render_new(request, session, after):
                    yield _write("turn", {"number": number, "html": html}, number)
                    after, silent = number, 0.0
                # A play that failed is not over as soon as its ending is stored.
                if not playing and (session.ending is not None or stage is not None):
                    yield _write("ended", {})
                    return
            if silent >= _ALIVE:
                silent = 0.0
                yield b": alive\n\n"
            if queue is None or stage is None:
                await asyncio.sleep(_EVERY)
                silent += _EVERY
                continue
            try:
                kind, text = await asyncio.wait_for(queue.get(), _EVERY)
            except TimeoutError:
                silent += _EVERY
                continue
            if kind == "state":
                yield _write("state", describe_stage(stage))
            elif kind in ("piece", "restart"):
                yield _write(kind, text)
    finally:
        if stage is not None and queue is not None:
            stage.unsubscribe(queue)


async def _render_new(request: Request, session: Session, after: int) -> AsyncIterator[tuple[int, str]]:
    """Yield the turns after ``after`` as they are shown, with the findings so far."""
    new = [turn for turn in session.turns if turn.number > after]
    if not new:
        return
    findings = await asyncio.to_thread(find_behaviours, session)
    for shown in show_turns(session, new, findings, NOTHING_KNOWN):
        yield shown.turn.number, render_text(request, "live_turn.html", shown=shown)


def _write(event: str, data: object, number: int | None = None) -> bytes:
    mark = "" if number is None else f"id: {number}\n"
    return f"{mark}event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


ROUTES = (
    Route("/play", show_play, methods=["GET"]),
    Route("/play", begin_play, methods=["POST"]),
    Route("/play/control", handle_control, methods=["POST"]),
    Route("/play/again", play_again, methods=["POST"]),
    Route("/c/{data}/{id}/events", stream_conversation),
)
