"""Blind votes: invitations, votes from two windows, texts that changed, limits; without a browser."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.invitations import (
    find_voter,
    invite_voters,
    read_invitations,
    withdraw_invitation,
)
from bactrian.explore.security import VisitLimit, is_for_voters, make_access_rules
from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.explorer import Answer, RunningExplorer, explore
from tests.helpers.voting import make_study, read_stored, write_solutions


def send(voting: RunningExplorer, token: str, page: str, **changes: str) -> Answer:
    """Send the form of ``page`` as its browser would, with ``changes``."""
    fields = dict(
        re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.split('id="ballot"')[1])
    )
    port = voting.address.rsplit(":", 1)[1]
    return voting.get(
        "/vote",
        urlencode({**fields, "choice": "left", **changes}).encode(),
        Origin=voting.address,
        Cookie=f"bactrian_voter_{port}={token}",
    )


def get(voting: RunningExplorer, token: str, path: str = "/vote") -> Answer:
    return voting.get(path, Cookie=f"bactrian_voter_{voting.address.rsplit(':', 1)[1]}={token}")


@pytest.mark.system
def test_the_second_window_of_a_voter_does_not_overwrite_the_vote_of_the_first(
    voting: RunningExplorer,
) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    shown = get(voting, token).text
    assert send(voting, token, shown, choice="left").status == 303
    second = send(voting, token, shown, choice="right")
    assert second.status == 409
    assert "in another window" in second.text
    assert "Pair 2 of 7" in second.text
    assert [vote.choice for vote in read_stored(voting.folder)] == ["left"]


@pytest.mark.system
def test_a_vote_on_a_changed_text_is_refused_and_the_pair_shown_again(voting: RunningExplorer) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    shown = get(voting, token).text
    solutions = voting.folder / "run.agents" / "solutions.db"
    solutions.unlink()
    asyncio.run(write_solutions(solutions, "A sundial"))
    refused = send(voting, token, shown)
    assert refused.status == 409
    assert "have changed since they were shown" in refused.text
    assert "A sundial" in refused.text
    assert read_stored(voting.folder) == []


@pytest.mark.system
def test_what_was_on_the_left_is_what_the_voter_saw_there_though_pairs_were_added(
    voting: RunningExplorer,
) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    shown = get(voting, token).text
    left = "extraction" if shown.index("A dial and a bell") < shown.index("A clock") else "single_shot"
    with closing(sqlite3.connect(voting.folder / "run.agents" / "solutions.db")) as connection, connection:
        connection.execute("UPDATE turns SET speaker = 'x' WHERE session IN ('001', '004', '005')")
    fields = re.search(r'name="session" value="(\w+)"', shown)
    assert fields is not None
    with closing(sqlite3.connect(voting.folder / "run.agents" / "solutions.db")) as connection, connection:
        connection.execute(
            "UPDATE turns SET speaker = iif(number = 1, 'extraction', 'single_shot') WHERE session = ?",
            (fields[1],),
        )
    assert send(voting, token, shown, choice="left").status == 303
    (vote,) = read_stored(voting.folder)
    assert (vote.left, vote.preferred) == (left, left)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"choice": "centre"}, 400),
        ({"repeated": "1"}, 400),
        ({"session": "999"}, 409),
        ({"left": "0" * 64}, 409),
        ({"csrf": "x"}, 400),
        ({"seen": "5.0"}, 409),
    ],
)
@pytest.mark.system
def test_a_form_that_no_page_made_stores_nothing(
    voting: RunningExplorer, changes: dict[str, str], status: int
) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    assert send(voting, token, get(voting, token).text, **changes).status == status
    assert read_stored(voting.folder) == []


@pytest.mark.slow
def test_a_run_that_another_process_writes_keeps_the_comment_on_the_page(voting: RunningExplorer) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    shown = get(voting, token).text

    async def hold() -> Answer:
        async with open_store(voting.folder / "run.agents" / "solutions.db"):
            return await asyncio.to_thread(send, voting, token, shown, comment="my long thoughts")

    answer = asyncio.run(hold())
    assert answer.status == 503
    assert "my long thoughts</textarea>" in answer.text
    assert send(voting, token, answer.text).status == 303


@pytest.mark.slow
def test_more_votes_than_a_person_can_give_are_not_counted(voting: RunningExplorer) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["tern"]).values()
    shown = get(voting, token).text
    answers = [send(voting, token, shown, seen="1.0") for _ in range(31)]
    assert [answer.status for answer in answers] == [409] * 30 + [429]
    assert "continue in" in answers[-1].text


@pytest.mark.system
def test_an_invitation_that_is_not_valid_lets_nobody_in(voting: RunningExplorer) -> None:
    folder = voting.folder / "run.agents"
    (token,) = invite_voters(folder, ["heron"]).values()
    withdraw_invitation(folder, "heron")
    assert get(voting, token).status == 401
    assert "Begin" in voting.get("/vote").text  # The owner is asked for a pseudonym.
    answers = [voting.get(f"/vote?invite={token}") for _ in range(21)]
    assert {answer.status for answer in answers[:-1]} == {403}
    assert answers[-1].status == 429
    assert send(voting, token, get(voting, token).text + 'id="ballot"', session="001").status == 400


@pytest.mark.system
def test_the_token_of_a_voter_is_neither_stored_nor_in_an_address(voting: RunningExplorer) -> None:
    folder = voting.folder / "run.agents"
    (token,) = invite_voters(folder, ["heron"]).values()
    answer = voting.get(f"/vote?invite={token}")
    assert answer.headers["location"] == "/vote"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert answer.headers["referrer-policy"] == "same-origin"
    assert token not in (folder / "invitations.json").read_text()
    assert token not in get(voting, token).text


def test_voters_of_another_computer_see_their_pages_only() -> None:
    assert all(is_for_voters(path) for path in ("/vote", "/vote/leave", "/static/page.js", "/help"))
    for path in ("/", "/votes", "/conversations", "/c/run/001", "/marks", "/status", "/voted", "/play"):
        assert not is_for_voters(path)
    rules = make_access_rules("0.0.0.0", 8642, "token", "once")
    assert rules.allows("192.168.1.7:8642")
    assert rules.allows("localhost:8642")
    assert not rules.allows("evil.example:8642")
    assert not rules.allows("192.168.1.7.evil.example:8642")
    assert not make_access_rules("127.0.0.1", 8642, "token", "once").allows("192.168.1.7:8642")


async def test_invitations_are_made_listed_and_withdrawn_by_a_command(tmp_path: Path) -> None:
    folder = await make_study(tmp_path)
    done = bactrian("evaluate", "invite", "run.db", "heron", "tern", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    links = dict(line.split("\t") for line in done.stdout.splitlines())
    assert "bactrian explore run.db --edit\n" in done.stderr
    away = bactrian("evaluate", "invite", "run.db", "wren", "--address", "http://lab:8700", cwd=tmp_path)
    assert "bactrian explore run.db --edit --host 0.0.0.0 --port 8700\n" in away.stderr
    token = links["heron"].removeprefix("http://127.0.0.1:8642/vote?invite=")
    assert find_voter(folder, token) == "heron"
    assert find_voter(folder, token + "x") is None
    assert bactrian("evaluate", "invite", "run.db", "--withdraw", "heron", cwd=tmp_path).returncode == 0
    assert find_voter(folder, token) is None
    shown = bactrian("evaluate", "invite", "run.agents", "--list", cwd=tmp_path)
    assert shown.stdout == "tern\t0\tinvited\nwren\t0\tinvited\n"
    # The explorer shows the votes of a run, and not of a folder.
    named = bactrian("evaluate", "invite", "run.agents", "rook", cwd=tmp_path)
    assert "bactrian explore run.agents/solutions.db --edit\n" in named.stderr.replace(f"{tmp_path}/", "")
    unknown = bactrian("evaluate", "invite", "run.db", "--withdraw", "owl", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "tern" in unknown.stderr


@pytest.mark.parametrize("names", [["anna@example.org"], [""], ["x" * 65], ["heron", " heron "]])
def test_only_pseudonyms_are_invited(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(InputError):
        invite_voters(tmp_path, names)
    assert read_invitations(tmp_path) == []


def test_a_damaged_file_of_invitations_is_named(tmp_path: Path) -> None:
    (tmp_path / "invitations.json").write_text('{"invitations": [{"voter": 1}]}')
    with pytest.raises(InputError, match="cannot be read"):
        read_invitations(tmp_path)


def test_a_limit_frees_what_is_older_than_its_time() -> None:
    limit = VisitLimit(2, 1000.0)
    assert [limit.take("heron") > 0 for _ in range(3)] == [False, False, True]
    assert limit.take("tern") == 0
    assert VisitLimit(1, 0.0).take("heron") == 0


@pytest.mark.system
def test_a_voter_does_not_vote_under_a_second_name(voting: RunningExplorer) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    (data,) = {path.stem for path in voting.folder.glob("*.db")}
    csrf = re.search(r'name="csrf" value="([^"]+)"', get(voting, token).text)
    assert csrf is not None
    form = urlencode({"csrf": csrf[1], "data": data, "voter": "tern"}).encode()
    port = voting.address.rsplit(":", 1)[1]
    answer = voting.get("/vote/begin", form, Origin=voting.address, Cookie=f"bactrian_voter_{port}={token}")
    assert answer.status == 403
    assert [invitation.voter for invitation in read_invitations(voting.folder / "run.agents")] == ["heron"]


@pytest.mark.system
def test_without_the_flag_no_vote_is_stored(voting: RunningExplorer) -> None:
    (token,) = invite_voters(voting.folder / "run.agents", ["heron"]).values()
    with explore(voting.folder, "run.db") as reading:
        csrf = re.search(r'name="csrf" value="([^"]+)"', reading.get("/conversations").text)
        assert csrf is not None
        assert send(reading, token, get(voting, token).text, csrf=csrf[1]).status == 403
    assert read_stored(voting.folder) == []
