"""Blind votes: how pairs are shown, how votes are kept, and what all of them say."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.votes import Ballot, SolutionPair, cast_vote, count_votes, find_next_ballot, read_pairs
from bactrian.records.run import Vote
from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session

PAIR = "extraction | single_shot"
SCRIPT = {"extraction": ["A dial, a spring and a bell."], "single_shot": ["A clock."]}


def make_pairs(count: int) -> list[SolutionPair]:
    return [
        SolutionPair(f"{n:03}", f"Task {n}", PAIR, {"extraction": f"long {n}", "single_shot": f"short {n}"})
        for n in range(1, count + 1)
    ]


def cast(ballot: Ballot, voter: str, choice: str) -> Vote:
    shown = ballot.shown
    return Vote(
        shown.session,
        PAIR,
        voter,
        ballot.repeated,
        ballot.left,
        choice,
        "",
        shown.hash,
        seconds=4.0,
        created=1.0,
    )


def vote_all(
    pairs: list[SolutionPair], voter: str, choose: Callable[[Ballot], str], votes: list[Vote], quota: int = 3
) -> list[Ballot]:
    """Vote until nothing is left, and return what was shown."""
    shown: list[Ballot] = []
    while ballot := find_next_ballot(pairs, votes, voter, quota=quota):
        shown.append(ballot)
        votes.append(cast(ballot, voter, choose(ballot)))
    return shown


def prefer(way: str) -> Callable[[Ballot], str]:
    return lambda ballot: "left" if ballot.left == way else "right"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose solutions are written."""
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    made = [session(f"00{number}", task=f"Timer {number}") for number in range(1, 5)]
    asyncio.run(make_run(tmp_path / "run.db", made, recipe="ai-society"))
    done = bactrian("evaluate", "agents", "run.db", "--model", "scripted:script.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_run_that_is_not_there_is_not_one_without_solutions(folder: Path) -> None:
    for command in ("vote", "invite"):
        done = bactrian("evaluate", command, "nowhere.db", cwd=folder)
        assert (done.returncode, "nowhere.db: There is no such run." in done.stderr) == (2, True), done.stderr


def test_each_solution_is_on_the_left_for_half_of_the_pairs_and_checks_come_swapped() -> None:
    pairs, votes = make_pairs(40), list[Vote]()
    shown = vote_all(pairs, "anna", prefer("extraction"), votes)
    first = [ballot for ballot in shown if not ballot.repeated]
    assert Counter(ballot.left for ballot in first) == {"extraction": 20, "single_shot": 20}
    again = {ballot.shown.session: ballot for ballot in shown if ballot.repeated}
    assert len(again) == 4
    assert all(
        ballot.left != again[ballot.shown.session].left for ballot in first if ballot.shown.session in again
    )
    other = vote_all(pairs, "ben", prefer("extraction"), [])
    assert [ballot.shown.session for ballot in other] != [ballot.shown.session for ballot in shown]
    assert vote_all(pairs, "anna", prefer("extraction"), []) == shown


@pytest.mark.system
async def test_the_list_of_voters_counts_repeated_votes_apart_as_the_voters_page_does(folder: Path) -> None:
    solutions = folder / "run.agents" / "solutions.db"
    (pair, *_) = await read_pairs(solutions)
    async with open_store(solutions) as store:
        for repeated in (False, True):
            left = "single_shot" if repeated else "extraction"
            await store.add_vote(
                cast(Ballot(pair, left, "", repeated=repeated, number=1, total=1), "anna", "left")
            )
    shown = bactrian("evaluate", "invite", "run.db", "--list", cwd=folder)
    assert shown.stdout == "anna\t1 and 1 repeated\tnot invited\n"
    shown = bactrian("evaluate", "invite", "run.db", "--list", "--json", cwd=folder)
    assert json.loads(shown.stdout) == [{"voter": "anna", "votes": 1, "repeated": 1, "invited": False}]


def test_a_pair_with_enough_votes_is_left_to_others() -> None:
    pairs, votes = make_pairs(10), list[Vote]()
    for voter in ("anna", "ben"):
        vote_all(pairs, voter, prefer("extraction"), votes, quota=2)
    assert vote_all(pairs, "cleo", prefer("extraction"), votes, quota=2) == []
    assert len(vote_all(pairs, "dora", prefer("extraction"), votes, quota=3)) == 11


def test_planted_shares_agreement_and_attention_are_found() -> None:
    pairs, votes, draw = make_pairs(100), list[Vote](), Random(6)
    truth = {pair.session: draw.choices(("left", "equal", "right"), (76.3, 13.3, 10.4))[0] for pair in pairs}

    def choose(ballot: Ballot) -> str:
        meant = truth[ballot.shown.session]
        if draw.random() < 0.05:
            return "skip"
        if meant == "equal":
            return draw.choice(("equal", "both_bad"))
        return prefer("extraction" if meant == "left" else "single_shot")(ballot)

    for voter in ("anna", "ben", "cleo"):
        vote_all(pairs, voter, choose, votes)
    judged = {name: {"left": "win", "right": "loss", "equal": "draw"}[what] for name, what in truth.items()}
    tally = count_votes(pairs, votes, {"judge": judged})  # type: ignore[dict-item]
    shares = Counter(truth.values())
    for name, what in (("win", "left"), ("draw", "equal"), ("loss", "right")):
        assert tally["pooled"][name]["value"] == pytest.approx(shares[what] / 100, abs=0.03)
        assert tally["by_task"][name]["low"] < shares[what] / 100 < tally["by_task"][name]["high"]
    assert tally["alpha"]["value"] == 1.0
    assert tally["kappa"]["judge"]["value"] == 1.0
    assert tally["attention"]["rate"] == 1.0
    assert tally["attention"]["total"] > 20
    assert 0.4 < tally["left"]["rate"] < 0.6
    assert tally["choices"]["skip"] == sum(vote.choice == "skip" and not vote.repeated for vote in votes)


def test_votes_by_the_side_fail_the_checks_and_agree_with_nobody() -> None:
    pairs, votes = make_pairs(60), list[Vote]()
    for voter in ("anna", "ben", "cleo"):
        vote_all(pairs, voter, lambda _: "left", votes)
    tally = count_votes(pairs, votes)
    assert tally["attention"]["count"] == 0
    assert tally["left"]["rate"] == 1.0
    assert tally["alpha"]["high"] < 0.3
    assert tally["pooled"]["win"]["low"] < 0.5 < tally["pooled"]["win"]["high"]


async def test_a_vote_on_a_changed_text_is_refused(folder: Path) -> None:
    solutions = folder / "run.agents" / "solutions.db"
    ballot = find_next_ballot(await read_pairs(solutions), [], "anna")
    assert ballot is not None
    old = SolutionPair(ballot.shown.session, "x", PAIR, {"extraction": "other", "single_shot": "A clock."})
    changed = Ballot(old, ballot.left, ballot.right, repeated=False, number=1, total=1)
    with pytest.raises(InputError, match="have changed"):
        await cast_vote(solutions, changed, "anna", "left")
    with pytest.raises(InputError, match="is not a vote"):
        await cast_vote(solutions, ballot, "anna", "centre")
    with pytest.raises(InputError, match="1 to 64"):
        await cast_vote(solutions, ballot, " ", "left")
    await cast_vote(solutions, ballot, "anna", "left", comment="\x1b[2J clear")
    async with open_store(solutions, read_only=True) as store:
        (vote,) = await store.votes()
    assert (vote.left, vote.choice, vote.preferred) == (ballot.left, "left", ballot.left)
    aside = count_votes([old], [vote])
    assert (aside["votes"], aside["changed"]) == (0, 1)


async def test_many_voters_at_once_lose_no_vote(folder: Path) -> None:
    solutions = folder / "run.agents" / "solutions.db"
    pairs = await read_pairs(solutions)

    async def vote(voter: str) -> None:
        votes: list[Vote] = []
        while ballot := find_next_ballot(pairs, votes, voter, quota=99):
            votes.append(await cast_vote(solutions, ballot, voter, "equal"))

    await asyncio.gather(*(vote(f"voter {number}") for number in range(4)))
    async with open_store(solutions, read_only=True) as store:
        votes = await store.votes()
    assert Counter(vote.voter for vote in votes) == {f"voter {number}": 4 for number in range(4)}


async def test_the_command_shows_what_the_votes_say(folder: Path) -> None:
    solutions = folder / "run.agents" / "solutions.db"
    votes: list[Vote] = []
    for choice, comment in (("left", "it is clearer"), ("equal", ""), ("both_bad", ""), ("skip", "")):
        ballot = find_next_ballot(await read_pairs(solutions), votes, "anna")
        assert ballot is not None
        votes.append(await cast_vote(solutions, ballot, "anna", choice, comment=comment))
    shown = await asyncio.to_thread(lambda: bactrian("evaluate", "vote", "run.agents", "--json", cwd=folder))
    tally = json.loads(shown.stdout)
    assert (tally["votes"], tally["voters"]) == (3, 1)
    assert tally["choices"] == {"left": 1, "equal": 1, "both_bad": 1, "skip": 1}
    assert tally["comments"][0]["comment"] == "it is clearer"
    assert tally["paper"][0]["win"] == 76.3
    table = await asyncio.to_thread(lambda: bactrian("evaluate", "vote", "run.db", cwd=folder))
    assert "3 votes of 1 voter on" in table.stdout
    assert "all votes: Role-play wins " in table.stdout
    assert tally["titles"] == {"extraction": "Role-play", "single_shot": "Single answer"}
    assert "bactrian explore run.db --edit" in table.stderr


def test_without_solutions_there_is_nothing_to_vote_on(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "run.db", [session("001")]))
    done = bactrian("evaluate", "vote", "run.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "bactrian evaluate agents run.db" in done.stderr
