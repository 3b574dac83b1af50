"""Stores a vote, for any number of voters at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bactrian.errors import InputError, RunInUse
from bactrian.evaluate.votes.ballot import Ballot, make_pair
from bactrian.records.run import PREFERENCES, Vote
from bactrian.records.text import clean_text
from bactrian.store import open_store

_LONGEST_WAIT = 5.0
"""Seconds to wait while others write the run: a vote takes milliseconds, and a person looks at the page meanwhile."""
_PAUSE = 0.05
_LONGEST_NAME, _LONGEST_COMMENT = 64, 4000


async def cast_vote(
    solutions: Path, ballot: Ballot, voter: str, choice: str, *, comment: str = "", seconds: float = 0.0
) -> Vote:
    """Store a vote on ``ballot``, and return it when it is on disk.

    Args:
        solutions: The run that contains the solutions.
        ballot: As it was shown.
        voter: A pseudonym, at most 64 characters.
        choice: One of ``left``, ``right``, ``equal``, ``both_bad`` and ``skip``.
        comment: What the voter wrote about it.
        seconds: From showing the pair to the vote.

    Raises:
        InputError: the vote is not valid, or the texts have changed since they were shown; nothing is stored.
        RunInUse: another process writes the run for longer than a vote can wait.
    """
    shown = ballot.shown
    if choice not in PREFERENCES:
        raise InputError(f"{choice!r} is not a vote.", next=f"One of {', '.join(PREFERENCES)}.")
    if not voter.strip() or len(voter) > _LONGEST_NAME:
        raise InputError("A voter's name has 1 to 64 characters.", where=voter[:80])
    vote = Vote(
        shown.session,
        shown.pair,
        clean_text(voter),
        ballot.repeated,
        ballot.left,
        choice,
        clean_text(comment.strip())[:_LONGEST_COMMENT],
        shown.hash,
        seconds,
    )
    deadline = asyncio.get_running_loop().time() + _LONGEST_WAIT
    while True:
        try:
            await _store(solutions, ballot, vote)
        except RunInUse:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return vote


async def _store(solutions: Path, ballot: Ballot, vote: Vote) -> None:
    shown = ballot.shown
    async with open_store(solutions) as store:
        session = await store.session(shown.session)
        if session is None or make_pair(session, shown.pair).hash != shown.hash:
            raise InputError(
                f"The solutions of task {shown.session} have changed since they were shown.",
                where=str(solutions),
                next="The vote was not counted. Look at the pair again.",
            )
        await store.add_vote(vote)
