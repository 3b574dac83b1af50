"""``bactrian evaluate vote``: a person compares pairs of solutions without knowing whose they are."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.terminal.console import open_output
from bactrian.cli.terminal.keyboard import Keyboard
from bactrian.cli.view.votes import show_ballot, show_guideline, show_tally
from bactrian.errors import InputError, Left, Stopped
from bactrian.evaluate.votes.ballot import QUOTA, Ballot, find_next_ballot, read_pairs
from bactrian.evaluate.votes.casting import cast_vote
from bactrian.evaluate.votes.study import find_study, name_solutions, read_tally, read_votes
from bactrian.records.run import Preference
from bactrian.records.text import write_count
from bactrian.store import find_run

_KEYS: dict[str, Preference] = {"l": "left", "r": "right", "e": "equal", "b": "both_bad", "s": "skip"}
_QUESTION = "[l]eft, [r]ight, [e]qual, [b]oth bad, [s]kip, [q]uit; a comment may follow:"


def vote(
    run_file: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The run that was evaluated, or the folder of its evaluation."),
    ],
    voter: Annotated[
        str | None,
        declare_option("--voter", "Your pseudonym; with it you can continue later. Default: a random one."),
    ] = None,
    quota: Annotated[int, declare_option("--quota", "Votes that a pair needs.", min=1)] = QUOTA,
    results: Annotated[
        bool, declare_option("--results", "Show what all votes say, and ask nothing.")
    ] = False,
    as_json: Annotated[bool, declare_option("--json", "Write the results as JSON.")] = False,
) -> None:
    """Vote on pairs of solutions without knowing whose they are."""
    folder = find_folder(run_file)
    if results or as_json:
        run_async(_show_results(folder, as_json=as_json), resume="Nothing was changed.")
    name = voter or f"voter-{secrets.token_hex(3)}"
    again = f"To continue: bactrian evaluate vote {shlex.quote(str(run_file))} --voter {shlex.quote(name)}"
    stop_control = StopControl()
    keyboard = Keyboard()
    stop_control.stop = keyboard.stop
    work = _vote(folder, name, quota, keyboard, again)
    run_async(work, resume=again, stop_control=stop_control)


def find_folder(given: Path) -> Path:
    """Return the folder of the evaluation that a command names.

    Raises:
        InputError: there are no solutions in it.
    """
    folder = find_study(given if given.is_dir() else find_run(given))
    if folder is None:
        raise InputError(
            "There are no solutions to vote on.",
            where=str(given),
            next=f"Write them first: bactrian evaluate agents {given}",
        )
    return folder


async def _vote(folder: Path, voter: str, quota: int, keyboard: Keyboard, again: str) -> int:
    solutions = name_solutions(folder)
    out = open_output()
    given = 0
    show_guideline(out)
    try:
        while True:
            pairs = await read_pairs(solutions)
            ballot = find_next_ballot(pairs, await read_votes(folder), voter, quota=quota)
            if ballot is None:
                out.print("\nThere is nothing left for you to vote on. Thank you.")
                break
            show_ballot(out, ballot)
            if not await _ask(solutions, ballot, voter, keyboard):
                break
            given += 1
    except (Left, Stopped):
        pass
    print(f"\n{write_count(given, 'vote')} stored under the name {voter}. {again}", file=sys.stderr)
    return 0


async def _ask(solutions: Path, ballot: Ballot, voter: str, keyboard: Keyboard) -> bool:
    """Ask until there is a vote, and store it; return False if the voter quits."""
    begun = time.monotonic()
    while True:
        words = (await keyboard.ask(_QUESTION)).split(maxsplit=1)
        key = words[0].lower() if words else ""
        if key in ("q", "quit"):
            return False
        if choice := next((name for short, name in _KEYS.items() if key in (short, name)), None):
            comment = words[1] if len(words) > 1 else ""
            seconds = time.monotonic() - begun
            try:
                await cast_vote(solutions, ballot, voter, choice, comment=comment, seconds=seconds)
            except InputError as error:
                print(f"bactrian: {error}", file=sys.stderr)
            return True


async def _show_results(folder: Path, *, as_json: bool) -> int:
    tally = await read_tally(folder)
    if as_json:
        print(json.dumps(tally, ensure_ascii=False))
    else:
        show_tally(open_output(), tally)
    return 0
