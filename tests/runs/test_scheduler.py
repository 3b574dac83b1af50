"""Jobs come in order, one at a time, and lists are asked for when they are needed."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.recipes.schema import Axis
from bactrian.runs.scheduler import DoneJobs, Job, JobSequence, ListRequest, Scheduler, find_number

TWO_BY_THREE = (
    Axis(name="a", count=2, given=("x", "y")),
    Axis(name="b", count=3, ask="?", per=("a",)),
)


async def nothing_known(list_id: str, enough: int) -> tuple[str, ...] | None:
    return None


def frontier(*axes: Axis, done: DoneJobs | None = None, limit: int | None = None) -> Scheduler:
    return Scheduler(JobSequence(axes, limit=limit), done or DoneJobs(), nothing_known)


async def drained(work: Scheduler, lists: dict[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """Ids of the jobs and of the lists that were wanted, in their order."""
    cells: list[str] = []
    wanted: list[str] = []
    while (item := await work.take()) is not None:
        if isinstance(item, Job):
            cells.append(item.id)
        else:
            wanted.append(item.id)
            await work.supply(item.id, lists[item.id])
    return cells, wanted


async def test_every_combination_is_a_job_with_its_position_as_id() -> None:
    cells, wanted = await drained(
        frontier(*TWO_BY_THREE), {"b@001": ("1", "2", "3"), "b@002": ("4", "5", "6")}
    )
    assert cells == ["001_001", "001_002", "001_003", "002_001", "002_002", "002_003"]
    assert wanted == ["b@001", "b@002"]


async def test_a_short_list_leaves_its_last_jobs_out_and_keeps_the_numbers_of_the_others() -> None:
    work = frontier(*TWO_BY_THREE)
    first = await work.take()
    assert isinstance(first, ListRequest)
    await work.supply(first.id, ("1",))
    cell = await work.take()
    assert isinstance(cell, Job)
    assert (cell.id, cell.number, cell.values) == ("001_001", 0, {"a": "x", "b": "1"})
    second = await work.take()
    assert isinstance(second, ListRequest)
    await work.supply(second.id, ("4", "5", "6", "7"))
    assert [cell.number async for cell in _cells(work)] == [3, 4, 5]


async def _cells(work: Scheduler):
    while isinstance(item := await work.take(), Job):
        yield item


async def test_jobs_of_a_list_begin_before_other_lists_are_asked_for() -> None:
    work = frontier(*TWO_BY_THREE)
    first = await work.take()
    assert isinstance(first, ListRequest)
    await work.supply(first.id, ("1", "2", "3"))
    assert [type(await work.take()) for _ in range(4)] == [Job, Job, Job, ListRequest]


async def test_a_limit_takes_the_first_jobs_and_asks_for_no_list_beyond_them() -> None:
    cells, wanted = await drained(frontier(*TWO_BY_THREE, limit=2), {"b@001": ("1", "2", "3")})
    assert (cells, wanted) == (["001_001", "001_002"], ["b@001"])


async def test_a_limit_says_how_many_items_of_a_list_are_enough() -> None:
    work = frontier(*TWO_BY_THREE, limit=5)
    first = await work.take()
    assert isinstance(first, ListRequest)
    await work.supply(first.id, ("1", "2", "3"))
    second = [await work.take() for _ in range(4)][-1]
    assert isinstance(second, ListRequest)
    assert (first.enough, second.enough) == (3, 2)


async def test_who_finds_nothing_waits_for_lists_in_flight_and_is_let_go_at_the_end() -> None:
    work = frontier(TWO_BY_THREE[1].model_copy(update={"per": ()}))
    wanted = await work.take()
    assert isinstance(wanted, ListRequest)
    waiting = [asyncio.create_task(work.take()) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await work.supply(wanted.id, ("1", "2", "3"))
    found = await asyncio.gather(*waiting)
    assert sorted(cell.id for cell in found if isinstance(cell, Job)) == ["001", "002", "003"]
    assert found.count(None) == 2


async def test_a_list_that_several_branches_need_is_asked_for_once() -> None:
    axes = (TWO_BY_THREE[0], TWO_BY_THREE[1].model_copy(update={"per": ()}))
    work = frontier(*axes)
    wanted = await work.take()
    assert isinstance(wanted, ListRequest)
    assert wanted.id == "b@"
    waiting = asyncio.create_task(work.take())
    await asyncio.sleep(0)
    await work.supply("b@", ("1", "2", "3"))
    assert isinstance(await waiting, Job)
    assert len([cell async for cell in _cells(work)]) == 5


async def test_what_is_done_is_not_given_out_again_nor_its_list_asked_for() -> None:
    done = DoneJobs()
    for number in (0, 1, 2, 4):
        done.add(number)
    cells, wanted = await drained(frontier(*TWO_BY_THREE, done=done), {"b@002": ("4", "5", "6")})
    assert (cells, wanted) == (["002_001", "002_003"], ["b@002"])


async def test_a_billion_jobs_need_no_room_for_a_billion() -> None:
    items = tuple(str(number) for number in range(1000))
    axes = [Axis(name=name, count=1000, given=items) for name in ("a", "b", "c")]
    work = frontier(*axes)
    first = [await work.take() for _ in range(3)]
    assert [cell.id for cell in first if isinstance(cell, Job)] == [
        "0001_0001_0001",
        "0001_0001_0002",
        "0001_0001_0003",
    ]
    assert JobSequence(axes).size == 1_000_000_000


@given(st.lists(st.integers(1, 1200), min_size=1, max_size=4), st.data())
def test_an_id_tells_its_number(counts: list[int], data: st.DataObject) -> None:
    axes = [Axis(name=f"a{place}", count=count, ask="?") for place, count in enumerate(counts)]
    positions = [data.draw(st.integers(1, count)) for count in counts]
    name = "_".join(
        f"{position:0{max(3, len(str(count)))}}" for position, count in zip(positions, counts, strict=True)
    )
    number = 0
    for position, count in zip(positions, counts, strict=True):
        number = number * count + position - 1
    assert find_number(name, axes) == number


def test_what_is_no_id_of_the_grid_has_no_number() -> None:
    for name in ("", "001", "001_004", "000_001", "001_001_001", "x_y", "-01_001"):
        assert find_number(name, TWO_BY_THREE) is None


@settings(max_examples=25)
@given(st.sets(st.integers(0, 10_000)), st.integers(0, 10_000), st.integers(0, 5_000))
def test_what_is_missing_of_a_range_is_what_is_not_done(numbers: set[int], start: int, length: int) -> None:
    done = DoneJobs()
    for number in (*range(start, start + length), *numbers):
        done.add(number)
    stop = start + length + 3
    assert list(done.list_missing(0, stop)) == [number for number in range(stop) if number not in done]
    assert not set(done.list_missing(start, stop)) & {*range(start, start + length), *numbers}


async def test_a_list_without_items_passes_over_a_million_jobs_at_once() -> None:
    items = tuple(str(number) for number in range(1000))
    more = [Axis(name=name, count=1000, given=items) for name in ("b", "c", "d")]
    work = frontier(Axis(name="a", count=2, ask="?"), *more)
    request = await work.take()
    assert isinstance(request, ListRequest)
    await work.supply(request.id, ())
    assert await work.take() is None


async def test_all_lists_that_are_needed_are_in_flight_at_once() -> None:
    work = frontier(Axis(name="a", count=40, given=tuple(map(str, range(40)))), TWO_BY_THREE[1])
    requests = [await work.take() for _ in range(40)]
    assert len({request.id for request in requests if isinstance(request, ListRequest)}) == 40
