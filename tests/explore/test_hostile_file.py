"""A run whose file somebody wrote by hand: every page explains it or shows it as text, and nothing runs."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from urllib.parse import quote
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser

from bactrian.errors import StoreError
from bactrian.explore.bundle import FetchedPage
from tests.explore.test_kinds import fetch
from tests.helpers.command import bactrian
from tests.helpers.explorer import explore, run_apart
from tests.helpers.runs import make_run, session
from tests.store.test_seals import fill

MARKUP = "<script>document.title='owned'</script><img src=x onerror=alert(1)>'\"\u202e\x1b]0;owned\x07\x1b[31m\n{{7*7}}"
SPOILED: list[tuple[str, str, object]] = [
    ("sessions", "user_role", b"\xff\xfe\x00<script>"),
    ("sessions", "created", 9e999),
    ("sessions", "provenance", '{"models": 7, "cast": 7}'),
    ("sessions", "prompt_tokens", 2**63 - 1),
    ("turns", "number", -(2**63)),
    ("turns", "seconds", "soon"),
    ("turns", "said", "[" * 1000),
    ("turns", "prompt_tokens", 9e999),
    ("marks", "created", MARKUP),
    ("verdicts", "kept", MARKUP),
    ("tools", "cut", MARKUP),
    ("votes", "created", MARKUP),
    ("run", "recipe", '{"recipe": 7}'),
    ("run", "recipe", "[]"),
]


def spoil(path: Path, *changes: tuple[str, str, object]) -> None:
    """Write values into columns, as another program could."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, column, value in changes:
            connection.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ?', (value,))


@pytest.mark.system
@pytest.mark.parametrize(("table", "column", "value"), SPOILED)
async def test_a_value_of_another_type_is_told_by_page_and_command(
    tmp_path: Path, table: str, column: str, value: object
) -> None:
    await fill(tmp_path / "run.db", "one", "two")
    spoil(tmp_path / "run.db", (table, column, value))
    paths = (
        "/",
        "/conversations",
        "/status",
        "/statistics",
        "/votes",
        "/export/data.zip",
        "/c/run/one",
    )
    pages: list[FetchedPage] = []
    with suppress(StoreError):  # The explorer refuses it at its start.
        pages = await fetch([tmp_path / "run.db"], *paths)
    for path, page in zip(paths, pages, strict=False):
        assert page.status != 500, path
        body = page.body
        if body.startswith(b"PK"):  # An export: what is compressed may contain any byte.
            with ZipFile(BytesIO(body)) as sent:
                body = b"".join(map(sent.read, sent.namelist()))
        assert b"\x1b" not in body
        assert b"<script>document" not in body
    for words in (
        ["show", "run.db", "one"],
        ["status", "run.db"],
        ["analyze", "run.db"],
        ["verify", "run.db"],
    ):
        done = bactrian(*words, cwd=tmp_path)
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert f"of table {table} was changed" in done.stdout


@pytest.mark.slow
def test_a_run_that_cannot_be_read_says_so_and_the_others_are_searched(tmp_path: Path) -> None:
    run_apart(make_run(tmp_path / "good.db", [session(f"s{number}") for number in range(5)]))
    run_apart(make_run(tmp_path / "strange.db", [session("one")], recipe="of-another-program"))
    run_apart(make_run(tmp_path / "bad.db", [session("one"), session("two")]))
    spoil(tmp_path / "bad.db", ("turns", "prompt_tokens", 9e999))
    spoil(tmp_path / "good.db", ("turns", "text", b"\xff\xfe"))
    with explore(tmp_path, "good.db", "strange.db", "bad.db", sessions=5) as explorer:
        good, strange, bad = explorer.status()
        while not (strange["seen"] and strange["problem"] and bad["problem"]):
            time.sleep(0.1)
            good, strange, bad = explorer.status()
        assert good["problem"] is None
        assert (strange["seen"], strange["state"]) == (1, "unknown")
        assert "does not say in a known form what it is made from" in strange["problem"]
        assert "no version of bactrian writes" in bad["problem"]
        assert bad["problem"].partition("\n")[0] in explorer.get("/conversations").text
        assert "so far" not in explorer.get("/conversations?data=strange").text
        assert "Traceback" not in explorer.command.peek()


@pytest.mark.slow
def test_markup_in_every_column_stays_text_in_a_browser(chromium: Browser, tmp_path: Path) -> None:
    run = tmp_path / "run.db"
    run_apart(make_run(run, [session("one"), session("two")]))
    texts = (
        "assistant_role",
        "user_role",
        "original_task",
        "specified_task",
        "ending",
        "ending_evidence",
        "mark",
    )
    spoil(run, ("sessions", "id", MARKUP), ("turns", "session", MARKUP))
    spoil(run, *(("sessions", name, MARKUP) for name in texts))
    spoil(run, *(("turns", name, MARKUP) for name in ("role", "model", "finish", "speaker", "thought")))
    with explore(tmp_path, "run.db", "--edit") as explorer, closing(chromium.new_context()) as context:
        page = context.new_page()
        wrong: list[str] = []
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
        page.goto(explorer.link("/"))
        for path in (
            "/",
            "/conversations",
            f"/c/run/{quote(MARKUP, safe='')}",
            "/statistics",
            "/map",
            "/compare",
        ):
            page.goto(explorer.address + path)
            assert page.locator("nav[aria-label=Pages]").count() == 1
            assert "owned" not in page.title().partition("<")[0]
            assert page.locator("main img[src=x], main script").count() == 0
        assert wrong == []
        assert "Traceback" not in explorer.command.peek()


@pytest.mark.slow
async def test_an_id_that_no_query_finds_does_not_stop_the_index_of_the_others(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("one"), session("two")])
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection, connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE turns SET session = 'o' || char(0) || 'ne' WHERE session = 'one'")
        connection.execute("UPDATE sessions SET id = 'o' || char(0) || 'ne' WHERE id = 'one'")

    def search() -> None:
        with explore(tmp_path, "run.db", sessions=2) as explorer:
            explorer.wait(lambda state: state["texts"] == 2)
            page = explorer.get("/conversations?q=timer").text
            assert '<data value="1">1</data> conversation<' in page

    await asyncio.to_thread(search)
