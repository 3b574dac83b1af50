"""Server-sent events of a conversation that is being written, by a page or by another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bactrian.explore.index.known import detect_now
from bactrian.explore.library import DataSet
from bactrian.explore.pages.conversation import find_session, show_turns
from bactrian.explore.pages.play import describe_stage
from bactrian.explore.playing import LiveStage
from bactrian.explore.rendering import get_explorer, has_agreed, render_text
from bactrian.records.candidate import NOTHING_KNOWN
from bactrian.records.session import Session

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
    findings = await asyncio.to_thread(detect_now, session)
    for shown in show_turns(session, new, findings, NOTHING_KNOWN):
        yield shown.turn.number, render_text(request, "live_turn.html", shown=shown)


def _write(event: str, data: object, number: int | None = None) -> bytes:
    mark = "" if number is None else f"id: {number}\n"
    return f"{mark}event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


ROUTES = (Route("/c/{data}/{id}/events", stream_conversation),)
