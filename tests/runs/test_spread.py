"""Samples and breadth: jobs spread over the grid, the same ones each time, without pairs of equal roles."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import Axis
from bactrian.runs.scheduler import (
    DoneJobs,
    Job,
    JobSequence,
    ListRequest,
    Scheduler,
    Spread,
    find_positions,
    find_roles,
)
from bactrian.store import open_store
from tests.helpers.command import bactrian

PAPER = load_recipe("ai-society")


def make_axes(*counts: int) -> list[Axis]:
    names = "abcdefgh"
    return [
        Axis(name=names[place], count=count, given=tuple(f"{names[place]}{n}" for n in range(count)))
        for place, count in enumerate(counts)
    ]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.none() | st.integers(0, 9))
def test_each_job_comes_once(counts: list[int], seed: int | None) -> None:
    grid = JobSequence(make_axes(*counts), Spread(seed), None)
    assert sorted(grid) == list(range(grid.size))


@given(st.integers(1, 60), st.integers(0, 5))
def test_a_larger_sample_holds_the_smaller_one(count: int, seed: int) -> None:
    axes, spread = make_axes(4, 5, 3), Spread(seed)
    small, large = (list(JobSequence(axes, spread, None, limit)) for limit in (count, 60))
    assert large[: len(small)] == small


def test_a_sample_of_the_paper_has_no_role_twice_and_no_equal_pair() -> None:
    grid = JobSequence(PAPER.axes, Spread(7), find_roles(PAPER), 40)
    places = [find_positions(number, grid.axes) for number in grid]
    assert [len({place[axis] for place in places}) for axis in (0, 1)] == [40, 40]
    first, second = (PAPER.axes[depth].items or () for depth in (0, 1))
    assert all(first[one - 1].casefold() != second[two - 1].casefold() for one, two, _ in places)
    assert {task for *_, task in places} == {1}


def test_the_whole_grid_in_breadth_lacks_the_equal_pairs_unless_they_are_asked_for() -> None:
    roles = find_roles(PAPER)
    first, second = ({item.casefold() for item in PAPER.axes[depth].items or ()} for depth in (0, 1))
    equal = 10 * len(first & second)
    assert equal > 0
    grid = JobSequence(PAPER.axes, Spread(), roles)
    assert grid.size == sum(1 for _ in grid) == 25_000 - equal
    assert JobSequence(PAPER.axes, Spread(equal_roles=True), roles).size == 25_000
    pairs = [find_positions(number, grid.axes)[:2] for number in islice(grid, (25_000 - equal) // 10)]
    assert len(set(pairs)) == len(pairs)


async def test_lists_are_requested_once_and_their_jobs_follow() -> None:
    axes = [*make_axes(2), Axis(name="z", count=2, ask="?", per=("a",))]

    async def nothing_known(list_id: str, enough: int) -> tuple[str, ...] | None:
        return stored.get(list_id)

    stored: dict[str, tuple[str, ...]] = {}
    scheduler = Scheduler(JobSequence(axes, Spread()), DoneJobs(), nothing_known)
    work: list[str] = []
    while (item := await scheduler.take()) is not None:
        work.append(item.id)
        if isinstance(item, ListRequest):
            stored[item.id] = ("1", "2") if item.id == "z@001" else ()
            await scheduler.supply(item.id, stored[item.id])
        else:
            assert isinstance(item, Job)
    assert sorted(work) == ["001_001", "001_002", "z@001", "z@002"]


@pytest.mark.parametrize(
    "options", [("--sample", "8", "--seed", "3"), ("--order", "breadth", "--limit", "8")]
)
async def test_a_spread_run_is_forecast_made_and_resumed(tmp_path: Path, options: tuple[str, ...]) -> None:
    script = {
        "task_specifier": ["Do it."],
        "user": ["<CAMEL_TASK_DONE>"],
        "lister": ["1. Brew\n2. Pour"],
    }
    (tmp_path / "lines.json").write_text(json.dumps(script), "utf-8")
    run = ("generate", "ai-society", "--run", "run.db", "--model", "scripted:lines.json", *options)
    run = (*run, "--set", "task.count=2")
    forecast = json.loads(bactrian(*run, "--forecast", "--json", cwd=tmp_path).stdout)
    assert forecast["sessions"] == 8
    assert bactrian(*run, cwd=tmp_path).returncode == 0
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        made = [(session.assistant.name, session.user.name) async for session in store.sessions()]
    assert len({role for role, _ in made}) == len({role for _, role in made}) == 8
    status = json.loads(bactrian("status", "run.db", "--json", cwd=tmp_path).stdout)
    assert (status["state"], status["jobs"], status["left"]) == ("complete", 8, 0)
    more = bactrian("resume", "run.db", "--limit", "10", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        assert len([progress async for progress in store.progress()]) == 10


def test_a_sample_and_a_limit_are_not_given_together(tmp_path: Path) -> None:
    done = bactrian(*("generate", "code", "--run", "run.db", "--sample", "2", "--limit", "2"), cwd=tmp_path)
    assert done.returncode == 2
    assert "A sample has its own number of jobs." in done.stderr


def test_the_first_jobs_of_the_paper_are_not_of_two_equal_roles() -> None:
    grid = JobSequence(PAPER.axes, Spread(depth=True), find_roles(PAPER), limit=15)
    positions = [find_positions(number, grid.axes) for number in grid]
    assert positions[:2] == [(1, 2, 1), (1, 2, 2)]
    assert positions[10] == (1, 3, 1)
    assert grid.count_equal() > 0


async def test_equal_roles_are_in_the_whole_grid_and_not_in_samples_unless_asked_for(tmp_path: Path) -> None:
    for roles, more, count in (
        (["Chef", "Pilot"], (), 4),
        (["Chef", "Pilot"], ("--no-equal-roles",), 2),
        (["Chef", "Pilot"], ("--order", "breadth"), 4),
        (["Chef", "Pilot"], ("--sample", "4"), 2),
        (["Chef", "Pilot"], ("--limit", "3"), 2),
        (["Chef", "Pilot"], ("--sample", "4", "--equal-roles"), 4),
        (["Chef"], (), 1),
        (["Chef"], ("--limit", "1"), 1),
    ):
        listed = json.dumps(roles)
        done = bactrian(
            *("generate", "ai-society", "--run", f"{len(list(tmp_path.iterdir()))}.db", "--json"),
            *("--set", f"assistant_role.given={listed}", "--set", f"assistant_role.count={len(roles)}"),
            *("--set", f"user_role.given={listed}", "--set", f"user_role.count={len(roles)}"),
            *("--set", 'task.given=["Tea"]', "--set", "task.count=1", "--forecast", *more),
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sessions"] == count
