"""Weights by name, from a hub on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from bactrian.errors import InputError, ModelError, Refused
from bactrian.models.credentials import DOTENV
from bactrian.models.local.weights import (
    BUILT_IN,
    HubWeights,
    Progress,
    fetch_from_hub,
    fetch_in_thread,
    fetch_weights,
    find_cache_folder,
    read_hub_name,
)
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, find_traits, open_model
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from tests.helpers.command import Command, clean_environment

REPO = "acme/tiny-GGUF"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client asks the hub of the test, even where the library datasets has told it to stay offline."""
    if hub := sys.modules.get("huggingface_hub.constants"):
        monkeypatch.setattr(hub, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub, "HF_HUB_DISABLE_TELEMETRY", True)


@dataclass
class Hub:
    """One repository, as the hub's client asks for it."""

    files: dict[str, bytes]
    lies: bool = False
    """True if what it sends is not what it says."""
    stalls: bool = False
    """True if it sends no file to its end."""
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    commit: str = REVISION
    """What its list of files says."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Further headers of its files."""
    moved: str = ""
    """Where it sends those who ask for the list."""
    fact: Mapping[str, object] = field(default_factory=dict[str, object])
    """What it says instead about each file."""
    endless: str = ""
    """The beginning of the paths at which its replies never end."""
    sent: int = 0
    """Bytes of a reply that never ends."""
    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    keys: set[str] = field(default_factory=set[str])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        self.keys |= {request.headers["Authorization"]} if "Authorization" in request.headers else set()
        if self.endless and request.path.startswith(self.endless) and request.method == "GET":
            return await self._answer_endlessly(request)
        if request.path.startswith(f"/api/models/{REPO}") and self.moved:
            return web.Response(status=307, headers={"Location": self.moved})
        if request.path.startswith((f"/api/models/{REPO}", "/moved", "/api/moved", "/api/resolve-cache")):
            siblings = [
                {
                    "rfilename": name,
                    "size": len(data),
                    "lfs": {"sha256": self._digest(data), "size": len(data), "pointerSize": 1},
                    **self.fact,
                }
                for name, data in self.files.items()
            ]
            return web.json_response({"id": REPO, "sha": self.commit, "siblings": siblings})
        name = request.path.removeprefix(f"/{REPO}/resolve/{REVISION}/")
        if name not in self.files:
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        data = self.files[name]
        sent = b"GGUF lies" + data if self.lies else data
        headers = {"ETag": f'"{self._digest(data)}"', "X-Repo-Commit": REVISION} | self.headers
        if self.stalls and request.method == "GET":
            response = web.StreamResponse(headers=headers | {"Content-Length": str(len(sent))})
            await response.prepare(request)
            self.stalled.set()
            await asyncio.Event().wait()
        return web.Response(body=sent, headers=headers)

    async def _answer_endlessly(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=404 if request.path.startswith("/api/moved") else 200)
        response.enable_chunked_encoding()
        await response.prepare(request)
        with suppress(ConnectionError):
            while self.sent < 1 << 30:
                await response.write(b" " * (1 << 20))
                self.sent += 1 << 20
        return response

    def _digest(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def use_test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_HOME", DOTENV):
        monkeypatch.delenv(name, raising=False)
    # For programs, and for the hub's client in this process, which has read the variable when it was imported
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub-cache"))


@asynccontextmanager
async def serving(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Hub]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hub.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    try:
        yield hub
    finally:
        await runner.cleanup()


async def fetch(folder: Path, file: str | None = None, told: list[str] | None = None) -> Path:
    report = (told if told is not None else []).append
    return await asyncio.to_thread(fetch_from_hub, HubWeights(REPO, file), folder, report=report)


def test_a_name_is_a_repository_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_hub_name("Qwen/Qwen3-8B-GGUF") == HubWeights("Qwen/Qwen3-8B-GGUF")
    assert read_hub_name("a/b:b-Q8_0.gguf") == HubWeights("a/b", "b-Q8_0.gguf")
    for path in ("models/b.gguf", "./a/b", "/a/b", "~/a", "b.gguf", ""):
        assert read_hub_name(path) is None
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()
    monkeypatch.chdir(tmp_path)
    assert read_hub_name("a/b") is None
    assert find_traits("local:a/c").in_process


async def test_the_quantisation_that_suits_most_is_taken_and_its_size_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["t-F16.gguf", "t-Q8_0.gguf", "t-Q4_K_M.gguf", "t-Q2_K.gguf", "mmproj-Q4_K_M.gguf", "README.md"]
    told: list[str] = []
    async with serving(Hub({name: name.encode() * 1000 for name in names}), monkeypatch) as hub:
        path = await fetch(tmp_path, told=told)
    assert path.name == "t-Q4_K_M.gguf"
    assert path.read_bytes() == b"t-Q4_K_M.gguf" * 1000
    assert told == [f"Fetching t-Q4_K_M.gguf of {REPO}: 0.0 MB."]
    assert not any(name in asked for name in ("F16", "Q8_0") for asked in hub.asked)


async def test_what_was_fetched_is_used_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub({"t-Q4_0.gguf": b"x" * 5000})
    async with serving(hub, monkeypatch):
        first = await fetch(tmp_path)
        asked = len(hub.asked)
        assert await fetch(tmp_path) == first
        assert len(hub.asked) == asked
    assert await fetch(tmp_path) == first


async def test_damage_is_noticed_and_mended_as_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub({"t-Q4_0.gguf": b"x" * 5000}), monkeypatch):
        path = await fetch(tmp_path)
        path.resolve().write_bytes(b"y" * 5000)
        with pytest.raises(Refused, match="SHA-256 differs") as caught:
            await fetch(tmp_path)
        assert caught.value.where is not None
        Path(caught.value.where).unlink()
        assert (await fetch(tmp_path)).read_bytes() == b"x" * 5000


