"""Labels of people: one conversation at a time for those with an invitation, and what they say for the owner.

Nothing on the page of a conversation tells what detectors or other people say of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from bactrian.detect.detector import LIKELY
from bactrian.errors import InputError
from bactrian.evaluate import label_queues
from bactrian.evaluate.invitations import name_voters, read_invitations
from bactrian.explore.conversation_pages import find_named_session, read_view
from bactrian.explore.invited_people import Door, explain_bad_link, read_seconds
from bactrian.explore.layout import show_turns
from bactrian.explore.library import DataSet
from bactrian.explore.rendering import get_explorer, is_owner, read_form, render_page
from bactrian.explore.session_findings import unpack_evidence
from bactrian.explore.session_lists import read_count
from bactrian.records.session import name_agents
from bactrian.records.turn import NOTHING_KNOWN

_DOOR = Door("/label", "labeller")


@dataclass(frozen=True, slots=True)
class Labeller:
    """A person with an invitation to a queue."""

    name: str
    data_set: DataSet
    # Of the queue.
    folder: Path
    queue: label_queues.LabelQueue


async def show_label(request: Request) -> Response:
    """Show the next conversation or the one with a number, or let a person in who brings an invitation."""
    person = _find_labeller(request)
    if token := request.query_params.get("invite"):
        return (
            _DOOR.log_in(request, token) if person else _ask_invitation(request, *explain_bad_link(request))
        )
    if person is None:
        return _ask_invitation(request)
    return await _show_item(request, person, read_count(request.query_params.get("at", ""), 0) or None)


async def save_labels(request: Request) -> Response:
    """Store what a person says of a conversation, and go to the next one."""
    explorer = get_explorer(request)
    form = await read_form(request, writes=False)
    person = _find_labeller(request)
    if person is None:
        return _ask_invitation(request)
    if not explorer.edit:
        raise HTTPException(403)
    number = read_count(form.get("number", ""), 0)
    if wait := explorer.votes.take(f"{person.folder} {person.name}"):
        what = f"This is faster than a person can read. Nothing was stored; continue in {wait:.0f} seconds."
        return await _show_item(request, person, number, 429, what)
    try:
        seen = float(form["seen"]) if form.get("seen") else None
        _, session = await find_named_session(request, person.data_set.name, form.get("session", ""))
        answer = label_queues.GivenLabels(
            session.id,
            person.name,
            _read_labels(person.queue, form, len(session.turns)),
            skipped="skip" in form,
            comment=form.get("comment", ""),
            seconds=read_seconds(form.get("shown", "")),
        )
        await asyncio.to_thread(label_queues.store_labels, person.folder, person.queue, answer, seen)
    except (InputError, ValueError) as error:
        what = f"{error.what} {error.next or ''}" if isinstance(error, InputError) else "Open the page again."
        return await _show_item(request, person, number, 409, f"Nothing was stored. {what}", form)
    return RedirectResponse("/label", 303)


def _read_labels(queue: label_queues.LabelQueue, form: Mapping[str, str], turns: int) -> dict[str, int]:
    """Return the chosen labels with the number of a turn.

    Raises:
        InputError: nothing is chosen, or a turn does not exist.
    """
    if "skip" in form:
        return {}
    chosen = [label for label in queue.labels if f"is-{label}" in form or form.get("label") == label]
    if not chosen and "none" not in form:
        raise InputError("Nothing is chosen.", next="Choose a label, or that none fits.")
    if chosen and "none" in form:
        raise InputError("A label and “none of these” are both chosen.", next="Leave one of them out.")
    labels: dict[str, int] = {}
    for label in chosen:
        written = form.get(f"at-{label}", "").strip()
        number = read_count(written, -1) if written else 0
        if not 0 <= number <= turns:
            raise InputError(f"There is no message {written[:20]!r}.", next=f"The last one is {turns}.")
        labels[label] = number
    return labels


async def _show_item(
    request: Request,
    person: Labeller,
    number: int | None,
    status: int = 200,
    problem: str = "",
    kept: Mapping[str, str] | None = None,
) -> Response:
    given = await asyncio.to_thread(label_queues.read_given, person.folder)
    item = label_queues.find_item(person.queue, given, person.name, number)
    done = sum(answer.person == person.name for answer in given)
    if item is None:
        return render_page(request, "labelled.html", status, person=person, done=done, problem=problem)
    _, session = await find_named_session(request, person.data_set.name, item.session)
    whole = read_count(request.query_params.get("whole", ""), 0)
    turns = await asyncio.to_thread(
        list, show_turns(session, session.turns, (), NOTHING_KNOWN, whole=whole, view=read_view(request))
    )
    return render_page(
        request,
        "label.html",
        status,
        person=person,
        item=item,
        done=done,
        session=session,
        roles=name_agents(session),
        turns=turns,
        fields=_fill_fields(item, kept),
        problem=problem,
        now=time.time(),
    )


def _fill_fields(item: label_queues.QueueItem, kept: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return what the form shows: what was refused a moment ago, or what was stored before."""
    if kept is not None:
        return kept
    if item.before is None:
        return {}
    before = item.before
    fields = {"comment": before.comment, **({} if before.labels or before.skipped else {"none": "1"})}
    for label, turn in before.labels.items():
        fields |= {f"is-{label}": "1", "label": label, f"at-{label}": f"{turn or ''}"}
    return fields


