"""Shards: the jobs of a grid divided among runs, each list asked by one of them."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.api.dataset import read_shard
from bactrian.errors import InputError
from bactrian.recipes.schema import Axis
from bactrian.runs.scheduler import DoneJobs, JobSequence, Shard, Spread, find_positions
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.generation import RECIPE, asks, generate, said, stored

FRESH = RECIPE.replace('given = ["Chef", "Pilot", "Nurse"]', 'ask = "List {{ count }} roles."')


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Axis], Spread, int | None, int]:
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    axes: list[Axis] = []
    for place, count in enumerate(counts):
        name, before = "abcd"[place], [axis.name for axis in axes]
        per = tuple(draw(st.sets(st.sampled_from(before)))) if before else ()
        if draw(st.booleans()):
            axes.append(Axis(name=name, count=count, ask="More.", per=tuple(sorted(per))))
        else:
            axes.append(Axis(name=name, count=count, given=tuple(f"{name}{n}" for n in range(count))))
    spread = Spread(draw(st.none() | st.integers(0, 9)), equal_roles=True, depth=draw(st.booleans()))
    return axes, spread, draw(st.none() | st.integers(0, 90)), draw(st.integers(1, 5))


@settings(max_examples=20)
@given(grids())
def test_every_job_is_in_one_shard_and_every_list_but_the_shared_ones(
    grid: tuple[list[Axis], Spread, int | None, int],
) -> None:
    axes, spread, limit, count = grid
    shards = [JobSequence(axes, spread, None, limit, Shard(number, count)) for number in range(1, count + 1)]
    whole = list(JobSequence(axes, spread, None, limit))
    assert sorted(chain(*shards)) == sorted(whole)
    assert [shard.size for shard in shards] == [len(list(shard)) for shard in shards]
    for shard in shards:
        assert [number for number in range(shard.whole) if number in shard] == sorted(shard)
    for depth, axis in enumerate(axes):
        if axis.items is None and axes[0].name in axis.per:
            places = [place for place, other in enumerate(axes[:depth]) if other.name in axis.per]
            lists = [
                {tuple(find_positions(number, shard.axes)[place] for place in places) for number in shard}
                for shard in shards
            ]
            assert sum(map(len, lists)) == len(set(chain(*lists)))


def test_a_shard_of_a_huge_grid_begins_at_once() -> None:
    axes = [Axis(name=name, count=5000, given=tuple(map(str, range(5000)))) for name in "ab"]
    shard = JobSequence(axes, shard=Shard(999, 1000))
    assert shard.size == 25_000
    assert next(shard.list_missing(DoneJobs(), 24_000_000, 25_000_000)) == 24_000_998


SLURM = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4"}


@pytest.mark.parametrize(
    ("text", "variables", "shard"),
    [
        ("2/8", {}, "2/8"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "3"}, "3/4"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "4"}, "2/4"),
        ("auto/4", SLURM, "2/4"),
        (
            "auto",
            {
                "SLURM_ARRAY_TASK_ID": "14",
                "SLURM_ARRAY_TASK_COUNT": "3",
                "SLURM_ARRAY_TASK_MIN": "10",
                "SLURM_ARRAY_TASK_STEP": "2",
                "SLURM_ARRAY_TASK_MAX": "14",
            },
            "3/3",
        ),
        ("auto/3", {"JOB_COMPLETION_INDEX": "0"}, "1/3"),
        ("auto", {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETION_COUNT": "3"}, "3/3"),
    ],
)
def test_a_shard_is_named_or_found_in_the_environment(
    text: str, variables: dict[str, str], shard: str
) -> None:
    assert str(read_shard(text, variables)) == shard


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("auto", {}, "Nothing tells which shard"),
        ("auto/3", {}, "Nothing tells which shard"),
        ("auto", {"JOB_COMPLETION_INDEX": "0"}, "and not of how many"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "1"}, "SLURM_ARRAY_TASK_COUNT is not set"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_MAX": "9"}, "not numbered in a row"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_ID": "7"}, "not numbered in a row"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_ID": "x"}, "is 'x', and not a number"),
        ("auto/5", SLURM, "has 4 tasks and not 5"),
        ("0/8", {}, "no shard 0 of 8"),
        ("9/8", {}, "no shard 9 of 8"),
        ("2", {}, "not a shard"),
        ("", {}, "not a shard"),
        ("1/0", {}, "no shard 1 of 0"),
        ("-1/2", {}, "not a shard"),
    ],
)
def test_what_is_no_shard_is_refused(text: str, variables: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_shard(text, variables)


async def make(folder: Path, *options: str) -> list[Received]:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--seed", "5", *options)
        assert code == 0, err
        return endpoint.requests


async def test_shards_ask_together_what_one_run_asks_seeds_included(folder: Path) -> None:
    whole = await make(folder)
    parts = [await make(folder, "--shard", f"{k}/2", "--run", f"part-{k}.db") for k in (1, 2)]
    assert sorted(request.body for request in whole) == sorted(request.body for request in chain(*parts))
    sessions = await stored(folder)
    shards = [await stored(folder, f"part-{k}.db") for k in (1, 2)]
    assert {session.id for session in shards[0]} == {f"{k:03}_{n:03}" for k in (1, 3) for n in range(1, 5)}
    assert {one.id: [turn.text for turn in one.turns] for one in sessions} == {
        one.id: [turn.text for turn in one.turns] for one in chain(*shards)
    }


async def test_a_run_stores_its_shard_and_refuses_another(folder: Path) -> None:
    await make(folder, "--shard", "1/2")
    done = bactrian(
        "generate", "small.toml", "--run", "run.db", "-m", "openai:any", "--seed", "5", cwd=folder
    )
    assert done.returncode == 2
    assert "This run is shard 1/2, and the command is for all jobs.\nGive it --shard 1/2" in done.stderr
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--seed", "5", "--shard", "2/2")
        assert (code, endpoint.requests) == (2, [])
        assert "This run is shard 1/2, and the command is for shard 2/2." in err
        done = bactrian("status", "run.db", cwd=folder)
        assert "8 of 8 jobs ended" in done.stdout


async def test_an_unknown_place_makes_no_run(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--shard", "auto")
    assert (code, endpoint.requests) == (2, [])
    assert "Nothing tells which shard this is" in err
    assert not (folder / "run.db").exists()


async def test_a_list_of_several_shards_is_made_before_them(folder: Path) -> None:
    (folder / "small.toml").write_text(FRESH)

    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--shard", "1/2")
        assert (code, endpoint.requests) == (2, [])
        assert "Several shards need the list 'role'" in err
        assert "--lists lists.db" in err
        code, _, err = await generate(folder, endpoint, "--lists-only", "--run", "lists.db")
        assert code == 0, err
        assert [asks(request) for request in endpoint.requests] == ["lister"] * 4
        assert await stored(folder, "lists.db") == []
        for k in (1, 2):
            run = ("--run", f"part-{k}.db", "--lists", "lists.db")
            code, _, err = await generate(folder, endpoint, "--shard", f"{k}/2", *run)
            assert code == 0, err
        assert sum(asks(request) == "lister" for request in endpoint.requests) == 4
    assert len(await stored(folder, "part-1.db")) + len(await stored(folder, "part-2.db")) == 12


async def test_shards_share_the_budget_and_say_so(folder: Path) -> None:
    limits = ("--budget", "8", "--price", "1/1", "--max-tokens", "4000000")
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--shard", "2/4", *limits)
    assert code == 0, err
    assert "Shard 2/4 may use $2.00 and 1,000,000 tokens" in err
    assert "of $2.00" in bactrian("status", "run.db", cwd=folder).stdout


async def test_an_empty_shard_says_why(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--shard", "4/4")
    assert (code, endpoint.requests) == (0, [])
    assert "Shard 4/4 has no jobs" in err
