"""One conversation, as a talk: fields, code, cost, evidence; and the same as Markdown and JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.analyze.behaviours import find_installed, load_definitions
from bactrian.errors import InputError
from bactrian.explore.layout import LONGEST, FieldBlock, arrange_turn, tokenize_code
from bactrian.explore.library import DataSet, Library, list_kept_files
from bactrian.explore.related import find_related, read_hearing
from bactrian.explore.rendering import (
    get_explorer,
    has_agreed,
    read_form,
    render_page,
)
from bactrian.explore.search_words import Term, read_search
from bactrian.explore.session_findings import read_known
from bactrian.explore.session_lists import Address, ListFilter, find_neighbours, list_ids
from bactrian.export.dialogue import SystemPrompts
from bactrian.models.budget import Price
from bactrian.records.events import Ended, Spoke, Started, write_event
from bactrian.records.run import Finding, Mark
from bactrian.records.session import Session, find_kind
from bactrian.records.text import clean_text, to_markdown
from bactrian.records.turn import CriticSettings, Decision, Deliberation, Proposal, Turn
from bactrian.store import open_store

if TYPE_CHECKING:
    from bactrian.explore.playing import LiveStage


WINDOW = 100
"""Messages on a page."""
_PARTS: Mapping[str, str] = {"user": "AI user", "assistant": "AI assistant"}
_NO_PRICES: Mapping[str, Price] = {}
ENDING_REASONS: Mapping[str, str] = {
    "task_done": "The AI user said that the task is done.",
    "user_no_instruct": "The AI user gave no instruction several times in a row.",
    "assistant_instruct": "The AI assistant gave an instruction, which is the AI user's part.",
    "token_limit": "The next request would not have fit into the model's context window.",
    "max_messages": "It reached its longest length.",
    "repeat_loop": "The agents went on thanking each other, or said the same again.",
    "refused": "The endpoint or the model declined.",
    "failed": "A model failed. A later run resumes it.",
    "stopped": "A person stopped it.",
    "answered": "The question was answered.",
    "translated": "All messages were translated.",
    "imported": "The imported file does not say why it ended.",
}
"""Why a session ended, by code, for a reader who does not know the codes."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A turn with everything that is shown of it."""

    turn: Turn
    part: str
    """``AI user`` or ``AI assistant``; empty in a group chat."""
    side: str
    """The class of its colour."""
    fields: tuple[FieldBlock, ...]
    findings: tuple[tuple[int, str, str], ...]
    """Number, behaviour and reason."""
    rounds: tuple[ChoiceRound, ...]
    cost: float | None
    cut: bool


# Proposals and the decisions on them, as trees: one for each round of a turn, or one for a whole search.


@dataclass(slots=True)
class Branch:
    """A proposal, and those that continue it."""

    proposal: Proposal
    chosen: bool
    """True if it was spoken."""
    survives: bool
    """True if a search went on with it."""
    children: list[Branch] = field(default_factory=list["Branch"])


@dataclass(frozen=True, slots=True)
class ChoiceRound:
    """The proposals of a round, or of a search over several turns, as a tree, with the decisions."""

    number: int
    """Of the round, from 1."""
    count: int
    roots: Sequence[Branch]
    verdicts: Sequence[Decision]
    last: int = 0
    """The last turn of a search; 0 if it is none."""


def list_rounds(
    known: Deliberation, number: int, critic: CriticSettings | None, turns: Sequence[Turn]
) -> Iterator[ChoiceRound]:
    """Yield the rounds of proposals for turn ``number``; a whole search with the first of its turns.

    Args:
        known: All proposals and decisions of the session.
        number: The turn.
        critic: The settings of the session.
        turns: All turns of the session, which tell what was spoken without a decision: all proposals were the same.
    """
    if critic is not None and critic.searches:
        if (number - 1) % critic.depth == 0 and (made := _build_search(known, number, critic.depth, turns)):
            yield made
        return
    for round_ in sorted({one.round for one in known.proposals if one.number == number}):
        proposals, verdicts = known.of(number, round_)
        place = verdicts[-1].place if verdicts else None
        branches = [Branch(one, one.place == place, survives=False) for one in proposals]
        if not verdicts:
            _mark_spoken(branches, turns)
        yield ChoiceRound(round_, len(proposals), branches, verdicts)