async def test_a_file_that_is_not_what_the_hub_says_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub({"t-Q4_0.gguf": b"x" * 5000}, lies=True), monkeypatch):
        with pytest.raises(Refused):
            await fetch(tmp_path)
    assert not list(tmp_path.glob("hub/*.json"))


async def test_a_file_can_be_named_and_a_wrong_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub({"a-Q4_0.gguf": b"a" * 99, "b-Q4_0.gguf": b"b" * 99, "c-Q4_0-00001-of-00002.gguf": b"c"})
    async with serving(hub, monkeypatch):
        assert (await fetch(tmp_path, "b-Q4_0.gguf")).read_bytes() == b"b" * 99
        with pytest.raises(InputError, match=r"has no file 'd\.gguf'") as caught:
            await fetch(tmp_path, "d.gguf")
        assert "a-Q4_0.gguf" in str(caught.value)
        with pytest.raises(InputError, match="no weights in one GGUF file"):
            await fetch(tmp_path, "c-Q4_0-00001-of-00002.gguf")


UP = "../../../precious"
HOSTILE = {
    "ETag": Hub({}, headers={"ETag": f'"{UP}"'}),
    "an absolute ETag": Hub({}, headers={"ETag": '"/tmp/precious"'}),
    "the weak ETag": Hub({}, headers={"ETag": f'W/"{UP}"'}),
    "ETag of the linked file": Hub({}, headers={"X-Linked-Etag": f'"{UP}"'}),
    "commit": Hub({}, headers={"X-Repo-Commit": UP}),
    "commit that is the folder": Hub({}, headers={"X-Repo-Commit": ".."}),
    "commit of the list": Hub({}, commit=UP),
    "file": Hub({f"{UP}.gguf": b"x"}),
    "absolute file": Hub({"/precious.gguf": b"x"}),
    "file of another system": Hub({"..\\..\\precious.gguf": b"x"}),
    "file with an escape": Hub({"\x1b]0;t\x07.gguf": b"x"}),
    "moved list": Hub({f"{UP}.gguf": b"x"}, moved="/moved"),
    **{
        f"commit of a list that moved to {moved}": Hub({}, commit=UP, moved=moved)
        for moved in (
            "/moved?a=/api/",
            "/moved#/api/",
            "/moved/api/a",
            "/api/moved/resolve/b",
            "/api/../moved",
        )
    },
    "list that moved to a file": Hub({}, commit=UP, moved="/api/resolve-cache/moved"),
    "list that moved to another host": Hub({}, commit=UP, moved="http://127.0.0.2:9/api/moved"),
    "commit that is no hash": Hub({}, commit="main"),
    **{
        f"list with {fact}": Hub({}, fact=fact)
        for fact in (
            {"size": 10**4000},
            {"size": "lots"},
            {"size": -1},
            {"size": True},
            {"rfilename": [".."]},
            {"lfs": {"sha256": 7, "size": 1, "pointerSize": 1}},
            {"lfs": "no"},
        )
    },
}


