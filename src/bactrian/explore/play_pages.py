"""Play a conversation or a society from a page: start, watch, pause, stop, and take the part of an agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.api.conversation import EXAMPLE, AskingTerms, order_session, order_society
from bactrian.api.endpoints import tell_address
from bactrian.errors import InputError
from bactrian.explore.conversation_pages import write_live_address
from bactrian.explore.playing import SEATS, LiveStage, SocietyOrder
from bactrian.explore.rendering import Explorer, get_explorer, read_form, render_page
from bactrian.explore.session_lists import read_count
from bactrian.options import Critic, PlayOptions, SocietyOptions
from bactrian.recipes.society_file import Society, SocietyStage, list_societies, load_society
from bactrian.records.session import HUMAN, Role
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import MAX_MESSAGES, SMALL_MAX_MESSAGES
from bactrian.store import is_run

# The run in the working folder that stores what is played.
PLAYED = "played.db"
# Characters of an idea or a name.
_LONGEST = 4000


async def show_play(request: Request) -> Response:
    """Show the form of a new conversation, and the conversation that is being played."""
    explorer = get_explorer(request)
    asked: list[str] = []
    for name in explorer.models if explorer.edit else ():
        try:
            asked.append(tell_address(name, _list_runs(explorer)))
        except InputError as error:
            asked.append(f"{error.what} {error.next}.")
    return render_page(
        request,
        "play.html",
        example=EXAMPLE,
        limits=(SMALL_MAX_MESSAGES, MAX_MESSAGES),
        stage=explorer.stage,
        societies=list_playable(explorer) if explorer.edit else {},
        asked=" ".join(asked),
        spent=_count_spent(explorer),
    )


def _count_spent(explorer: Explorer) -> float:
    """Return what the plays of this explorer cost so far, in US dollars."""
    meter = explorer.stage and explorer.stage.order.options.meter
    return explorer.spent + (meter.usd if meter else 0.0)


async def begin_play(request: Request) -> Response:
    """Begin a conversation and show it."""
    form = await read_form(request)
    explorer = get_explorer(request)
    if explorer.stage is not None and explorer.stage.is_running:
        raise InputError("A conversation is being played.", next="Stop it first, on its page.")
    data_set = await explorer.add_played(Path(PLAYED))
    stored = {outline.id for outline in await data_set.store.outlines(limit=-1)}
    set_up = _set_society if form.get("society") else _set_role_play
    stage = set_up(form, explorer, data_set.name, stored)
    explorer.spent, explorer.stage = _count_spent(explorer), stage
    stage.taken |= {agent for agent in stage.agents if form.get(f"take_{agent}")}
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
    return RedirectResponse(write_live_address(stage), 303)


def _read_text(form: Mapping[str, str], name: str, default: str = "") -> str:
    return form.get(name, "").strip()[:_LONGEST] or default


def _read_model(form: Mapping[str, str], explorer: Explorer) -> str:
    models = explorer.models
    model = _read_text(form, "model", models[0])
    if model not in models:
        raise InputError(
            f"The model {model!r} was not named when the explorer was started.",
            next=f"Start it with --model {model}, or choose one of: {', '.join(models)}.",
        )
    tell_address(model, _list_runs(explorer))
    return model


def _set_role_play(
    form: Mapping[str, str], explorer: Explorer, data: str, stored: Collection[str]
) -> LiveStage:
    """Return the stage of the conversation that the form describes; its models are asked where other runs asked them.

    The same form begins another conversation than those ``stored``: the page of an older one continues that.

    Raises:
        InputError: a number or the model is not valid, or the idea is empty.
    """
    # A person who plays the critic need not invent a role for it.
    role = _read_text(form, "critic", "Critic" if "take_critic" in form else "")
    critic = (
        Critic(role, _read_count(form, "proposals", 3, 10), _read_count(form, "rounds", 1, 10))
        if role
        else None
    )
    options = PlayOptions(
        specify={"yes": True, "no": False}.get(_read_text(form, "specify")),
        word_limit=_read_count(form, "words", 50, 1000),
        max_messages=_read_count(form, "messages", 0, 50) or None,
        language=_read_text(form, "language") or None,
    )
    if seed := _read_count(form, "seed", 0, 1 << 31):
        options["seed"] = seed
    _set_terms(options, explorer)
    idea = _read_text(form, "idea", EXAMPLE[0])
    order = order_session(
        None if idea == EXAMPLE[0] else idea,
        Role(_read_text(form, "assistant", EXAMPLE[1])),
        Role(_read_text(form, "user", EXAMPLE[2])),
        _read_model(form, explorer),
        critic=critic,
        run=Path(PLAYED),
        options=options,
        asking=AskingTerms(beside=_list_runs(explorer)),
    )
    assert isinstance(order, SessionOrder)
    session = order.make_session({}).id
    names = chain([session], (f"{session}-{number}" for number in count(2)))
    order = replace(order, name=next(name for name in names if name not in stored))
    return LiveStage(data, SEATS if critic else SEATS[:2], order)


def _set_society(
    form: Mapping[str, str], explorer: Explorer, data: str, stored: Collection[str]
) -> LiveStage:
    """Return the stage of the society that the form names. Parts that its file gives to a person are taken.

    Raises:
        InputError: the society, a number or the model is not valid.
    """
    known = list_playable(explorer)
    if (name := form["society"]) not in known:
        raise InputError(f"There is no society {name[:80]!r}.", next=f"One of {', '.join(known)}.")
    model = _read_model(form, explorer)
    options = SocietyOptions(
        language=_read_text(form, "language") or None,
        seed=_read_count(form, "seed", 0, 1 << 31) or None,
        max_messages=_read_count(form, "messages", 0, 50) or None,
    )
    _set_terms(options, explorer)
    run = Path(PLAYED)
    idea, asking = _read_text(form, "idea") or None, AskingTerms(beside=_list_runs(explorer))
    settings, access = order_society(name, idea, model, {}, options, run=run, asking=asking)
    # Who takes a part from a person and gives it back gives it to this model.
    people = frozenset(agent for agent, name in settings.chat.models.items() if name == HUMAN)
    models = {agent: model if name == HUMAN else name for agent, name in settings.chat.models.items()}
    settings = replace(settings, chat=replace(settings.chat, models=models))
    names = chain([None], (f"{settings.id}-{number}" for number in count(2)))
    first, *_ = stages = settings.society.stages
    made = (replace(settings, name=name) for name in names)
    settings = next(each for each in made if each.session_id(first) not in stored)
    seats = {settings.session_id(stage): list_seats(stage) for stage in stages}
    agents = tuple(dict.fromkeys(seat for of in seats.values() for seat in of))
    if "take_critic" in form and CRITIC not in agents:
        raise InputError("No conversation of this society has a critic.", next="Go back, and take no part.")
    return LiveStage(data, agents, SocietyOrder(settings, access, run), seats=seats, people=people)


def _set_terms(options: SocietyOptions, explorer: Explorer) -> None:
    """Set the price of the explorer's models, and what is left of the budget of all plays."""
    if explorer.price is not None:
        options["price"] = explorer.price
    if explorer.budget is not None:
        options["budget"] = max(0.0, explorer.budget - _count_spent(explorer))


def _list_runs(explorer: Explorer) -> list[Path]:
    return [each.source for each in explorer.library.sets.values() if is_run(each.source)]


def list_seats(stage: SocietyStage) -> dict[str, str]:
    """Return the agents of the society whose part a person can take in a stage, by what they are called there."""
    cast = {name: name for name in stage.agents} or {
        "user": stage.user or "",
        "assistant": stage.assistant or "",
    }
    return cast | ({CRITIC: CRITIC} if stage.critic else {})


def list_playable(explorer: Explorer) -> dict[str, Society]:
    """Return the societies that pages may play, by their names or files."""
    return {name: load_society(name)[0] for name in (*list_societies(), *explorer.societies)}


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