def _build_search(known: Deliberation, first: int, depth: int, turns: Sequence[Turn]) -> ChoiceRound | None:
    """Return the tree of a search that began with turn ``first``; None if nothing was proposed."""
    nodes: dict[tuple[int, int], Branch] = {}
    roots: list[Branch] = []
    verdicts: list[Decision] = []
    for number in range(first, first + depth):
        proposals, decisions = known.of(number, 1)
        kept = decisions[-1].kept if decisions else ()
        for one in proposals:
            branch = nodes[number, one.place] = Branch(one, chosen=False, survives=one.place in kept)
            parent = None if one.parent is None else nodes.get((number - 1, one.parent))
            (roots if parent is None else parent.children).append(branch)
        verdicts += decisions
    if not nodes:
        return None
    if verdicts:
        _mark_best(nodes, verdicts[-1])
    else:
        _mark_spoken(roots, turns)
    return ChoiceRound(1, len(nodes), roots, verdicts, max(number for number, _ in nodes))


def _mark_best(nodes: dict[tuple[int, int], Branch], last: Decision) -> None:
    """Mark the line that was spoken: backwards from what the last decision ranks first."""
    place = last.kept[0] if last.kept else last.place
    number = last.number
    while place is not None and (best := nodes.get((number, place))) is not None:
        best.chosen = True
        place, number = best.proposal.parent, number - 1


def _mark_spoken(branches: Sequence[Branch], turns: Sequence[Turn]) -> None:
    """Mark the first proposal with the text that was spoken, and likewise below it."""
    for branch in branches:
        number = branch.proposal.number
        if number <= len(turns) and turns[number - 1].text == branch.proposal.text:
            branch.chosen = True
            _mark_spoken(branch.children, turns)
            return


# The pages of a conversation.


async def show_conversation(request: Request) -> Response:
    """Show a conversation, a hundred messages at a time."""
    one, session = await find_session(request)
    if session.mark and not has_agreed(request):
        return render_page(request, "notice.html", next=request.url.path)
    list_filter = ListFilter.read(request.query_params)
    chosen = _read_number(request, "from", 1)
    first = min(max(chosen, 1), max(len(session.turns), 1))
    turns = session.turns[first - 1 : first - 1 + WINDOW]
    known = await one.store.deliberation(session.id) if session.provenance.critic else Deliberation()
    facts = await asyncio.to_thread(read_known, one.side, session)
    before, after = await asyncio.to_thread(
        _find_neighbours, get_explorer(request).library, list_filter, one, facts.row
    )
    recipe = await one.store.recipe() or {}
    return render_page(
        request,
        "conversation.html",
        data=one.name,
        session=session,
        roles=name_roles(session),
        kind=find_kind(session),
        turns=list(
            show_turns(
                session,
                turns,
                facts.findings,
                known,
                facts.prices.get,
                read_search(list_filter.q),
                _read_number(request, "whole", 0),
            )
        ),
        findings=len(facts.findings),
        first=first,
        last=first - 1 + len(turns),
        size=WINDOW,
        before=before,
        after=after,
        back=list_filter.write() if list_filter.write() != "?" else "",
        filter=list_filter,
        created=facts.created,
        stage=_find_stage(request, one.name, session.id),
        hearing=await read_hearing(one.store, session, recipe),
        files=await asyncio.to_thread(list_kept_files, one.run, session.id),
        related=await find_related(get_explorer(request).library, one, session, recipe),
        marks=await one.store.marks(session.id),
        cost=_sum_costs([_find_cost(session, turn, facts.prices.get) for turn in session.turns]),
        ending_reason=ENDING_REASONS.get(session.ending.code, "") if session.ending else "",
    )


def _find_neighbours(
    library: Library, list_filter: ListFilter, one: DataSet, row: int | None
) -> tuple[Address | None, Address | None]:
    """Return the neighbours in the list of the filter, as far as the index and the list know the conversation."""
    sides = library.list_sides(list_filter.data)
    if row is None or one.name not in sides:
        return None, None
    return find_neighbours(sides, list_filter, one.name, row)


