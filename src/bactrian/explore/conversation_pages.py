"""One conversation as a page, Markdown and JSON; its rail, marks, findings, live events and files."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from urllib.parse import quote

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from bactrian.analyze.behaviours import find_behaviours
from bactrian.analyze.learned import has_instructor
from bactrian.blocks import keep_line_breaks, to_markdown
from bactrian.detect.detector import POSSIBLE
from bactrian.errors import BactrianError, InputError, StoreError
from bactrian.explore.layout import TextView, can_show_tokens, find_side, show_turns
from bactrian.explore.library import DataSet, Library, list_kept_files, open_for_page
from bactrian.explore.pictures import draw_hearing, list_heard
from bactrian.explore.rendering import (
    check_agreed,
    get_explorer,
    read_form,
    read_listing,
    render_page,
    render_text,
)
from bactrian.explore.search_words import find_hits, read_search
from bactrian.explore.session_findings import KnownSession, is_counted
from bactrian.explore.session_lists import ListFilter, read_count
from bactrian.export.format import SystemPrompts
from bactrian.files.atomic import is_same_file
from bactrian.recipes.society_file import Society
from bactrian.records.event_json import write_event
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.run import Confirmation, Finding, FindingKey, Mark, Spent
from bactrian.records.session import HUMAN, Session, find_kind, name_agents, name_part
from bactrian.records.text import clean_text
from bactrian.records.turn import NOTHING_KNOWN, Deliberation, Turn, Usage
from bactrian.runs.kinds import name_translation
from bactrian.runs.spending import read_pricing, read_spending
from bactrian.store import RunStore

if TYPE_CHECKING:
    from bactrian.explore.playing import LiveStage


# Finds what belongs to a conversation: the original of a translation, its translations, and who heard whom.


# Translations that are listed.
_MOST = 20


@dataclass(frozen=True, slots=True)
class RelatedSession:
    """The original or a translation of a conversation."""

    title: str
    data: str
    id: str


async def find_related(
    library: Library, data_set: DataSet, session: Session, recipe: Mapping[str, Any]
) -> list[RelatedSession]:
    """Return the original of a translation, or the translations of an original, as far as their runs are open here."""
    related: list[RelatedSession] = []
    is_translation = find_kind(session) == "translation"
    for other in library.sets.values():
        content = recipe if is_translation else await other.store.recipe() or {}
        run = other.run if is_translation else data_set.run
        source = str(content.get("recipe", {}).get("translate", {}).get("source") or "")
        if (other is data_set and not is_translation) or not _is_run(source, run):
            continue
        names = {session.values.get("source", ""): "Original"}
        if not is_translation:
            names = {name_translation(code, session.id): title for code, title in _list_languages(content)}
        for name, title in names.items():
            if len(related) < _MOST and await other.store.outlines(ids=[name]):
                related.append(RelatedSession(title, other.name, name))
    return related


def _is_run(source: str, run: Path) -> bool:
    """Return True if ``source``, as a recipe names it, is ``run``; a relative path may be one from the run's folder."""
    if not source:
        return False
    path = Path(source).expanduser()
    return any(is_same_file(file, run) for file in (path, run.parent / path) if file.exists())


