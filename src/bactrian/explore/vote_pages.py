"""Blind votes: one pair of solutions at a time for voters with an invitation, and the results for the owner."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.invitations import name_voters, read_invitations
from bactrian.evaluate.votes import (
    GUIDELINE,
    Ballot,
    cast_vote,
    compare_voter,
    count_votes,
    find_next_ballot,
    find_study,
    name_solutions,
    read_pairs,
    read_tally,
    read_votes,
)
from bactrian.explore.invited_people import Door, explain_bad_link, read_seconds
from bactrian.explore.layout import arrange_text
from bactrian.explore.rendering import get_explorer, has_agreed, is_owner, read_form, render_page
from bactrian.records.run import Vote

_DOOR = Door("/vote", "voter")


@dataclass(frozen=True, slots=True)
class Voter:
    """A person with an invitation."""

    name: str
    # Of the evaluation.
    folder: Path

    @property
    def solutions(self) -> Path:
        """The run that contains the solutions and the votes."""
        return name_solutions(self.folder)


async def show_vote(request: Request) -> Response:
    """Show the next pair, or let a voter in who brings an invitation."""
    voter = _find_voter(request)
    if token := request.query_params.get("invite"):
        return _DOOR.log_in(request, token) if voter else _ask_invitation(request, *explain_bad_link(request))
    if voter is None:
        return _ask_invitation(request)
    return await _show_next(request, voter, change="change" in request.query_params)


async def store_vote(request: Request) -> Response:
    """Store a vote and go to the next pair. A vote on a changed text, or over another one, is refused."""
    explorer = get_explorer(request)
    form = await read_form(request, writes=False)
    voter = _find_voter(request)
    if voter is None:
        return _ask_invitation(request)
    if not explorer.edit:
        raise HTTPException(403)
    if wait := explorer.votes.take(voter.name):
        what = f"This one was not counted; continue in {wait:.0f} seconds."
        return await _show_next(
            request, voter, 429, f"These are more votes than a person can give. {what}", form
        )
    async with explorer.voting:
        try:
            return await _store(request, voter, form)
        except InputError:
            raise
        except BactrianError as error:
            what = f"The vote was not stored: {error.what} Wait a moment and send it again."
            return await _show_next(request, voter, 503, what, form)


async def _store(request: Request, voter: Voter, form: Mapping[str, str]) -> Response:
    pairs, votes = await read_pairs(voter.solutions), await read_votes(voter.folder)
    mine = {(vote.session, vote.repeated): vote for vote in votes if vote.voter == voter.name}
    repeated = form.get("repeated") == "1"
    # The form names the sides by hashes of their texts: so it gives no way away, and what was on the left is what the
    # voter saw there, even if the order of the pairs has changed since.
    ballot = next(
        (
            Ballot(pair, left, right, repeated=repeated, number=0, total=0)
            for pair in pairs
            for left, right in permutations(pair.solutions)
            if (pair.session, *(_hash(pair.solutions[way]) for way in (left, right)))
            == tuple(map(form.get, ("session", "left", "right")))
        ),
        None,
    )
    if ballot is None:
        what = "The solutions of this task have changed since they were shown. The vote was not counted."
        return await _show_next(request, voter, 409, f"{what} Look at the pair again.")
    stored = mine.get((ballot.shown.session, repeated))
    if (f"{stored.created}" if stored else "") != form.get("seen", ""):
        what = (
            "You voted on this pair in another window meanwhile. That vote stands; this one was not counted."
        )
        return await _show_next(request, voter, 409, what)
    if repeated and (ballot.shown.session, False) not in mine:
        raise InputError("This pair was not shown before.", next="Open the page of the votes again.")
    await cast_vote(
        voter.solutions,
        ballot,
        voter.name,
        form.get("choice", ""),
        comment=form.get("comment", ""),
        seconds=read_seconds(form.get("shown", "")),
    )
    return RedirectResponse("/vote", 303)


async def _show_next(
    request: Request,
    voter: Voter,
    status: int = 200,
    problem: str = "",
    kept: Mapping[str, str] | None = None,
    *,
    change: bool = False,
) -> Response:
    """Show the next pair, or the last one again to change the vote; at the end thanks and agreement."""
    pairs, votes = await read_pairs(voter.solutions), await read_votes(voter.folder)
    mine = sorted((vote for vote in votes if vote.voter == voter.name), key=lambda vote: vote.created)
    last = next((pair for pair in pairs if mine and pair.session == mine[-1].session), None)
    before: Vote | None = None
    if change and last is not None:
        before = mine[-1]
        right = next(way for way in last.solutions if way != before.left)
        ballot = Ballot(last, before.left, right, repeated=before.repeated, number=0, total=0)
    else:
        ballot = find_next_ballot(pairs, votes, voter.name)
    if ballot is None:
        return render_page(
            request,
            "thanks.html",
            status,
            voter=voter,
            problem=problem,
            can_change=last is not None,
            agreement=compare_voter(pairs, votes, voter.name),
            tally=count_votes(pairs, votes),
        )
    if ballot.shown.mark and not has_agreed(request):
        return render_page(request, "notice.html", next="/vote")
    texts = [ballot.shown.solutions[way] for way in (ballot.left, ballot.right)]
    return render_page(
        request,
        "vote.html",
        status,
        voter=voter,
        ballot=ballot,
        # Nothing in these tells whose a solution is.
        columns=[
            (title, _hash(text), arrange_text(text))
            for title, text in zip(("Left", "Right"), texts, strict=True)
        ],
        before=before,
        given=len(mine),
        can_change=last is not None and before is None,
        guideline=GUIDELINE,
        problem=problem,
        comment=before.comment if before else (kept or {}).get("comment", ""),
        now=time.time(),
    )


def _ask_invitation(request: Request, status: int = 401, problem: str = "") -> Response:
    studies = _list_studies(request)
    return render_page(
        request,
        "invitation.html",
        status if problem or not is_owner(request) else 200,
        problem=problem,
        studies=list(studies),
        pseudonym=name_voters(1)[0],
    )


async def begin_voting(request: Request) -> Response:
    """Let the owner vote under a pseudonym, without a link."""
    form = await read_form(request)
    if not is_owner(request):
        raise HTTPException(403)
    folder = _list_studies(request).get(form.get("data", ""))
    if folder is None:
        raise InputError(
            "There are no solutions to vote on.", next="`bactrian evaluate agents RUN` writes them."
        )
    name = form.get("voter", "")
    action = f"Open it, take another name, or make a new one: bactrian evaluate invite {folder} {name}"
    return _DOOR.log_in_owner(request, folder, name, action)


async def show_votes(request: Request) -> Response:
    """Show what the votes say, with everybody who voted, for the owner."""
    tallies: list[tuple[str, str, dict[str, Any]]] = []
    for name, folder in _list_studies(request).items():
        tally = await read_tally(folder)
        invited = await asyncio.to_thread(read_invitations, folder)
        voters = Counter({invitation.voter: 0 for invitation in invited})
        voters.update(vote.voter for vote in await read_votes(folder))
        tallies.append((name, f"{folder}", {**tally, "by_voter": voters}))
    return render_page(request, "votes.html", tallies=tallies, pseudonym=name_voters(1)[0])


def _list_studies(request: Request) -> dict[str, Path]:
    """Return the folders of evaluations by the name of their data set."""
    sets = get_explorer(request).library.sets.values()
    folders = {data_set.name: find_study(data_set.source) for data_set in sets}
    return {name: folder for name, folder in folders.items() if folder is not None}


def _find_voter(request: Request) -> Voter | None:
    found = _DOOR.find_person(request, _list_studies(request).values())
    return found and Voter(*found)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


ROUTES = (
    Route("/vote", show_vote, methods=["GET"]),
    Route("/vote", store_vote, methods=["POST"]),
    Route("/vote/begin", begin_voting, methods=["POST"]),
    Route("/vote/leave", _DOOR.leave, methods=["POST"]),
    Route("/votes", show_votes),
)