async def find_session(request: Request) -> tuple[DataSet, Session]:
    """Return the data set and the session that an address names.

    Raises:
        HTTPException: there is none; the page says what was not found.
        StoreError: it is damaged.
    """
    return await find_named_session(request, request.path_params["data"], request.path_params["id"])


async def find_named_session(request: Request, name: str, session_id: str) -> tuple[DataSet, Session]:
    """Return a data set and a session by their names. Raises what :func:`find_session` raises."""
    one = get_explorer(request).library.sets.get(name)
    if one is None:
        raise HTTPException(404, f"There is no data set {name!r}.")
    session = await one.store.session(session_id)
    if session is None:
        raise HTTPException(404, f"The data set {name} has no conversation {session_id!r}.")
    return one, session


def name_roles(session: Session) -> list[str]:
    """Return the names of all roles, the assistant's first."""
    cast = session.provenance.cast.values() or (session.assistant, session.user)
    return [role.name for role in cast]


def show_turns(
    session: Session,
    turns: Sequence[Turn],
    findings: Sequence[Finding],
    known: Deliberation,
    prices: Callable[[str], Price | None] = _NO_PRICES.get,
    terms: tuple[Term, ...] = (),
    whole: int = 0,
) -> Iterator[ShownMessage]:
    """Yield ``turns`` of a session as they are shown. ``whole`` is the number of a turn to show in full length."""
    numbered = list(enumerate(findings, 1))
    has_cast = bool(session.provenance.cast)
    places = {name: place for place, name in enumerate(session.provenance.cast)}
    for turn in turns:
        here = [(number, one) for number, one in numbered if one.turn == turn.number]
        side = turn.speaker if not has_cast else ("user", "assistant")[places.get(turn.speaker, 0) % 2]
        yield ShownMessage(
            turn,
            "" if has_cast else _PARTS.get(turn.speaker, ""),
            side,
            arrange_turn(
                turn, [(number, one.quote) for number, one in here], terms, whole=whole == turn.number
            ),
            tuple((number, one.behaviour, explain_behaviour(one.behaviour)) for number, one in here),
            tuple(list_rounds(known, turn.number, session.provenance.critic, session.turns)),
            _find_cost(session, turn, prices),
            len(turn.text) > LONGEST and whole != turn.number,
        )


@cache
def explain_behaviour(code: str) -> str:
    """Return what a behaviour is: the first sentence of its definition."""
    for own in find_installed():
        if own.code == code:
            return own.description
    _, _, text = " ".join(load_definitions().get(code, "").split()).partition(": ")
    first = text.partition(". ")[0].rstrip(".")
    return f"{first[:1].upper()}{first[1:]}." if first else ""


def _find_cost(session: Session, turn: Turn, prices: Callable[[str], Price | None]) -> float | None:
    model = session.provenance.models.get(turn.speaker)
    price = prices(model) if model else None
    return None if price is None else price.cost(turn.usage)


def _sum_costs(costs: Sequence[float | None]) -> float | None:
    known = [one for one in costs if one is not None]
    return sum(known) if len(known) == len(costs) else None


def _find_stage(request: Request, data: str, session_id: str) -> LiveStage | None:
    """Return the play of this conversation, also after it was stopped; None if no page began it."""
    stage = get_explorer(request).stage
    return stage if stage and (stage.data, stage.session) == (data, session_id) else None


def prepare_pages() -> None:
    """Load what the first conversation needs: the highlighter."""
    tokenize_code("pass", "python")


def _read_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else default


async def show_prompts(request: Request) -> Response:
    """Show the inception prompts, made again from the pack that the session names."""
    one, session = await find_session(request)
    if session.mark and not has_agreed(request):
        return render_page(request, "notice.html", next=request.url.path)
    packs = await asyncio.to_thread(SystemPrompts, await one.store.recipe())
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
        data=one.name,
        session=session,
        prompts=[(agent, text) for agent, text in prompts if text],
        why=why,
    )


