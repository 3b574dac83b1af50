"""``bactrian evaluate invite``: links by which people vote on the pages of ``bactrian explore``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from bactrian.cli.commands.evaluate.vote import find_folder
from bactrian.cli.options import declare_option
from bactrian.errors import InputError
from bactrian.evaluate.votes.invitations import (
    invite_voters,
    name_voters,
    read_invitations,
    withdraw_invitation,
)
from bactrian.evaluate.votes.study import read_votes


def invite(
    run_file: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The run that was evaluated, or the folder of its evaluation."),
    ],
    voters: Annotated[
        list[str] | None, typer.Argument(metavar="VOTER", help="Pseudonyms. Default: random ones.")
    ] = None,
    count: Annotated[
        int, declare_option("--voters", "Invite this many voters with random pseudonyms.", short="-n", min=1)
    ] = 1,
    address: Annotated[
        str, declare_option("--address", "Where the voters reach `bactrian explore`.")
    ] = "http://127.0.0.1:8642",
    withdraw: Annotated[
        str | None, declare_option("--withdraw", "Make the link of this voter invalid; the votes stay.")
    ] = None,
    show: Annotated[bool, declare_option("--list", "List the voters and the number of their votes.")] = False,
    as_json: Annotated[bool, declare_option("--json", "Write JSON.")] = False,
) -> None:
    """Make a link for each voter, to vote in the browser. A new link of a voter replaces the old one."""
    folder = find_folder(run_file)
    if withdraw is not None:
        withdraw_invitation(folder, withdraw)
        print(f"The link of {withdraw} is not valid any more.", file=sys.stderr)
        return
    if show:
        _list_voters(folder, as_json=as_json)
        return
    base = _check_address(address)
    tokens = invite_voters(folder, voters or name_voters(count))
    links = {voter: f"{base}/vote?invite={token}" for voter, token in tokens.items()}
    if as_json:
        print(json.dumps([{"voter": voter, "link": link} for voter, link in links.items()]))
        return
    for voter, link in links.items():
        print(f"{voter}\t{link}")
    print(
        f"Send each voter one link. They work while this runs: bactrian explore {run_file} --edit\n"
        "(with --host 0.0.0.0 for voters on other computers; they see the votes and no other page).",
        file=sys.stderr,
    )


def _list_voters(folder: Path, *, as_json: bool) -> None:
    votes = Counter(one.voter for one in asyncio.run(read_votes(folder)))
    invited = [one.voter for one in read_invitations(folder)]
    names = list(dict.fromkeys((*invited, *sorted(votes))))
    if as_json:
        rows = [{"voter": name, "votes": votes[name], "invited": name in invited} for name in names]
        print(json.dumps(rows, ensure_ascii=False))
        return
    for name in names:
        print(f"{name}\t{votes[name]}\t{'invited' if name in invited else 'not invited'}")


def _check_address(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
        raise InputError(
            f"{address!r} is not the address of a server.", next="Give it like http://lab-machine:8642."
        )
    return address.rstrip("/")
