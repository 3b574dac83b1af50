"""What a person is told whose model on this computer cannot be used, and what becomes of the run."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from bactrian.store import open_store
from tests.helpers.command import Command, bactrian, clean_environment, events

RECIPE = """
name = "tea"
[[axes]]
name = "idea"
count = 2
given = ["Boil", "Pour"]
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
prompts = "plain-small"
max_messages = 2
"""
HEADER = 2 << 20
"""Bytes; the header of the weights has fewer."""
SHORT = ("--json", "--set", "parameters.max_tokens=4", "--run", "run.db", "--model")
PLAY = ("play", "tea", "--no-specify", "--max-messages", "1", *SHORT)
GENERATE = ("generate", "tea.toml", *SHORT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tea.toml").write_text(RECIPE)
    return tmp_path


def run_starved(folder: Path, *command: str, bytes_of_memory: int) -> subprocess.CompletedProcess[str]:
    def starve() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (bytes_of_memory, bytes_of_memory))

    return subprocess.run(
        [sys.executable, "-m", "bactrian", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=starve,
    )


def read_header() -> bytes:
    with fetch_weights(BUILT_IN, find_cache_folder()).open("rb") as weights:
        return weights.read(HEADER)


def cut_in_the_middle(path: Path) -> None:
    path.write_bytes(read_header())
    os.truncate(path, BUILT_IN.size // 2)


def cut_in_its_header(path: Path) -> None:
    path.write_bytes(read_header()[:300])


def with_a_narrow_window(path: Path) -> None:
    content = bytearray(read_header())
    struct.pack_into("<I", content, content.index(b".context_length") + len(b".context_length") + 4, 256)
    path.write_bytes(content)
    os.truncate(path, BUILT_IN.size)


def of_another_kind(path: Path) -> None:
    path.write_text("These are notes, and no model.")


FILES = [
    (lambda path: None, "The model cannot be read: No such file or directory."),
    (Path.mkdir, "The model cannot be read: Is a directory."),
    (Path.touch, "Not a GGUF file."),
    (of_another_kind, "Not a GGUF file."),
    (cut_in_its_header, "The model's file is damaged or truncated."),
    (cut_in_the_middle, "The model's file is truncated: it has 49,181,216 bytes of 98,362,432."),
    (with_a_narrow_window, "The model has a window of 256 tokens; a conversation needs 1,024 or more."),
]


@pytest.mark.parametrize("command", [PLAY, GENERATE], ids=["play", "generate"])
@pytest.mark.parametrize(("make", "says"), FILES)
def test_a_file_that_is_no_model_is_told_before_any_conversation_starts(
    folder: Path, command: tuple[str, ...], make: Callable[[Path], object], says: str
) -> None:
    make(folder / "my.gguf")
    done = bactrian(*command, "local:my.gguf", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"bactrian: my.gguf: {says}"
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.system
@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("libgomp.so.1: cannot open shared object file", "apt-get install libgomp1"),
        ("/lib/libc.so.6: version `GLIBC_2.99' not found", "pip install --force-reinstall xllamacpp"),
    ],
)
def test_a_library_that_llama_cpp_needs_and_the_system_lacks_is_named(
    folder: Path, missing: str, says: str
) -> None:
    (folder / "xllamacpp.py").write_text(f"raise ImportError({missing!r})\n")
    done = bactrian(*PLAY, "local", cwd=folder, PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert missing in first
    assert says in second


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory")
@pytest.mark.parametrize(
    "command", [PLAY, pytest.param(GENERATE, marks=pytest.mark.soak)], ids=["play", "generate"]
)
def test_too_little_memory_is_told_before_any_conversation_starts(
    folder: Path, command: tuple[str, ...]
) -> None:
    done = run_starved(folder, *command, "local", bytes_of_memory=600 << 20)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert "SmolLM2-135M-Instruct.Q4_1.gguf: llama.cpp cannot load the model" in first
    assert "not enough memory for" in first
    assert "concurrency" in second
    if command is PLAY:
        again = bactrian(*command, "local", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert [json.loads(line)["event"] for line in again.stdout.splitlines()] == [
            "started",
            "spoke",
            "ended",
        ]


def workers(parent: int) -> list[int]:
    listed = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "server_process"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


async def count_turns(run: Path) -> int:
    if not run.exists():
        return 0
    async with open_store(run, read_only=True) as store:
        return sum([len(session.turns) async for session in store.sessions()])


@pytest.mark.soak
async def test_a_model_that_is_killed_in_mid_run_costs_no_conversation(folder: Path) -> None:
    child = Command((*GENERATE, "local"), folder, clean_environment())
    killed: set[int] = set()
    stored = 0
    while child.returncode is None:
        if len(killed) < 2 and (turns := await count_turns(folder / "run.db")) > stored:
            stored = turns
            for worker in {*workers(child.pid)} - killed:
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
        await asyncio.sleep(0.05)
    shown, told = child.finish()
    assert killed
    assert child.returncode == 0, told
    last = events(shown.decode())[-1]
    assert (last["done"], last["endings"].get("failed", 0)) == (2, 0)
    assert last["failed_calls"] > 0
    assert b"llama.cpp has stopped and is started again" in told
    async with open_store(folder / "run.db", read_only=True) as store:
        assert [[turn.number for turn in session.turns] async for session in store.sessions()] == [[1, 2]] * 2