async def write_markdown(request: Request) -> Response:
    """Return the conversation as Markdown, in which the texts stand as they are, in quotations."""
    _, session = await find_session(request)
    _check_agreed(request, session)
    parts = [f"# {to_markdown(' × '.join(name_roles(session)))}", _quote(session.task.original)]
    if session.task.specified:
        parts += ["## Specified task", _quote(session.task.specified)]
    for turn in session.turns:
        part = "" if session.provenance.cast else f" ({_PARTS.get(turn.speaker, turn.speaker)})"
        parts += [f"## {turn.number}. {to_markdown(turn.role)}{part}", _quote(turn.text)]
    if session.ending:
        parts.append(f"Ended by `{session.ending.code}` at message {session.ending.turn}.")
    return PlainTextResponse("\n\n".join(parts) + "\n", media_type="text/markdown")


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


async def write_json(request: Request) -> Response:
    """Return the conversation as its events, as ``play --json`` writes them."""
    _, session = await find_session(request)
    _check_agreed(request, session)
    events = [
        Started(session),
        *map(Spoke, session.turns),
        *([Ended(session.ending)] if session.ending else []),
    ]
    return JSONResponse({"events": [write_event(event) for event in events]})


def _check_agreed(request: Request, session: Session) -> None:
    if session.mark and not has_agreed(request):
        raise HTTPException(403)


# Marks and notes on conversations, kept in the run; only with ``--edit``.


_LONGEST_MARK = 60
_LONGEST_NOTE = 10_000
"""Characters."""
_AT_ONCE = 500


async def save_mark(request: Request) -> Response:
    """Add or remove a mark, or change its note, unless somebody else changed it since the page was loaded."""
    _check_edit(request)
    one, session = await find_session(request)
    form = await read_form(request)
    name, note = _read_name(form.get("mark", "")), clean_text(form.get("note", "")).strip()[:_LONGEST_NOTE]
    seen = form.get("seen", "")
    async with one.writing:
        stored = next((mark for mark in await one.store.marks(session.id) if mark.mark == name), None)
        if stored is not None and f"{stored.created}" != seen and (stored.note != note or "remove" in form):
            return render_page(
                request, "conflict.html", 409, data=one.name, session=session, stored=stored, note=note
            )
        async with open_store(one.run) as store:
            if "remove" in form:
                await store.remove_mark(session.id, name)
            else:
                await store.add_mark(Mark(session.id, name, note, time.time()))
    back = request.url.path.removesuffix("/marks")
    # The list from which the reader came stays the list to go back to.
    query = ListFilter.read(request.query_params).write().removesuffix("?")
    return RedirectResponse(f"{back}{query}#marks", 303)


async def mark_all(request: Request) -> Response:
    """Give a mark to every conversation of a filter."""
    _check_edit(request)
    list_filter = ListFilter.read(request.query_params)
    name = _read_name((await read_form(request)).get("mark", ""))
    for one in get_explorer(request).library.choose(list_filter.data).values():
        ids = await asyncio.to_thread(list_ids, one.side, list_filter)
        await _mark_many(one, ids, name)
    return RedirectResponse(f"/export{ListFilter(mark=name).write()}", 303)


async def _mark_many(one: DataSet, ids: Iterable[str], name: str) -> None:
    async with one.writing:
        have = {mark.session for mark in await one.store.marks() if mark.mark == name}
        missing = [session for session in ids if session not in have]
        if not missing:
            return
        async with open_store(one.run) as store:
            for begin in range(0, len(missing), _AT_ONCE):
                some = missing[begin : begin + _AT_ONCE]
                await asyncio.gather(
                    *(store.add_mark(Mark(session, name, "", time.time())) for session in some)
                )


def _check_edit(request: Request) -> None:
    if not get_explorer(request).edit:
        raise HTTPException(403, "Start the explorer with --edit to write marks.")


def _read_name(text: str) -> str:
    name = " ".join(clean_text(text).split())
    if not 0 < len(name) <= _LONGEST_MARK:
        raise InputError(
            f"A mark has 1 to {_LONGEST_MARK} characters.", next="Go back and give it a short name."
        )
    return name


ROUTES = (
    Route("/c/{data}/{id}", show_conversation),
    Route("/c/{data}/{id}/prompts", show_prompts),
    Route("/c/{data}/{id}/markdown", write_markdown),
    Route("/c/{data}/{id}/json", write_json),
    Route("/c/{data}/{id}/marks", save_mark, methods=["POST"]),
    Route("/marks", mark_all, methods=["POST"]),
)