def _ask_invitation(request: Request, status: int = 401, problem: str = "") -> Response:
    what = problem or "You need an invitation: open the link that you were sent."
    return render_page(request, "labelled.html", status, person=None, done=0, problem=what)


async def begin_labelling(request: Request) -> Response:
    """Let the owner label under a pseudonym, without a link."""
    form = await read_form(request)
    if not is_owner(request):
        raise HTTPException(403)
    _, folder = _find_queue(request, form)
    return _DOOR.log_in_owner(request, folder, form.get("person", ""), "Open it, or take another name.")


async def show_labels(request: Request) -> Response:
    """Show how far people are with each queue, and how much they agree, for the owner."""
    queues = [
        (data_set.name, name, data_set.source, await asyncio.to_thread(_describe, data_set, folder))
        for data_set, name, folder in _list_queues(request)
    ]
    return render_page(request, "labels.html", queues=queues, pseudonym=name_voters(1, "person")[0])


def _describe(data_set: DataSet, folder: Path) -> dict[str, object]:
    queue, given = label_queues.read_queue(folder), label_queues.read_given(folder)
    query = (
        "SELECT id, packed FROM heads JOIN evidence USING (row) WHERE id IN (SELECT value FROM json_each(?))"
    )
    with data_set.read_index() as index:
        found = {
            name: {seen.behaviour for seen in unpack_evidence(name, packed)[1] if seen.confidence >= LIKELY}
            for name, packed in index.execute(query, (json.dumps(queue.sessions),))
        }
    # Until all of them were searched, nothing is said of detectors.
    described = label_queues.describe_labels(
        queue, given, found if len(found) == len(queue.sessions) else None
    )
    invited = {invitation.voter: 0 for invitation in read_invitations(folder)}
    return {**described, "people": {**invited, **described["people"]}}


async def write_labels(request: Request) -> Response:
    """Return the answers as JSON lines, or the conversations as ``bactrian behaviours train`` reads them."""
    data_set, folder = _find_queue(request, request.path_params)
    given = await asyncio.to_thread(label_queues.read_given, folder)
    rows = [asdict(answer) for answer in given]
    if request.path_params["kind"] == "training":
        rows = [
            row
            async for row in label_queues.list_examples(
                data_set.store, label_queues.read_queue(folder), given
            )
        ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return PlainTextResponse(text, media_type="application/jsonl")


def _find_queue(request: Request, names: Mapping[str, str]) -> tuple[DataSet, Path]:
    wanted = names.get("data", ""), names.get("queue", "")
    for data_set, name, folder in _list_queues(request):
        if (data_set.name, name) == wanted:
            return data_set, folder
    raise HTTPException(404, f"The data set {wanted[0]} has no queue {wanted[1]!r}.")


def _list_queues(request: Request) -> Iterator[tuple[DataSet, str, Path]]:
    for data_set in get_explorer(request).library.sets.values():
        for name, folder in label_queues.find_queues(data_set.run).items():
            yield data_set, name, folder


def _find_labeller(request: Request) -> Labeller | None:
    queues = {folder: data_set for data_set, _, folder in _list_queues(request)}
    found = _DOOR.find_person(request, queues)
    return found and Labeller(found[0], queues[found[1]], found[1], label_queues.read_queue(found[1]))


ROUTES = (
    Route("/label", show_label, methods=["GET"]),
    Route("/label", save_labels, methods=["POST"]),
    Route("/label/begin", begin_labelling, methods=["POST"]),
    Route("/label/leave", _DOOR.leave, methods=["POST"]),
    Route("/labels", show_labels),
    Route("/labels/{data}/{queue}.{kind:str}.jsonl", write_labels),
)