def _list_languages(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    axes: list[dict[str, Any]] = recipe.get("recipe", {}).get("axes") or [{}]
    names: dict[str, str] = recipe.get("recipe", {}).get("translate", {}).get("languages", {})
    for code in axes[0].get("given") or ():
        yield code, names.get(code) or code


async def read_hearing(
    store: RunStore, session: Session, recipe: Mapping[str, Any]
) -> dict[str, tuple[str, ...]] | None:
    """Return, by agent of a group chat, the agents that do not hear it.

    None if it is no group chat, or its society is not known.
    """
    cast = session.provenance.cast
    society = await _find_society(store, session, recipe) if cast else None
    if society is None:
        return None
    hears = {agent.name: agent.hears for agent in society.agents if agent.name in cast}
    return {
        speaker: tuple(
            name
            for name, heard in hears.items()
            if name != speaker and heard is not None and speaker not in heard
        )
        for speaker in cast
    }


async def _find_society(store: RunStore, session: Session, recipe: Mapping[str, Any]) -> Society | None:
    """Return the society that made a session: the recipe's, or that of a command ``play --society``."""
    frozen = recipe.get("recipe", {}).get("society", {}).get("society") or recipe.get("society")
    if frozen:
        with suppress(ValidationError):
            return Society.model_validate(frozen)
    for command in await store.commands():
        with suppress(ValidationError):
            society = Society.model_validate(command.options.get("content"))
            if society.hash == session.provenance.prompts_hash:
                return society
    return None


# The rail of a conversation: a tick for each message, and the places between which ``n`` and ``p`` go.


# A tick of a longer conversation stands for several messages.
MOST_TICKS = 480
# Lengths of a tick, the longest of which is that of the longest message.
_LENGTHS = 8


@dataclass(frozen=True, slots=True)
class Tick:
    """One message on the rail, or some that follow each other."""

    # Numbers of the messages.
    first: int
    last: int
    # The class of its colour.
    side: str
    # From 1 to 8, by the tokens of the longest of its messages.
    length: int
    # What it stands for, in words.
    label: str
    has_finding: bool
    has_hit: bool


@dataclass(frozen=True, slots=True)
class Rail:
    """The messages of a conversation at a glance."""

    ticks: tuple[Tick, ...]
    # Where ``n`` and ``p`` stop, as ids of the page: findings, and messages with words of the search.
    stops: tuple[str, ...]
    # The message of the first stop, if a filter led here; 0 if none did, or nothing of it is in a message.
    found: int


def build_rail(
    session: Session,
    findings: Sequence[Finding],
    filter_: ListFilter,
    answers: Mapping[FindingKey, bool] | None = None,
) -> Rail:
    """Return the rail of a conversation for a reader who comes from a list with this filter.

    A filter that names behaviours or words leads to these; any other, to all findings. Ticks show those that count, by
    the ``answers`` of readers.
    """
    terms = read_search(filter_.q)
    hits = {turn.number for turn in session.turns if any(find_hits(turn.text, terms))}
    codes = set(filter_.behaviour)
    wanted = [
        (finding.turn, f"finding-{number}")
        for number, finding in enumerate(findings, 1)
        if (finding.behaviour in codes if codes else not hits)
    ]
    stops = sorted([*wanted, *((number, f"turn-{number}") for number in hits)], key=lambda stop: stop[0])
    is_led = bool(stops) and bool(codes or hits)
    return Rail(
        tuple(_list_ticks(session, [found for found in findings if is_counted(found, answers or {})], hits)),
        tuple(id_ for _, id_ in stops),
        stops[0][0] if is_led else 0,
    )


def _list_ticks(session: Session, findings: Sequence[Finding], hits: set[int]) -> Iterator[Tick]:
    turns = session.turns
    shown = defaultdict[int, list[str]](list)
    for finding in findings:
        shown[finding.turn].append(finding.behaviour.replace("_", " "))
    sizes = _measure_turns(turns)
    longest = max(sizes, default=0) or 1
    each = -(-len(turns) // MOST_TICKS) or 1
    for begin in range(0, len(turns), each):
        some = turns[begin : begin + each]
        first, last = some[0].number, some[-1].number
        found = list(dict.fromkeys(code for turn in some for code in shown[turn.number]))
        is_hit = any(turn.number in hits for turn in some)
        what = f"Message {first}, {some[0].role}" if first == last else f"Messages {first} to {last}"
        yield Tick(
            first,
            last,
            find_side(session, some[0]),
            max(1, round(_LENGTHS * max(sizes[begin : begin + each]) / longest)),
            ", ".join((what, *found, *(("word of the search",) if is_hit else ()))),
            bool(found),
            is_hit,
        )


def _measure_turns(turns: Sequence[Turn]) -> list[int]:
    """Return the tokens of each message; its characters, if those of one message are not known."""
    tokens = [turn.usage.completion for turn in turns]
    return tokens if all(tokens) else [len(turn.text) for turn in turns]


# Messages on a page.
WINDOW = 100


async def show_conversation(request: Request) -> Response:
    """Show a conversation, a hundred messages at a time."""
    data_set, session = await find_session(request)
    stage = get_explorer(request).stage
    later = _find_next(stage, session.id) if _is_of(stage, data_set, session) else None
    if later and session.ending and "watch" in request.query_params:
        return RedirectResponse(later, 303)
    listing = read_listing(request)
    known = await data_set.store.deliberation(session.id) if session.provenance.critic else NOTHING_KNOWN
    facts = await data_set.read_known(session)
    rail = await asyncio.to_thread(build_rail, session, facts.findings, listing.filter, facts.answers)
    found = rail.found - (rail.found - 1) % WINDOW if rail.found else 1
    first = min(max(read_count(request.query_params.get("from", ""), found), 1), max(len(session.turns), 1))
    turns = session.turns[first - 1 : first - 1 + WINDOW]
    before, after = None, None
    if facts.row is not None and data_set.number in listing.names:
        before, after = await asyncio.to_thread(listing.find_neighbours, facts.row)
    terms, whole = read_search(listing.filter.q), read_count(request.query_params.get("whole", ""), 0)
    recipe = await data_set.store.recipe() or {}
    deaf = await read_hearing(data_set.store, session, recipe)
    has_tokens = can_show_tokens(turns)
    view = read_view(request)
    # In a thread: a text may be made to take long.
    shown = await asyncio.to_thread(
        list,
        show_turns(
            session,
            turns,
            facts.findings,
            known,
            await _cost_turns(data_set.store, session, known),
            terms,
            whole,
            view=view,
            confirmations=facts.confirmations,
        ),
    )
    page = render_page(
        request,
        "conversation.html",
        view="read" if view == "tokens" and not has_tokens else view,
        has_tokens=has_tokens,
        data=data_set.name,
        session=session,
        roles=name_agents(session),
        ender=_name_ender(session),
        kind=find_kind(session),
        has_instructor=has_instructor(session),
        turns=shown,
        rail=rail,
        facts=facts,
        first=first,
        last=first - 1 + len(turns),
        size=WINDOW,
        before=before,
        after=after,
        filter=listing.filter,
        is_written=data_set.is_written,
        # Also after it was stopped; None if no page began it.
        stage=stage if stage and (stage.data, stage.session) == (data_set.name, session.id) else None,
        # Of a society, the page of the conversation that is played now, or was played last.
        later=later,
        stage_runs=stage is not None and stage.is_running,
        heard={} if deaf is None else list_heard(session, deaf),
        hearing=None if deaf is None else draw_hearing(session, deaf),
        paid=await _count_paid(data_set, session, facts),
        asked=_describe_stage(request, stage) if stage else None,
        files=await asyncio.to_thread(list_kept_files, data_set.run, session.id),
        related=await find_related(get_explorer(request).library, data_set, session, recipe),
        marks=await data_set.store.marks(session.id),
    )
    if "text" in request.query_params:
        page.set_cookie(_name_choice(request), view, httponly=True, samesite="strict")
    return page


class PaidSoFar(NamedTuple):
    """What a conversation cost so far: tokens, and dollars where they are known."""

    tokens: int
    usd: float | None


async def _count_paid(data_set: DataSet, session: Session, facts: KnownSession | None = None) -> PaidSoFar:
    """Return what a conversation cost; the index knows it of one that has ended, unless it is behind."""
    if facts is not None and session.ending is not None and facts.tokens >= session.usage.total:
        return PaidSoFar(facts.tokens, None if facts.cost < 0 else facts.cost)
    paid = await read_spending(data_set.store, [session.id])
    return PaidSoFar(paid.usage.total, paid.usd if paid.usage.total else None)


async def _cost_turns(store: RunStore, session: Session, known: Deliberation) -> list[float | None]:
    """Return what each turn cost when it was made, decisions on it too; None if a price is unknown."""
    pricing, paid = await read_pricing(store, session=session.id), defaultdict[tuple[str, str], Usage](Usage)
    costs: list[float | None] = []
    for turn in session.turns:
        decided = [("critic", each.usage) for each in known.verdicts if each.number == turn.number]
        own, made = turn.usage - sum((used for _, used in decided), Usage()), list[float | None]()
        for agent, used in ((turn.speaker, own), *decided):
            paid[agent, used.tier] += used
            *_, (*_, price) = pricing.divide(Spent(session.id, agent, paid[agent, used.tier]))
            made.append(0.0 if not used.total else price and price.cost(used))
        costs.append(None if None in made else sum(filter(None, made)))
    return costs


def _describe_stage(request: Request, stage: LiveStage) -> dict[str, object]:
    """Return the state of the play as JSON values, with its proposals as the page shows them."""
    offered = stage.question.proposals if stage.question else ()
    shown = render_text(request, "offers.html", offered=offered, view=read_view(request)).strip()
    return {**stage.describe(), "proposals": shown}


def read_view(request: Request) -> TextView:
    """Return how the reader wants to see texts: the address says so, or the last one that did."""
    chosen = request.query_params.get("text") or request.cookies.get(_name_choice(request))
    views: dict[str | None, TextView] = {"raw": "raw", "tokens": "tokens"}
    return views.get(chosen, "read")


def _name_choice(request: Request) -> str:
    return f"bactrian_text_{get_explorer(request).port}"


async def find_session(request: Request) -> tuple[DataSet, Session]:
    """Return the data set and the session that an address names.

    Raises:
        HTTPException: it does not exist; the page says what was not found.
        NoticeNeeded: the reader has to agree to see it.
        StoreError: it is damaged.
    """
    return await find_named_session(request, request.path_params["data"], request.path_params["id"])


async def find_named_session(request: Request, name: str, session_id: str) -> tuple[DataSet, Session]:
    """Return a data set and a session by their names. Raises what :func:`find_session` raises."""
    data_set = get_explorer(request).library.sets.get(name)
    if data_set is None:
        raise HTTPException(404, f"There is no data set {name!r}.")
    session = await data_set.store.session(session_id)
    if session is None:
        raise HTTPException(404, f"The data set {name} has no conversation {session_id!r}.")
    check_agreed(request, session)
    return data_set, session


def _name_ender(session: Session) -> str:
    """Return the role whose message ended the conversation."""
    roles = {"assistant": session.assistant, "user": session.user, **session.provenance.cast}
    return roles.get(session.ending.speaker if session.ending else "", session.user).name


async def show_prompts(request: Request) -> Response:
    """Show the inception prompts, made again from the pack that the session names."""
    data_set, session = await find_session(request)
    packs = await asyncio.to_thread(SystemPrompts, await data_set.store.recipe())
    prompts: list[tuple[str, str]] = []
    if packs.is_known(session):
        made = packs.render(session)
        prompts = [("AI user", made.user), ("AI assistant", made.assistant), ("opening", made.opening)]
    why = (
        "another program made the conversation."
        if session.provenance.is_imported
        else "its prompt pack is not one of those that come with this version."
    )
    return render_page(
        request,
        "prompts.html",
        data=data_set.name,
        session=session,
        prompts=[(agent, text) for agent, text in prompts if text],
        why=why,
    )


async def write_markdown(request: Request) -> Response:
    """Return the conversation as Markdown, in which the texts stand as they are, in quotations."""
    _, session = await find_session(request)
    parts = [f"# {to_markdown(' × '.join(name_agents(session)))}", _quote(session.task.original)]
    if session.task.specified:
        parts += ["## Specified task", _quote(session.task.specified)]
    for turn in session.turns:
        part = name_part(session, turn)
        parts += [f"## {turn.number}. {to_markdown(turn.role)}{part and f' ({part})'}", _quote(turn.text)]
    if session.ending:
        parts.append(f"Ended by `{session.ending.code}` at message {session.ending.turn}.")
    return PlainTextResponse("\n\n".join(parts) + "\n", media_type="text/markdown")


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in keep_line_breaks("\n".join(text.splitlines())).splitlines())


async def write_json(request: Request) -> Response:
    """Return the conversation as its events, as ``play --json`` writes them."""
    _, session = await find_session(request)
    ended = [Ended(session.ending)] if session.ending else []
    events = [Started(session), *map(Spoke, session.turns), *ended]
    return JSONResponse({"events": [write_event(event) for event in events]})


# Marks and notes on conversations, kept in the run; only with ``--edit``.


_LONGEST_MARK = 60
# Characters.
_LONGEST_NOTE = 10_000
_AT_ONCE = 500


async def save_mark(request: Request) -> Response:
    """Add or remove a mark, or change its note, unless somebody else changed it since the page was loaded."""
    form = await read_form(request)
    data_set, session = await find_session(request)
    name, note = _read_name(form.get("mark", "")), clean_text(form.get("note", "")).strip()[:_LONGEST_NOTE]
    seen = form.get("seen", "")
    async with data_set.writing:
        stored = next((mark for mark in await data_set.store.marks(session.id) if mark.mark == name), None)
        if stored is not None and f"{stored.created}" != seen and (stored.note != note or "remove" in form):
            return render_page(
                request, "conflict.html", 409, data=data_set.name, session=session, stored=stored, note=note
            )
        async with open_for_page(data_set.run) as store:
            if "remove" in form:
                await store.remove_mark(session.id, name)
            else:
                await store.add_mark(Mark(session.id, name, note, time.time()))
    back = request.url.path.removesuffix("/marks")
    # The list from which the reader came stays the list to go back to.
    return RedirectResponse(f"{back}{ListFilter.read(request.query_params).write()}#marks", 303)


async def mark_all(request: Request) -> Response:
    """Give a mark to every conversation of a filter."""
    name = _read_name((await read_form(request)).get("mark", ""))
    list_filter = ListFilter.read(request.query_params)
    for data_set in get_explorer(request).library.choose(list_filter.data).values():
        ids = await asyncio.to_thread(data_set.list_ids, list_filter)
        async with data_set.writing:
            have = {mark.session for mark in await data_set.store.marks() if mark.mark == name}
            missing = [session for session in ids if session not in have]
            if not missing:
                continue
            async with open_for_page(data_set.run) as store:
                for begin in range(0, len(missing), _AT_ONCE):
                    some = missing[begin : begin + _AT_ONCE]
                    marks = [Mark(session, name, "", time.time()) for session in some]
                    await asyncio.gather(*map(store.add_mark, marks))
    return RedirectResponse(f"/export{ListFilter(mark=name).write()}", 303)


def _read_name(text: str) -> str:
    name = " ".join(clean_text(text).split())
    if not 0 < len(name) <= _LONGEST_MARK:
        raise InputError(
            f"A mark has 1 to {_LONGEST_MARK} characters.", next="Go back and give it a short name."
        )
    return name


# What a person says of findings, kept in the run as a judge's answers are; only with ``--edit``.


_ANSWERS = {"right": True, "wrong": False, "unsaid": None}


async def save_answer(request: Request) -> Response:
    """Store whether a finding is right, or that nobody says so any more."""
    form = await read_form(request)
    data_set, session = await find_session(request)
    answer, number, behaviour = (*form.get("answer", "").split(" "), "", "")[:3]
    known = await data_set.read_known(session)
    place = (session.id, read_count(number, 0), behaviour)
    found = next((number for number, finding in enumerate(known.findings, 1) if finding.key == place), None)
    if answer not in _ANSWERS or found is None:
        raise InputError(
            "The conversation has no such finding any more.", next="Go back, reload the page and look again."
        )
    said = Confirmation(*place, HUMAN, _ANSWERS[answer], answer, Usage(), 0.0, HUMAN)
    async with data_set.writing, open_for_page(data_set.run) as store:
        await store.add_confirmation(said)
    back = ListFilter.read(request.query_params).write()
    first = read_count(form.get("from", ""), 1)
    part = f"{'&' if back else '?'}from={first}" if first > 1 else ""
    return RedirectResponse(f"{request.url.path.removesuffix('/findings')}{back}{part}#finding-{found}", 303)


# Server-sent events of a conversation that is being written, by a page or by another process.


# Seconds between two looks at the run.
_EVERY = 0.25
# Seconds after which a silent stream says that it lives.
_ALIVE = 15.0


async def stream_conversation(request: Request) -> Response:
    """Stream the turns after the one that the browser has."""
    data_set, session = await find_session(request)
    last = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    after = read_count(last, 0)
    stage = get_explorer(request).stage
    if not _is_of(stage, data_set, session) or (stage.session == session.id and not stage.is_running):
        stage = None
    return StreamingResponse(
        _guard_stream(_follow(request, data_set, session.id, after, stage)), media_type="text/event-stream"
    )


async def _guard_stream(stream: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield ``stream``; if the run cannot be read any more, let the page load itself, which says why."""
    try:
        async with aclosing(stream):
            async for part in stream:
                yield part
    except BactrianError:
        yield _write("ended", {})


async def _read_again(data_set: DataSet, session_id: str) -> Session:
    session = await data_set.store.session(session_id)
    if session is None:
        raise StoreError("The conversation was removed from the run.")
    return session


def _is_of(stage: LiveStage | None, data_set: DataSet, session: Session) -> TypeGuard[LiveStage]:
    """Return True if the session was begun by this play."""
    return stage is not None and stage.data == data_set.name and session.id in stage.sessions


def _find_next(stage: LiveStage | None, session_id: str) -> str | None:
    """Return the page of what a society played after a conversation; None if that is all."""
    return None if stage is None or stage.session == session_id else write_live_address(stage)


def write_live_address(stage: LiveStage) -> str:
    """Return the page of the conversation that is played, which leads on to those that follow."""
    return f"/c/{quote(stage.data)}/{quote(stage.session)}?watch=1#live"


async def _follow(
    request: Request, data_set: DataSet, session_id: str, after: int, stage: LiveStage | None
) -> AsyncGenerator[bytes]:
    queue = stage.subscribe() if stage is not None else None
    seen, silent, written = -1, 0.0, data_set.is_written
    try:
        if stage is not None:
            yield _write("state", _describe_stage(request, stage))
        while not get_explorer(request).is_ending():
            playing = stage is not None and stage.is_running and stage.session == session_id
            last, _ = await data_set.store.find_touched(1 << 62)
            if last != seen or silent >= 1 or (stage is not None and not playing):
                seen = last
                session = await _read_again(data_set, session_id)
                new = [turn for turn in session.turns if turn.number > after]
                findings = await asyncio.to_thread(find_behaviours, session, least=POSSIBLE) if new else ()
                ticks = build_rail(session, findings, ListFilter()).ticks if new else ()
                paid = await _count_paid(data_set, session) if new else PaidSoFar(0, None)
                known = await data_set.store.deliberation(session.id) if new else NOTHING_KNOWN
                costs = await _cost_turns(data_set.store, session, known) if new else ()
                for shown in show_turns(session, new, findings, known, costs, view=read_view(request)):
                    after, silent = shown.turn.number, 0.0
                    one = next(tick for tick in ticks if tick.last >= after)
                    html = render_text(request, "live_turn.html", shown=shown, one=one)
                    counts = render_text(request, "counts.html", session=session, paid=paid).strip()
                    yield _write("turn", {"number": after, "html": html, "counts": counts}, after)
                # A play that failed is not over as soon as its ending is stored, and one elsewhere may be interrupted.
                left = stage is not None or (written and not data_set.is_written)
                if not playing and (session.ending is not None or left):
                    yield _write("ended", {"next": _find_next(stage, session_id)})
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
                yield _write("state", _describe_stage(request, stage))
            elif kind in ("piece", "restart"):
                yield _write(kind, text)
    finally:
        if stage is not None and queue is not None:
            stage.unsubscribe(queue)


def _write(event: str, data: object, number: int | None = None) -> bytes:
    mark = "" if number is None else f"id: {number}\n"
    return f"{mark}event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


# The files that an embodied agent made: pictures are shown, anything else is downloaded.


async def send_file(request: Request) -> Response:
    """Send one file of a session. Its name is looked up in the folder, so that no path leads out of it."""
    data_set, session = await find_session(request)
    name = request.path_params["name"]
    files = await asyncio.to_thread(list_kept_files, data_set.run, session.id)
    file = next((file for file in files if file.name == name), None)
    if file is None:
        raise HTTPException(404, f"The conversation has no file {name!r}.")
    # Opened as a page of its own, a picture of lines (.svg) could run scripts: only ``img`` shows it.
    return FileResponse(
        file.path,
        media_type=file.picture or "application/octet-stream",
        filename=file.name,
        content_disposition_type="attachment",
    )


ROUTES = (
    Route("/c/{data}/{id}", show_conversation),
    Route("/c/{data}/{id}/prompts", show_prompts),
    Route("/c/{data}/{id}/markdown", write_markdown),
    Route("/c/{data}/{id}/json", write_json),
    Route("/c/{data}/{id}/marks", save_mark, methods=["POST"]),
    Route("/c/{data}/{id}/findings", save_answer, methods=["POST"]),
    Route("/c/{data}/{id}/files/{name}", send_file),
    Route("/c/{data}/{id}/events", stream_conversation),
    Route("/marks", mark_all, methods=["POST"]),
)