@pytest.mark.parametrize("attack", HOSTILE)
async def test_a_hostile_server_writes_nothing_outside_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    hub = HOSTILE[attack]
    hub.files = hub.files or {"t-Q4_0.gguf": b"x" * 5000}
    async with serving(hub, monkeypatch):
        with pytest.raises(Refused, match="Nothing was written"):
            await fetch(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if "precious" in path.name or b"xxx" in path.read_bytes()]
    assert not any(asked.startswith("GET /acme") for asked in hub.asked)


@pytest.mark.parametrize(
    "hub",
    [
        Hub({}, endless="/api/"),
        Hub({}, endless="/api/moved", moved="/api/moved"),
        Hub({}, endless=f"/{REPO}"),
    ],
    ids=["list", "error", "file"],
)
async def test_a_reply_without_an_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    monkeypatch.setattr("bactrian.models.hub_access._LARGEST_REPLY", 4 << 20)
    hub.files = {"t-Q4_0.gguf": b"x" * 5000}
    async with serving(hub, monkeypatch):
        with pytest.raises(Refused, match="more than"):
            await fetch(tmp_path)
    assert hub.sent < 64 << 20


async def test_a_hub_that_is_out_of_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"could not be downloaded") as caught:
        await fetch(tmp_path)
    assert "127.0.0.1:9" in str(caught.value)


async def test_the_hub_s_key_goes_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    async with serving(Hub({"t-Q4_0.gguf": b"x" * 99}), monkeypatch) as hub:
        monkeypatch.setenv(DOTENV, "HF_ENDPOINT")
        with pytest.raises(InputError, match="it is not sent there"):
            await fetch(tmp_path)
        assert hub.asked == []
        monkeypatch.delenv("HF_TOKEN")
        await fetch(tmp_path)
    assert hub.keys == set()


@pytest.mark.slow
async def test_an_interrupt_ends_a_download_that_makes_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Hub({"a-Q4_0.gguf": b"GGUF" * 4096}, stalls=True), monkeypatch) as hub:
        order = ("play", "tea", "--model", f"local:{REPO}", "--no-keep")
        process = Command(order, tmp_path, clean_environment(BACTRIAN_CACHE=str(tmp_path / "cache")))
        await asyncio.wait_for(hub.stalled.wait(), 60)
        process.send_signal(signal.SIGINT)
        _, complaint = await asyncio.wait_for(
            process.communicate(), 10
        )  # the client waits longer for each byte
    assert process.returncode == 130
    assert "Interrupted." in complaint.decode()


async def test_a_download_that_nobody_waits_for_ends_at_its_next_progress() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def fetch(progress: Progress) -> Path:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                progress(1, 2)
        finally:
            loop.call_soon_threadsafe(ended.set)

    waiting = asyncio.create_task(fetch_in_thread(fetch, None))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait_for(ended.wait(), 10)


@pytest.mark.slow
async def test_weights_of_the_hub_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = await asyncio.to_thread(fetch_weights, BUILT_IN, find_cache_folder())
    monkeypatch.setenv("BACTRIAN_CACHE", str(tmp_path))
    done: list[tuple[int, int]] = []
    async with serving(Hub({"SmolLM2.Q4_1.gguf": weights.read_bytes()}), monkeypatch):
        options = ModelOptions(slots=1, progress=lambda at, of: done.append((at, of)))
        model = open_model(f"local:{REPO}", options)
        try:
            reply = await model.reply(Request((Message("user", Text("Hello.")),), Sampling(max_tokens=4)))
        finally:
            await model.close()
    assert model.name == f"local:{REPO}"
    assert reply.usage.completion > 0
    assert done[-1] == (BUILT_IN.size, BUILT_IN.size)
    assert [at for at, _ in done] == sorted(at for at, _ in done)


@pytest.mark.system
def test_a_command_keeps_the_hub_s_client_from_messages_and_requests_of_its_own() -> None:
    program = (
        "from bactrian.cli.main import main\ntry:\n main()\nexcept SystemExit:\n pass\n"
        "from huggingface_hub import constants, logging\n"
        "import sys\n"
        "print(constants.HF_HUB_DISABLE_TELEMETRY, logging.get_verbosity() == logging.ERROR, file=sys.stderr)"
    )
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "DO_NOT_TRACK"))
    }
    for setting, silent in (({}, "True True"), ({"HF_HUB_VERBOSITY": "info"}, "True False")):
        command = [sys.executable, "-c", program, "--version"]
        done = subprocess.run(
            command, env=plain | setting, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stderr.splitlines()[-1] == silent
