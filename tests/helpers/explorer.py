"""A running explorer."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.helpers.command import Command, clean_environment

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a page answered."""

    status: int
    text: str
    headers: dict[str, str]


@dataclass(frozen=True)
class RunningExplorer:
    """A server that answers."""

    address: str
    command: Command
    folder: Path
    """The working folder."""
    token: str = ""
    """That of the printed address."""

    @property
    def cookie(self) -> str:
        """What lets the owner in."""
        return f"bactrian_{self.address.rpartition(':')[2]}={self.token}"

    def link(self, path: str) -> str:
        """An address for a browser that was not here before."""
        path, mark, place = path.partition("#")
        return f"{self.address}{path}{'&' if '?' in path else '?'}token={self.token}{mark}{place}"

    def get(self, path: str, data: bytes | None = None, **headers: str) -> Answer:
        """Request a page; with ``data``, send a form. An underscore in a header's name is a dash.

        Without ``Cookie``, it is the owner's request.
        """
        given = {"Cookie": self.cookie} | {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.address}{path}", data, given)
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=30) as answer:
                return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), dict(error.headers))

    def list(self, query: str) -> str:
        """The page of a list, when it has the counts of its filter."""
        for _ in range(300):
            if "The counts are being read" not in (text := self.get(f"/conversations{query}").text):
                return text
            time.sleep(0.1)
        pytest.fail("The counts were not read.")

    def status(self) -> list[dict[str, Any]]:
        """The numbers of all data sets."""
        return json.loads(self.get("/status").text)

    def wait(self, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the first data set's numbers are as asked."""
        state: dict[str, Any] = {}
        for _ in range(750):
            if done(state := self.status()[0]):
                return state
            time.sleep(0.1)
        pytest.fail(f"The index did not get there: {state}")


def fetch_zip(explorer: RunningExplorer, path: str) -> zipfile.ZipFile:
    """Return the files that a page sends together."""
    request = urllib.request.Request(f"{explorer.address}{path}", headers={"Cookie": explorer.cookie})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return zipfile.ZipFile(BytesIO(answer.read()))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **more: object) -> None:  # type: ignore[override]
        return None


def run_apart(work: Coroutine[object, object, T]) -> T:
    """Run ``work`` in a thread of its own: in this one, the event loop of a browser may run."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def explore(
    folder: Path, *arguments: str, sessions: int | None = None, **variables: str
) -> Generator[RunningExplorer]:
    """Run ``bactrian explore`` with ``arguments``, and wait until ``sessions`` are indexed whole."""
    port = find_port()
    environment = clean_environment(XDG_CACHE_HOME=str(folder / "cache"), NO_COLOR="1", **variables)
    command = Command(("explore", *arguments, "--port", str(port)), folder, environment)
    try:
        while (token := re.search(r"\?token=([\w-]{32})\n", command.peek())) is None:
            assert command.returncode is None, command.finish()
            time.sleep(0.01)
        one = RunningExplorer(f"http://127.0.0.1:{port}", command, folder, token[1])
        if sessions is not None:
            one.wait(lambda state: state["seen"] == sessions)
        yield one
    finally:
        if command.returncode is None:
            command.send_signal(signal.SIGINT)
        command.finish()
