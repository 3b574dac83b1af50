"""A shared run is read where it is by `status` and `resume`, and through a copy by all else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.api.known_runs import open_anywhere
from bactrian.api.status import read_facts
from bactrian.errors import InputError, StoreError
from bactrian.shared.lease import add_up
from bactrian.shared.reading import pull_run
from bactrian.store import find_address, open_store
from bactrian.store.locations import locate_run
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.explorer import explore
from tests.helpers.generation import generate, said, start
from tests.helpers.postgres import PostgresServer
from tests.helpers.shared_runs import CALLS, SESSIONS, NumberedReplies, ask, finish, wait_for_calls

pytestmark = pytest.mark.system


@pytest.mark.slow
async def test_the_facts_on_the_server_are_those_of_a_copy(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--price", "1/2"))[0] == 0
    run = locate_run(address)
    async with open_anywhere(run) as (store, workers):
        there = await read_facts(store)
    assert [worker.state for worker in workers] == ["left"]
    assert workers[0].calls == CALLS
    at = find_address(run)
    assert at is not None
    pull_run(at, folder / "pulled.db")
    async with open_store(folder / "pulled.db", read_only=True) as store:
        here = await read_facts(store)
    assert here == there
    assert there.spending.usd == pytest.approx(workers[0].usd)


@pytest.mark.slow
async def test_a_reader_sees_one_state_of_a_run_that_others_write(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "2"))[0] == 0
        async with open_anywhere(locate_run(address)) as (store, _):
            before = await read_facts(store)
            assert (await generate(folder, endpoint, "--run", address, "--limit", "4"))[0] == 0
            assert await read_facts(store) == before
        async with open_anywhere(locate_run(address)) as (store, _):
            assert (await read_facts(store)).sessions == 4


@pytest.mark.parametrize(
    ("usd", "endings"), [(float("nan"), "{}"), (0.0, "x"), (0.0, "[1]"), (0.0, '{"a": "b"}')]
)
def test_what_a_hand_has_written_of_a_worker_is_not_added_up(usd: float, endings: str) -> None:
    with pytest.raises(StoreError, match="no version of bactrian writes"):
        add_up([(0, 0, 0, 0, usd, 0, endings)])


@pytest.mark.slow
async def test_a_run_whose_tables_a_hand_has_changed_is_refused_in_a_line(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "1"))[0] == 0
        for change, words in (
            ("UPDATE frontier SET lease = -1 RETURNING 1", "The lease of the run is -1 s."),
            ("UPDATE run SET recipe = '{' RETURNING 1", "no version of bactrian writes"),
            ("UPDATE run SET recipe = '{}' RETURNING 1", "no version of bactrian writes"),
            (
                """UPDATE run SET recipe = '{"recipe": {"axes": [{}]}}' RETURNING 1""",
                "no version of bactrian writes",
            ),
            (
                """UPDATE run SET recipe = '{"recipe": {}, "models": 3}' RETURNING 1""",
                "no version of bactrian writes",
            ),
            ("DELETE FROM frontier RETURNING 1", "Another version of bactrian made this run"),
        ):
            ask(address, change)
            code, _, told = await generate(folder, endpoint, "--run", address)
            assert (code in (1, 2), words in told, "Traceback" in told) == (True, True, False), told


@pytest.mark.slow
async def test_status_lists_the_workers_and_copies_nothing(
    server: PostgresServer, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACTRIAN_DATA", str(folder / "data"))
    address, replies = server.address(database, lease=60), NumberedReplies(0.02)
    looked = asyncio.Event()

    async def reply(request: Received) -> str:
        if len(replies.requests) == 12:
            await looked.wait()
        return await replies(request)

    async with Endpoint([reply]) as endpoint:
        worker = start(folder, endpoint, "--run", address, "--concurrency", "3")
        await wait_for_calls(replies, 12)
        shown = await asyncio.to_thread(bactrian, "status", address, "--json", cwd=folder)
        told = await asyncio.to_thread(bactrian, "status", address, cwd=folder)
        looked.set()
        codes, _ = await finish(worker)
    assert codes == [0]
    status = json.loads(shown.stdout)
    assert (status["state"], status["jobs"], status["run"]) == ("being written", 12, address)
    (working,) = status["workers"]
    assert working["state"] == "working"
    assert working["claimed"] >= 4
    assert 0 <= working["silent"] < working["lease"] == 60
    assert "heard of" in told.stdout
    assert f"resume    bactrian resume '{address}'" in told.stdout
    assert not list((folder / "data").glob("shared/*.db"))
    after = json.loads(bactrian("status", address, "--json", cwd=folder).stdout)
    assert (after["state"], after["left"], after["workers"][0]["state"]) == ("complete", 0, "left")
    assert after["messages"] == 48


@pytest.mark.slow
async def test_a_shared_run_is_resumed_and_read_by_its_address(
    server: PostgresServer, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACTRIAN_DATA", str(folder / "data"))
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        where = ("--run", address, "--limit", "5")
        assert (await generate(folder, endpoint, *where))[0] == 0
        resumed = await asyncio.to_thread(bactrian, "resume", address, "--limit", "12", cwd=folder)
        assert resumed.returncode == 0, resumed.stderr
        assert len(endpoint.requests) == CALLS
    run = bt.open_run(address)
    assert len(list(run)) == 12
    assert run.status().state == "complete"
    refused = bactrian("runs", address, cwd=folder)
    assert refused.returncode == 2
    assert "this is the address of one run" in refused.stderr
    listed = bactrian("show", address, "--json", cwd=folder)
    ids = [json.loads(line)["session"] for line in listed.stdout.splitlines()]
    assert len(ids) == 12
    one = bactrian("show", address, ids[3], cwd=folder)
    assert (one.returncode, "Instruction" in one.stdout) == (0, True), one.stderr


@pytest.mark.slow
async def test_a_shared_run_is_named_forecast_and_forked_by_its_address_and_never_written_as_its_copy(
    server: PostgresServer, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACTRIAN_DATA", str(folder / "data"))
    address = server.address(database)
    where = ("--run", address, "--price", "1/2")
    async with Endpoint([said]) as endpoint:
        _, lines, _ = await generate(folder, endpoint, *where, "--forecast", "--json")
        assert lines[-1]["sessions"] == SESSIONS
        code, lines, _ = await generate(folder, endpoint, *where, "--limit", "5", "--json")
        assert (code, lines[-1]["run"]) == (0, address)
        worker = start(folder, endpoint, *where, "--limit", "5")
        out, _ = await worker.communicate()
        assert f"{address}: 5 of 5 conversations" in out.decode()
        _, lines, _ = await generate(folder, endpoint, *where, "--forecast", "--json")
        assert lines[-1]["sessions"] == SESSIONS - 5
        asked = len(endpoint.requests)
        forked = await generate(folder, endpoint, "--run", "fork.db", "--lists", address, "--limit", "5")
        assert (forked[0], len(endpoint.requests) - asked) == (0, 5 * 4), forked
        batched = await generate(folder, endpoint, *where, "--batch")
    assert "a shared run is made by any" in batched[2]
    (folder / "own.jsonl").write_text('{"messages": [{"role": "user", "content": "Hello."}]}\n')
    for words in (("import", "own.jsonl"), ("play", "Plan a garden."), ("merge", "fork.db")):
        refused = await asyncio.to_thread(bactrian, *words, "--run", address, cwd=folder)
        assert (refused.returncode, "and no other command" in refused.stderr) == (2, True), refused.stderr
    for write in (
        lambda: bt.import_chats(folder / "own.jsonl", run=address),
        lambda: bt.play("Plan a garden.", run=address),
        lambda: bt.merge([folder / "fork.db"], run=address),
    ):
        with pytest.raises(InputError, match="and no other command"):
            await asyncio.to_thread(write)
    assert len(await asyncio.to_thread(bt.merge, [address], run=folder / "merged.db")) == 5
    shown = await asyncio.to_thread(bactrian, "show", address, cwd=folder)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow
async def test_commands_that_read_a_shared_run_at_the_same_time_wait_for_its_copy(
    server: PostgresServer, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACTRIAN_DATA", str(folder / "data"))
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "2"))[0] == 0
    (copy := locate_run(address)).parent.mkdir(parents=True)
    async with open_store(copy):
        reading = asyncio.create_task(asyncio.to_thread(bactrian, "show", address, cwd=folder))
        await asyncio.sleep(0.3)
        assert not reading.done()
    shown = await reading
    assert (shown.returncode, len(shown.stdout.splitlines())) == (0, 2), shown.stderr


@pytest.mark.slow
async def test_the_end_of_a_block_of_jobs_and_how_they_ended_are_known_at_the_same_moment(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--lists-only"))[0] == 0
        ask(
            address,
            "SELECT 1; CREATE TABLE seen (jobs BIGINT, endings JSON);"
            " CREATE FUNCTION look() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO seen SELECT (SELECT sum(stop - start) FROM claims WHERE worker = workers.id"
            " AND state = 'done'), endings::json FROM workers WHERE id = NEW.worker; RETURN NEW; END $$;"
            " CREATE TRIGGER look AFTER UPDATE ON claims FOR EACH ROW WHEN (NEW.state = 'done')"
            " EXECUTE FUNCTION look()",
        )
        assert (await generate(folder, endpoint, "--run", address))[0] == 0
    told = "coalesce((endings ->> 'max_messages')::int, 0)"
    seen = ask(address, f"SELECT jobs, {told}, {told} >= jobs FROM seen")
    assert any(jobs == SESSIONS for jobs, _, _ in seen)  # those whose lists alone were made before, too
    assert all(whole for _, _, whole in seen), seen


@pytest.mark.slow
async def test_the_explorer_shows_what_workers_make_meanwhile(
    server: PostgresServer, database: str, folder: Path
) -> None:
    address = server.address(database)
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address, "--limit", "4"))[0] == 0

        def look() -> None:
            with explore(folder, address, sessions=4, BACTRIAN_DATA=str(folder / "data")) as running:
                worker = start(folder, endpoint, "--run", address)
                assert worker.wait() == 0
                worker.finish()
                running.wait(lambda state: state["seen"] == SESSIONS)

        await asyncio.to_thread(look)
