"""Play a conversation from a page: start, watch, pause, stop, and take the part of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.api.conversation import EXAMPLE, order_session
from bactrian.errors import InputError
from bactrian.explore.playing import SEATS, LiveStage
from bactrian.explore.rendering import get_explorer, read_form, render_page
from bactrian.explore.session_lists import read_count
from bactrian.options import Critic, PlayOptions
from bactrian.records.session import Role
from bactrian.roleplay.role_play import SessionOrder
from bactrian.store import is_run

# The run in the working folder that stores what is played.
PLAYED = "played.db"
# Characters of an idea or a name.
_LONGEST = 4000


async def show_play(request: Request) -> Response:
    """Show the form of a new conversation, and the conversation that is being played."""
    explorer = get_explorer(request)
    return render_page(request, "play.html", example=EXAMPLE, stage=explorer.stage, models=explorer.models)


async def begin_play(request: Request) -> Response:
    """Begin a conversation and show it."""
    form = await read_form(request)
    explorer = get_explorer(request)
    if explorer.stage is not None and explorer.stage.is_running:
        raise InputError("A conversation is being played.", next="Stop it first, on its page.")
    beside = [data_set.source for data_set in explorer.library.sets.values() if is_run(data_set.source)]
    order = _read_order(form, explorer.models, Path(PLAYED), beside)
    data_set = await explorer.add_played(Path(PLAYED))
    session = order.make_session({}).id
    names = chain([session], (f"{session}-{number}" for number in count(2)))
    stored = {outline.id for outline in await data_set.store.outlines(limit=-1)}
    # The same form begins another conversation: the page of the older one continues that.
    order = replace(order, name=next(name for name in names if name not in stored))
    agents = SEATS if order.setup.critic else SEATS[:2]
    stage = LiveStage(data_set.name, agents, order, {agent for agent in agents if form.get(f"take_{agent}")})
    explorer.stage = stage
    await stage.start()
    if not stage.session:
        raise InputError(
            stage.problem or "The conversation did not begin.", next="Go back and change the form."
        )
    return _show_stage(stage)


async def handle_control(request: Request) -> Response:
    """Pause, resume or stop the conversation, take or release a part, or answer for it."""
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
            await stage.stop()
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
        return JSONResponse(stage.describe())
    return _show_stage(stage)


async def play_again(request: Request) -> Response:
    """Resume the conversation that was stopped, or whose model failed."""
    await read_form(request)
    stage = get_explorer(request).stage
    if stage is None:
        raise InputError("No conversation was played here.", next="Begin one on the page Play.")
    if not stage.is_running:
        await stage.start()
    return _show_stage(stage)


def _show_stage(stage: LiveStage) -> Response:
    return RedirectResponse(f"/c/{stage.data}/{stage.session}#live", 303)


def _read_order(
    form: Mapping[str, str], models: tuple[str, ...], run: Path, beside: Iterable[Path]
) -> SessionOrder:
    """Return the order that the form describes; its models are asked where the runs ``beside`` it asked them.

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
    critic = (
        Critic(role, _read_count(form, "proposals", 3, 10), _read_count(form, "rounds", 1, 10))
        if role
        else None
    )
    options = PlayOptions(
        specify="specify" in form,
        word_limit=_read_count(form, "words", 50, 1000),
        max_messages=_read_count(form, "messages", 12, 50),
        language=read("language") or None,
        seed=_read_count(form, "seed", 1, 1 << 31),
    )
    order = order_session(
        read("idea", EXAMPLE[0]),
        Role(read("assistant", EXAMPLE[1])),
        Role(read("user", EXAMPLE[2])),
        model,
        critic=critic,
        run=run,
        options=options,
        beside=beside,
    )
    assert isinstance(order, SessionOrder)
    return order


def _read_count(form: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = form.get(name, "").strip()
    if not text:
        return default
    count = read_count(text, 0)
    if not 1 <= count <= most:
        raise InputError(
            f"{text[:20]!r} is not a number from 1 to {most:,}.", where=name, next="Go back and change it."
        )
    return count


ROUTES = (
    Route("/play", show_play, methods=["GET"]),
    Route("/play", begin_play, methods=["POST"]),
    Route("/play/control", handle_control, methods=["POST"]),
    Route("/play/again", play_again, methods=["POST"]),
)
