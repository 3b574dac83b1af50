"""The server answers its own pages and nobody else's, and says what is wrong."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from bactrian.explore.library import Library
from bactrian.explore.rendering import Explorer
from bactrian.explore.security import Guard, make_access_rules
from bactrian.explore.server import build_app, open_address
from tests.explore.conftest import HOSTILE
from tests.helpers.command import bactrian
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system


def ids(explored: RunningExplorer, query: str) -> list[str]:
    """The conversations on a page of the list."""
    return [row["id"] for row in json.loads(explored.get(f"/conversations.json?{query}").text)["sessions"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("ending=repeat_loop", ["loop"]),
        ("behaviour=role_flip", ["flip"]),
        ("assistant=G%C3%A4rtner", ["flip"]),
        ("user=Stock+Trader", ["loop"]),
        ("least=200", ["many"]),
        ("task=Count+to+many", ["many"]),
        ("mark=red-team", ["red"]),
        ("ending=repeat_loop&ending=assistant_instruct", ["loop", "flip"]),
        (f"q={quote('天気')}", ["scripts"]),
        ("q=cafe", ["scripts"]),
        ("q=%22function+that+adds%22", ["loop"]),
        ("q=function&sort=best", ["loop"]),
        ("q=alert&ending=task_done", ["hostile"]),
        ("sort=longest&least=20", ["many"]),
    ],
)
def test_a_filter_finds_what_it_says(explored: RunningExplorer, query: str, found: list[str]) -> None:
    assert sorted(ids(explored, query)) == sorted(found)


@pytest.mark.parametrize("sort", ["", "newest", "longest", "findings", "cost"])
def test_pages_hold_every_conversation_once_in_every_order(explored: RunningExplorer, sort: str) -> None:
    seen: list[str] = []
    after = ""
    while True:
        page = json.loads(explored.get(f"/conversations.json?sort={sort}&after={after}").text)
        seen += [row["id"] for row in page["sessions"]]
        if page["next"] is None:
            break
        after = quote(page["next"])
    assert len(seen) == len(set(seen)) == page["count"] == 68


@pytest.mark.parametrize("after", ["x", "~~", "1~2", "1e999~0~0", "nan~0~0", "0~99~1"])
def test_a_page_that_does_not_exist_is_no_fault_of_the_server(explored: RunningExplorer, after: str) -> None:
    assert explored.get(f"/conversations?after={after}").status == 200


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/c/run/nothing", "/c/nothing/loop", "/static/../server.py", "/static/%2e%2e/server.py"],
)
def test_an_unknown_address_is_not_found(explored: RunningExplorer, path: str) -> None:
    answer = explored.get(path)
    assert answer.status == 404
    assert "import" not in answer.text


@pytest.mark.parametrize("query", ["least=many", "sort=up", "data=nothing", "cost=-1", f"least={'9' * 5000}"])
def test_a_wrong_filter_is_explained(explored: RunningExplorer, query: str) -> None:
    answer = explored.get(f"/conversations?{query}")
    assert answer.status == 400
    assert "This did not work" in answer.text


@pytest.mark.parametrize("path", ["/", "/conversations", "/c/run/hostile", "/c/run/hostile?whole=1", "/help"])
def test_no_text_of_a_model_becomes_markup(explored: RunningExplorer, path: str) -> None:
    answer = explored.get(path)
    assert "<script>document" not in answer.text
    assert "onerror=alert(1)>" not in answer.text
    assert "\u202e" not in answer.text
    assert "\x1b" not in answer.text


def test_every_answer_carries_the_policy(explored: RunningExplorer) -> None:
    for path in ("/", "/nowhere", "/static/page.js", "/c/run/loop/json"):
        headers = explored.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:1"])
def test_another_name_for_this_address_is_refused(explored: RunningExplorer, host: str) -> None:
    assert explored.get("/", Host=host).status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_form_of_another_site_is_refused(explored: RunningExplorer, origin: str) -> None:
    assert explored.get("/agree", b"next=/", Origin=origin).status == 403


def test_a_form_without_its_token_is_refused(explored: RunningExplorer) -> None:
    answer = explored.get("/agree", b"next=/", Origin=explored.address)
    assert answer.status == 400
    assert "started again" in answer.text


def test_a_request_that_goes_on_and_on_is_ended(explored: RunningExplorer) -> None:
    host = explored.address.removeprefix("http://").rstrip("/")
    name, _, port = host.partition(":")
    head = (
        f"POST /vote HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        with pytest.raises(ConnectionError):
            for _ in range(1024):
                connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


def test_conversations_made_to_study_misuse_come_after_a_notice(explored: RunningExplorer) -> None:
    assert "Something harmful" not in explored.get("/c/run/red").text
    assert explored.get("/c/run/red/json").status == 403
    assert explored.get("/c/run/red/markdown").status == 403
    assert "Something harmful" not in explored.get("/conversations?mark=red-team").text


def test_a_conversation_is_given_as_its_events(explored: RunningExplorer) -> None:
    events = json.loads(explored.get("/c/run/loop/json").text)["events"]
    assert [event["event"] for event in events] == ["started", *["spoke"] * 8, "ended"]


def test_texts_in_markdown_cannot_leave_their_quotation(explored: RunningExplorer) -> None:
    text = explored.get("/c/run/hostile/markdown").text
    assert HOSTILE.split()[1][:4] in text
    assert all(line.startswith((">", "#", "Ended")) or not line for line in text.splitlines())


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningExplorer]:
    """An explorer of a run of five conversations and one of three, whose indexes are complete."""
    folder = tmp_path_factory.mktemp("two")
    more = [session(f"t{number}", rounds=1 + number % 2) for number in range(3)]
    asyncio.run(make_run(folder / "one.db", [session(f"s{n}", rounds=1 + n % 3) for n in range(5)]))
    asyncio.run(make_run(folder / "two.db", more))
    with explore(folder, "one.db", "two.db", sessions=5) as explorer:
        explorer.wait(lambda _: [state["seen"] for state in explorer.status()] == [5, 3])
        yield explorer


@pytest.mark.parametrize("sort", ["", "newest", "longest", "findings", "best"])
def test_next_and_previous_go_through_the_list_in_its_order(two_runs: RunningExplorer, sort: str) -> None:
    query = f"q=dial&sort={sort}"
    rows = json.loads(two_runs.get(f"/conversations.json?{query}").text)["sessions"]
    listed = [f"/c/{row['data']}/{row['id']}" for row in rows]
    assert len(listed) == 8
    pages = {path: two_runs.get(f"{path}?{query}").text for path in listed}
    for way, path, to in [
        *(("next", path, to) for path, to in zip(listed, [*listed[1:], None], strict=True)),
        *(("prev", path, to) for path, to in zip(listed, [None, *listed], strict=False)),
    ]:
        found = re.search(rf'rel="{way}" href="([^?"]+)\?', pages[path])
        assert (found and found[1]) == to


def test_a_taken_port_is_named_with_another_one(explored: RunningExplorer) -> None:
    port = explored.address.rsplit(":", 1)[1]
    done = bactrian("explore", "run.db", "--port", port, cwd=explored.folder)
    assert done.returncode == 2
    assert f"--port {int(port) + 1}" in done.stderr
    assert done.stderr.startswith("bactrian: ")
    assert len(done.stderr.splitlines()) == 2


async def test_a_fault_of_the_program_is_a_page_that_says_what_to_do() -> None:
    async def fail(_: Request) -> Response:
        raise ZeroDivisionError

    pages = build_app(Explorer(Library(Path("index.db"))))
    pages.router.routes.insert(0, Route("/fails", fail))
    app = Guard(pages, make_access_rules("127.0.0.1", 8642, "token", "once"))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/fails",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer token")],
    }
    with pytest.raises(ZeroDivisionError):  # The server writes it to the terminal.
        await app(scope, receive, send)
    assert sent[0]["status"] == 500
    assert dict(sent[0]["headers"])[b"content-security-policy"].startswith(b"default-src 'none'")
    text = b"".join(message.get("body", b"") for message in sent).decode()
    assert "does not know: ZeroDivisionError" in text
    assert "bactrian doctor" in text


def test_a_run_of_a_newer_version_is_refused_with_the_next_step(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "run.db", [session()]))
    with closing(sqlite3.connect(tmp_path / "run.db")) as connection, connection:
        connection.execute("INSERT INTO migrations (number, applied) VALUES (999, 0)")
    done = bactrian("explore", "run.db", cwd=tmp_path)
    assert done.returncode == 1
    assert "later version" in done.stderr


def test_the_statistics_count_each_conversation_once(explored: RunningExplorer) -> None:
    counts = json.loads(explored.get("/statistics.json").text)
    assert counts["conversations"] == 68
    assert sum(counts["ending"].values()) + counts["open"] == 68
    assert counts["behaviour"]["role_flip"] == 1
    assert json.loads(explored.get("/statistics.json?assistant=Poet").text)["assistant"] == {"Poet": 30}


def test_the_pairs_that_show_a_behaviour_most_are_listed_first(explored: RunningExplorer) -> None:
    table = (
        explored.get("/statistics?by=role_flip")
        .text.partition("Pairs that show it most</h3>")[2]
        .partition("<h3>")[0]
    )
    assert "Gärtner" in table
    assert "1 of 1" in table
    assert "assistant=G%C3%A4rtner&amp;user=Teacher" in table
    assert "Poet" not in table


def test_two_filters_are_compared_with_the_interval_of_the_difference(explored: RunningExplorer) -> None:
    text = explored.get("/compare?one=ending%3Drepeat_loop&two=assistant%3DPoet").text
    assert "infinite loop" in text
    # One of one against none of thirty: one conversation is too few for an interval.
    assert '\N{MINUS SIGN}100.0<br><span class="soft">no interval</span>' in text


def test_conversations_stand_side_by_side(explored: RunningExplorer) -> None:
    text = explored.get("/compare/conversations?pick=run/loop&pick=run/flip").text
    assert "Stock Trader" in text
    assert "Teacher" in text
    assert explored.get("/compare/conversations?pick=run/loop").status == 400
    assert explored.get("/compare/conversations?pick=run/loop&pick=run/red").status == 403


def test_the_packets_of_a_page_do_not_wait_for_each_other() -> None:
    with open_address("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.slow
async def test_without_a_run_the_runs_used_lately_are_opened(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run = await make_run(tmp_path / "elsewhere" / "tea.db", [session()])
    await make_run(tmp_path / "here.db", [session()])
    data = str(tmp_path / "data")
    assert bactrian("status", str(run), cwd=tmp_path, BACTRIAN_DATA=data).returncode == 0
    with explore(tmp_path, sessions=1, BACTRIAN_DATA=data) as explorer:
        assert [state["name"] for state in await asyncio.to_thread(explorer.status)] == ["tea", "here"]
    (tmp_path / "nowhere").mkdir()
    for options, told in (
        ((), "No run was used lately."),
        (("--bundle", "copy"), "runs that you name"),
        (("--host", "0.0.0.0"), "runs that you name"),
    ):
        done = bactrian("explore", *options, cwd=tmp_path / "nowhere", BACTRIAN_DATA=str(tmp_path / "none"))
        assert (done.returncode, told in done.stderr, "bactrian play --run" in done.stderr) == (2, True, True)
