"""Who gets in: the owner with the token, voters with invitations, and nobody by a crowd of slow connections."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.helpers.explorer import RunningExplorer, explore, run_apart
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[RunningExplorer]:
    """An explorer at an address of this computer, and one at all of its addresses."""
    run_apart(make_run(tmp_path / "run.db", [session()]))
    with explore(tmp_path, "run.db", "--host", request.param) as explorer:
        yield explorer


def test_every_page_needs_the_token_that_is_shown(guarded: RunningExplorer) -> None:
    name = guarded.cookie.partition("=")[0]
    pages = [
        "/",
        "/conversations",
        "/conversations.json",
        "/status",
        "/c/run/x/events",
        "/map.svg",
        "/nowhere",
    ]
    for path in (*pages, "/?token=", "/?token=wrong"):
        for cookie in ("", f"{name}=", f"{name}=wrong", f"bactrian_1={guarded.token}"):
            assert guarded.get(path, Cookie=cookie).status == 401, path
    assert guarded.get("/votes", b"voter=x", Origin=guarded.address, Cookie="").status == 401
    entered = guarded.get(f"/conversations?q=x&token={guarded.token}", Cookie="")
    assert (entered.status, entered.headers["location"]) == (303, "/conversations?q=x")
    login, *attributes = entered.headers["set-cookie"].split("; ")
    assert login == guarded.cookie
    assert {"HttpOnly", "SameSite=strict"} <= set(attributes)
    assert guarded.get("/conversations.json", Cookie=login).status == 200
    assert guarded.get("/status", Cookie="", Authorization=f"Bearer {guarded.token}").status == 200
    # The token leaves the address even if the browser has the cookie.
    assert guarded.get(f"/?token={guarded.token}").status == 303


@pytest.mark.slow
def test_a_browser_enters_by_links_of_other_sites_and_stays_in_two_explorers(
    guarded: RunningExplorer, chromium: Browser, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "run.db", other)
    # A page on a disk is a site of its own, as a mail or a notebook is.
    (tmp_path / "mail.html").write_text(
        f"<a href='{guarded.link('/conversations')}'>token</a> <a href='{guarded.address}/help'>plain</a>"
    )
    with explore(other, "run.db") as second, closing(chromium.new_context()) as context:
        page = context.new_page()
        page.goto((tmp_path / "mail.html").as_uri())
        page.get_by_text("token").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("1 conversation")
        assert page.url == f"{guarded.address}/conversations"
        page.goto(second.link("/"))
        assert page.url == f"{second.address}/"
        for explorer in (guarded, second):
            page.goto(explorer.address)
            expect(page.get_by_role("heading", level=1)).to_have_text("Library")
        page.goto((tmp_path / "mail.html").as_uri())
        page.get_by_text("plain").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Help")
        assert page.evaluate("document.cookie") == ""


def test_the_browser_that_is_opened_gets_a_token_that_is_good_once(tmp_path: Path) -> None:
    run_apart(make_run(tmp_path / "run.db", [session()]))
    opened = tmp_path / "opened"
    with explore(tmp_path, "run.db", "--open", BROWSER=f"sh -c 'echo \"$0\" > {opened}' %s") as explorer:
        while not opened.exists() or not (address := opened.read_text().strip()):
            assert explorer.command.returncode is None, explorer.command.peek()
            time.sleep(0.01)
        path = address.removeprefix(explorer.address)
        assert explorer.token not in path, "everybody can read the command line of a browser"
        assert explorer.get(path, Cookie="").headers["set-cookie"].startswith(explorer.cookie)
        assert explorer.get(path, Cookie="").status == 401


def begin_requests(explorer: RunningExplorer, count: int, text: bytes) -> list[socket.socket]:
    """Open connections and send the beginning of a request on each."""
    port = int(explorer.address.rpartition(":")[2])
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for connection in connections:
        with suppress(OSError):
            connection.sendall(text)
    return connections


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
        b"POST /agree HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 99\r\n\r\nnext",
    ],
)
def test_a_crowd_of_half_requests_does_not_shut_the_owner_out(guarded: RunningExplorer, text: bytes) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(closing(one)) for one in begin_requests(guarded, 700, text)]
        assert guarded.get("/").status == 200
        kept = 0
        for connection in crowd:
            connection.setblocking(False)
            try:
                kept += bool(connection.recv(1))
            except BlockingIOError:
                kept += 1
            except ConnectionError:
                pass
        assert kept <= 250
    assert "Traceback" not in guarded.command.peek()


@pytest.mark.soak
def test_a_request_that_never_ends_is_ended(guarded: RunningExplorer) -> None:
    (connection,) = begin_requests(guarded, 1, b"GET / HTTP/1.1\r\n")
    begun = time.monotonic()
    with closing(connection), suppress(ConnectionError):
        while time.monotonic() - begun < 60:
            connection.sendall(b"X")
            time.sleep(0.5)
    assert time.monotonic() - begun < 40
