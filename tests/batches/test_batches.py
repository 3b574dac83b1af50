"""Runs in batches are equal to runs that ask live, whatever happens on the way."""

from __future__ import annotations

import re
import sqlite3
import warnings
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from bactrian.api.status import read_status
from bactrian.batches.ledger import Ledger, Place, Result
from bactrian.errors import BactrianWarning, BatchesOut, BudgetReached, Denied, InputError, StoreError
from bactrian.models.budget import Budget, Price, UsageMeter
from bactrian.models.model import Reply, Request
from bactrian.models.scripted import Scripted
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling, Usage
from bactrian.runs.forecast import forecast_run
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.batch_server import BatchServer
from tests.helpers.batched import KEYS, MODELS, make_order, play, play_killed, read_texts

DIALECTS = list(MODELS)
# What all have in common is tested in two of them, one with files and one without, and in all by the slow tests.
TWO_DIALECTS = [
    pytest.param(name, marks=() if name in ("openai", "anthropic") else pytest.mark.soak) for name in DIALECTS
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


async def play_live(folder: Path, dialect: str) -> dict[str, tuple[str | None, list[str]]]:
    folder.mkdir()
    async with BatchServer() as server:
        await play(folder, server.url, dialect, batch=False)
    return await read_texts(folder)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_run_in_batches_has_the_texts_of_a_live_one_and_pays_for_each_reply_once(
    tmp_path: Path, dialect: str
) -> None:
    async with BatchServer(looks=1) as server:
        await play(tmp_path, server.url, dialect)
    texts = await read_texts(tmp_path)
    assert texts == await play_live(tmp_path / "live", dialect)
    assert len(texts) == 6
    assert server.live == 0
    assert server.paid_twice == 0
    assert server.orphans == []


SPOILS = {
    "numbers as texts": lambda line: re.sub(rb": (\d+)", rb': "\1"', line),
    "parts of another kind": lambda line: re.sub(
        rb'"(choices|candidates|content)": (?=\[)', rb'"\1": ["x", 1], "other": ', line
    ),
    "a huge status": lambda line: line.replace(b": 200", b": 1" + b"0" * 30),
    "half a character": lambda line: line.replace(b"Instruction", b"\\ud800Instruction"),
}
"""Changes to the line of a reply."""


@pytest.mark.parametrize("dialect", TWO_DIALECTS)
@pytest.mark.parametrize("what", SPOILS)
async def test_a_line_of_another_form_costs_its_conversation_a_reply_at_most(
    tmp_path: Path, what: str, dialect: str
) -> None:
    with warnings.catch_warnings(action="ignore"):
        async with BatchServer(spoil=SPOILS[what]) as server:
            await play(tmp_path, server.url, dialect, tasks=1)
    endings = [ending for ending, _ in (await read_texts(tmp_path)).values()]
    assert endings == ["max_messages"] * 2
    assert server.paid_twice <= (what == "parts of another kind")


async def test_a_giant_reply_of_a_batch_is_cut_off_as_that_of_a_request_is(tmp_path: Path) -> None:
    giant = b"Instruction: " + b"x" * (1 << 20)
    async with BatchServer(spoil=lambda line: line.replace(b"Instruction: ", giant)) as server:
        await play(tmp_path, server.url, "openai", tasks=1)
    endings = [ending for ending, _ in (await read_texts(tmp_path)).values()]
    assert sorted(map(str, endings)) == ["failed", "max_messages"]


async def test_results_that_name_no_request_are_not_asked_and_paid_again(tmp_path: Path) -> None:
    async with BatchServer(spoil=lambda line: re.sub(rb'"key": "\w+"', b"", line)) as server:
        with pytest.raises(Denied, match="do not say"):
            await play(tmp_path, server.url, "gemini", limit=1)
    assert server.paid_twice == 0


async def test_a_batch_answers_no_request_of_another_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    ledger.open()
    places = [Place("s1", agent, 0, 0, "m") for agent in ("user", "assistant")]
    first, second = (ledger.write("m", [(place, 0)], [b"{}"]) for place in places)
    results = [Result(ledger.make_id(place, 0), 200, b"of the first") for place in places]
    assert list(ledger.end(first.number, results)) == places[:1]
    assert [getattr(ledger.find(place), "state", "") for place in places] == ["done", "out"]
    assert ledger.list_ids(second.number)
    ledger.close()


@pytest.mark.soak
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_run_that_does_not_wait_goes_on_with_the_same_command(tmp_path: Path, dialect: str) -> None:
    async with BatchServer(looks=1) as server:
        codes = [3]
        while codes[-1] == 3:
            assert len(codes) < 100, "the same command does not come to an end"
            codes.append(await play_killed(tmp_path, server, dialect, batch_wait=0.0))
        assert codes[-1] == 0
        assert len(codes) > 4
    texts = await read_texts(tmp_path)
    assert [ending for ending, _ in texts.values()] == ["max_messages"] * 6
    assert server.paid_twice == 0
    assert server.orphans == []


ANY_FAULT = [
    {"lines": {3: "missing", 5: "500", 6: "expired", 8: "twice", 9: "strange"}, "seed": 3},
    {"cut": True},
    {"state": "somewhere_new", "looks": 2},
    {"faults": {1: "503", 2: "429", 3: "409", 4: "503"}},
    {"faults": {0: "lost", 1: "lost", 2: "drop", 3: "lost"}, "hidden": 2},
    {"most": 3_000},
]


@pytest.mark.filterwarnings(
    "ignore:1 request of a batch came back twice", "ignore:A batch has 1 result of other"
)
@pytest.mark.parametrize("faults", ANY_FAULT, ids=lambda faults: "-".join(faults))
@pytest.mark.parametrize("dialect", TWO_DIALECTS)
async def test_after_a_fault_the_run_is_equal_to_a_live_one_and_no_batch_is_an_orphan(
    tmp_path: Path, dialect: str, faults: dict[str, Any]
) -> None:
    live = await play_live(tmp_path / "live", dialect)
    async with BatchServer(**faults) as server:
        await play(tmp_path, server.url, dialect)
    assert await read_texts(tmp_path) == live
    assert server.orphans == []
    assert server.paid_twice == ("missing" in str(faults))


async def play_until_denied(folder: Path, server: BatchServer, dialect: str) -> None:
    with pytest.raises(Denied, match="A batch has ended, and the provider does not give its results"):
        await play(folder, server.url, dialect)
    assert len(server.batches) == 1
    assert len(server.requests) < 20
    server.gone, server.fileless = 0, False


@pytest.mark.parametrize(
    ("dialect", "faults"),
    [
        ("openai", {"gone": 2}),
        ("openai", {"gone": 99}),
        ("anthropic", {"gone": 99}),
        ("openai", {"fileless": True}),
    ],
)
async def test_results_that_are_not_there_are_not_asked_and_paid_again(
    tmp_path: Path, dialect: str, faults: dict[str, Any]
) -> None:
    live = await play_live(tmp_path / "live", dialect)
    async with BatchServer(**faults) as server:
        if faults != {"gone": 2}:
            await play_until_denied(tmp_path, server, dialect)
        await play(tmp_path, server.url, dialect)
    assert await read_texts(tmp_path) == live
    assert server.paid_twice == 0
    assert server.orphans == []


async def test_results_that_a_provider_deleted_after_a_day_are_asked_again_and_that_is_said(
    tmp_path: Path,
) -> None:
    live = await play_live(tmp_path / "live", "openai")
    async with BatchServer(gone=99) as server:
        await play_until_denied(tmp_path, server, "openai")
        with closing(sqlite3.connect(tmp_path / "run.db.batches" / "ledger.db")) as database, database:
            database.execute("UPDATE batches SET sent = sent - 90000")
        server.gone = 3
        with pytest.warns(
            BactrianWarning, match="After more than a day, 2 requests will be asked and paid for again"
        ):
            await play(tmp_path, server.url, "openai")
    assert await read_texts(tmp_path) == live
    assert server.paid_twice == 2


@pytest.mark.parametrize("lost", [404, 410])
async def test_a_file_of_errors_that_is_gone_costs_no_reply(tmp_path: Path, lost: int) -> None:
    live = await play_live(tmp_path / "live", "openai")
    async with BatchServer(lines={3: "500"}, no_errors=lost) as server:
        await play(tmp_path, server.url, "openai")
    assert await read_texts(tmp_path) == live
    assert server.paid_twice == 0


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
@pytest.mark.parametrize("dialect", TWO_DIALECTS)
async def test_of_a_batch_that_is_refused_only_the_bad_request_fails(
    tmp_path: Path, dialect: str, named: bool
) -> None:
    async with BatchServer(refused="Task 2 of", named=named) as server:
        await play(tmp_path, server.url, dialect)
    endings = [ending for ending, _ in (await read_texts(tmp_path)).values()]
    assert sorted(map(str, endings)) == ["failed"] * 2 + ["max_messages"] * 4
    assert server.orphans == []
    assert server.paid_twice == 0


async def test_batches_that_are_refused_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    live = await play_live(tmp_path / "live", "openai")
    async with BatchServer(crowded=8) as server:
        await play(tmp_path, server.url, "openai")
    assert server.crowded == 0
    assert await read_texts(tmp_path) == live
    assert server.paid_twice == 0


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_that_is_refused_within_a_batch_ends_its_session_alone(
    tmp_path: Path, dialect: str
) -> None:
    async with BatchServer(lines={4: "400"}) as server:
        await play(tmp_path, server.url, "openai", tasks=1)
    endings = [ending for ending, _ in (await read_texts(tmp_path)).values()]
    assert sorted(map(str, endings)) == ["failed", "max_messages"]


@pytest.mark.parametrize("dialect", TWO_DIALECTS)
async def test_a_batch_that_is_late_is_cancelled_and_asked_live(tmp_path: Path, dialect: str) -> None:
    live = await play_live(tmp_path / "live", dialect)
    async with BatchServer(looks=100) as server:
        await play(tmp_path, server.url, dialect, batch_live_after=1e-9)
    assert await read_texts(tmp_path) == live
    assert server.live == 26
    assert server.paid_twice == 0
    assert server.orphans == []


async def test_the_last_conversation_of_many_goes_on_live(tmp_path: Path) -> None:
    async with BatchServer(lines={30: "500"}) as server:
        # A busy computer may stop for longer than a wave waits at the usual pace of the tests, and so divide it.
        await play(tmp_path, server.url, "openai", tasks=30, size=100, pace=0.1)
    texts = await read_texts(tmp_path)
    assert [ending for ending, _ in texts.values()] == ["max_messages"] * 60
    assert 0 < server.live < 10
    assert server.paid_twice == 0


@pytest.mark.soak
async def test_the_last_conversations_do_not_go_live_past_the_budget(tmp_path: Path) -> None:
    options: dict[str, Any] = {"tasks": 30, "size": 100, "pace": 0.1, "price": "1/1/1"}
    async with BatchServer(lines={30: "500"}) as server:
        await play(tmp_path, server.url, "openai", **options)
    assert server.live > 0
    (tmp_path / "other").mkdir()
    budget = server.tokens / 2 / 1_000_000
    async with BatchServer(lines={30: "500"}) as server:
        with suppress(BudgetReached):
            await play(tmp_path / "other", server.url, "openai", budget=budget, **options)
    assert 0.9 * budget < server.bill(1, 1, 1) <= budget


@pytest.mark.slow
async def test_a_batch_costs_half_and_one_budget_holds_for_all(tmp_path: Path) -> None:
    async with BatchServer() as server:
        cost = await play(tmp_path, server.url, "openai", price="1/1/1")
    assert cost == pytest.approx(server.tokens / 2 / 1_000_000)
    (tmp_path / "other").mkdir()
    limit = 2 * server.tokens // 3
    async with BatchServer() as server:
        with pytest.raises(BudgetReached):
            await play(
                tmp_path / "other", server.url, "openai", max_tokens=limit, parameters={"max_tokens": 60}
            )
        assert 0 < server.tokens <= limit
        await play(tmp_path / "other", server.url, "openai", parameters={"max_tokens": 60})
    assert await read_texts(tmp_path / "other") == await read_texts(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("room", [1.4, pytest.param(0.8, marks=pytest.mark.soak)])
async def test_a_small_budget_is_spent_in_few_large_batches(tmp_path: Path, room: float) -> None:
    options: dict[str, Any] = {"size": 100, "pace": 0.1}
    async with BatchServer() as server:
        await play(tmp_path, server.url, "openai", tasks=4, **options)
    assert len(server.batches) == 5
    limit = int(room * server.tokens)
    (tmp_path / "other").mkdir()
    async with BatchServer() as server:
        with suppress(BudgetReached):
            await play(tmp_path / "other", server.url, "openai", tasks=4, max_tokens=limit, **options)
    assert 0.7 * min(1.0, room) * limit / room < server.tokens <= limit
    assert len(server.batches) <= (6 if room > 1 else 9)


async def test_a_run_whose_batches_are_out_is_not_asked_live(tmp_path: Path) -> None:
    async with BatchServer(looks=9) as server:
        assert await play_killed(tmp_path, server, "openai", batch_wait=0.0) == 3
        with pytest.raises(InputError, match="Batches of this run are out"):
            await play(tmp_path, server.url, "openai", batch=False)
    status = await read_status(tmp_path / "run.db")
    assert status.requests_out > 0
    assert status.describe()["seconds_left"] is None
    assert "out, not counted above" in str(status)


@pytest.mark.parametrize(("dialect", "creation"), [("openai", 5), ("anthropic", 3)])
async def test_a_list_of_batches_without_an_end_is_read_once(
    tmp_path: Path, dialect: str, creation: int
) -> None:
    async with BatchServer(endless=True, faults={creation: "drop"}) as server:
        await play(tmp_path, server.url, dialect)
    assert [ending for ending, _ in (await read_texts(tmp_path)).values()] == ["max_messages"] * 6
    assert server.orphans == []
    assert 2 <= sum(path.endswith("batches") for method, path in server.requests if method == "GET") <= 8


async def test_a_command_that_does_not_wait_ends_where_each_connection_is_closed(tmp_path: Path) -> None:
    async with BatchServer(faults=dict.fromkeys(range(10_000), "drop")) as server:
        await play(tmp_path, server.url, "openai", batch_wait=0.0, max_wait=86_400.0)
        assert await read_texts(tmp_path) == {}
        server.faults.clear()
        await play(tmp_path, server.url, "openai")
    assert server.paid_twice == 0


@pytest.mark.slow
async def test_a_batch_that_is_unknown_under_another_key_is_not_asked_and_paid_again(tmp_path: Path) -> None:
    async with BatchServer(looks=9) as server:
        assert await play_killed(tmp_path, server, "openai", batch_wait=0.0) == 3
        sent, server.batches = server.batches, {}
        with pytest.raises(Denied, match="does not know a batch that it took"):
            await play(tmp_path, server.url, "openai")
        assert server.batches == {}
        server.batches = sent
        await play(tmp_path, server.url, "openai")
    assert server.paid_twice == 0
    assert server.orphans == []


@pytest.mark.parametrize(
    "content", [b"", b"notes", "CREATE TABLE batches (a); INSERT INTO batches VALUES (1)"]
)
async def test_a_damaged_ledger_is_told_in_a_line_and_one_that_was_never_written_is_none(
    tmp_path: Path, content: bytes | str
) -> None:
    (tmp_path / "run.db.batches").mkdir()
    ledger = tmp_path / "run.db.batches" / "ledger.db"
    if isinstance(content, bytes):
        ledger.write_bytes(content)
    else:
        with closing(sqlite3.connect(ledger)) as database:
            database.executescript(content)
    async with BatchServer() as server:
        for batch in (False, True):
            with (
                nullcontext() if content == b"" else pytest.raises(StoreError, match="ledger of the batches")
            ):
                await play(tmp_path, server.url, "openai", tasks=1, batch=batch)


async def test_requests_that_are_out_are_neither_calls_nor_failures() -> None:
    async def wait(_: Request) -> Reply:
        raise BatchesOut("1 batch is out.")

    meter = UsageMeter(max_usd=1.0, prices={"scripted": Price(1, 1)})
    model = Scripted([])
    model.reply = wait  # type: ignore[method-assign]
    with pytest.raises(BatchesOut):
        await Budget(model, meter).reply(
            Request(messages=(Message("user", Text("Tea?")),), sampling=Sampling(max_tokens=9))
        )
    assert (meter.calls, meter.unknown) == (0, 0)
    assert meter.hold("scripted", Usage(0, 999_999))


async def test_a_model_without_a_batch_interface_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be asked in batches"):
        await play(tmp_path, "http://127.0.0.1:9", "vllm")


async def test_a_provider_that_refuses_every_batch_fails_no_session(tmp_path: Path) -> None:
    async with BatchServer(refused="tasks") as server:
        with pytest.raises(Denied, match=r"(?s)refuses every batch.*Correct what it names"):
            await play(tmp_path, server.url, "openai")
        assert await read_texts(tmp_path) == {}
        # Nothing is out, so the run can be made without batches, as the error says.
        server.refused = ""
        await play(tmp_path, server.url, "openai", batch=False)
    assert await read_texts(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["kill", "kill-after"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_after_a_kill_at_any_request_nothing_is_lost_and_nothing_is_paid_twice(
    tmp_path: Path, dialect: str, fault: Any
) -> None:
    live = await play_live(tmp_path / "live", dialect)
    number, killed = 0, True
    while killed:
        (folder := tmp_path / str(number)).mkdir()
        async with BatchServer(looks=1, faults={number: fault}) as server:
            killed = await play_killed(folder, server, dialect) == -9
            if killed:
                assert await play_killed(folder, server, dialect) == 0
            assert await read_texts(folder) == live
            assert server.orphans == []
            assert server.paid_twice == 0
        number += 1
    assert number > 10


WAYS: dict[str, dict[str, Any]] = {
    "live": {"batch": False},
    "flex": {"batch": False, "tier": "flex"},
    "batch": {},
}
CACHED = {"default": 0.6, "flex": 0.5, "batch": 0.2}
PRICE = (2.0, 8.0, 0.5)


@pytest.mark.parametrize("measured", WAYS)
@pytest.mark.parametrize("way", WAYS)
async def test_the_forecast_of_a_way_is_the_bill_of_the_server(
    tmp_path: Path, way: str, measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ten jobs are played in one way, and the others in the same or in another one."""
    terms: dict[str, Any] = {"tasks": 12, "price": "2/8/0.5"}
    # Of a way that was not measured, flex is expected to be cached like live requests, and batches not at all.
    alike = 0.0 if measured == "batch" else 0.6
    known = CACHED if way == measured else {"default": alike, "flex": alike, "batch": 0.0}
    known |= {"batch": CACHED["batch"]} if measured == "batch" else {}
    async with BatchServer(cached=known) as server:
        row = ("[[providers]]", 'name = "openai"', 'batches = "openai"', "tiers = { flex = 0.5 }")
        (tmp_path / "providers.toml").write_text("\n".join((*row, f'address = "{server.url}"')))
        monkeypatch.setenv("BACTRIAN_CONFIG", str(tmp_path))
        await play(tmp_path, server.url, "openai", limit=10, size=100, **terms, **WAYS[measured])
        paid = server.bill(*PRICE)
        order = make_order(tmp_path, server.url, "openai", **terms, **{"batch": True, **WAYS[way]})
        forecast = await forecast_run(order)
        await play(tmp_path, server.url, "openai", size=100, **terms, **WAYS[way])
        bill = server.bill(*PRICE) - paid
    ways = {each.name: each for each in forecast.ways}
    assert list(ways) == ["live", "flex", "batch"]
    usd = ways[way].usd
    assert usd is not None
    assert usd.value == pytest.approx(bill, rel=0.1)
    assert usd.low <= bill <= usd.high
    assert 0 < ways[way].seconds.value <= ways[way].seconds.high


async def test_the_last_conversations_go_on_at_flex_if_that_is_asked_for_and_are_counted_so(
    tmp_path: Path,
) -> None:
    async with BatchServer(lines={30: "500"}, cached=CACHED) as server:
        cost = await play(
            tmp_path, server.url, "openai", tasks=30, size=100, pace=0.1, tier="flex", price="2/8/0.5"
        )
        assert server.live
        assert set(server.used) == {"batch", "flex"}
    async with open_store(tmp_path / "run.db", read_only=True) as store:
        tiers = await store.measure_tiers()
        spent = await read_spending(store)
    assert tiers.keys() == {"batch", "flex"}
    assert spent.usd == pytest.approx(cost)
