"""The examples for SLURM, Kubernetes and Ray: scripts are valid, and their commands are those of this program."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import click
import pytest

from bactrian.cli.help_form import load_verb
from tests.helpers.command import Command, start_python
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import RECIPE, generate, said, stored

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCRIPT = EXAMPLES / "slurm" / "shards.sbatch"
MANIFEST = EXAMPLES / "kubernetes" / "shards.yaml"
RAY = EXAMPLES / "ray_workers.py"


def list_commands(path: Path) -> list[list[str]]:
    """The words of each command of this program in an example, its comments among them."""
    text = re.sub(r"\n {14}(?=--)", " ", path.read_text("utf-8"))
    found = re.findall(r"bactrian ((?:generate|merge) .*?)\s*(?:&|$)", text, re.MULTILINE)
    return [shlex.split(command.replace("part-*.db", "part-1.db part-2.db")) for command in found]


def parse(verb: str, words: list[str]) -> dict[str, object]:
    """The values that the words of a command give to its options."""
    command = load_verb(verb)
    parser = command.make_parser(click.Context(command))
    values, rest, _ = parser.parse_args(args=words)
    assert not rest
    return dict(values)


@pytest.mark.parametrize("path", [SCRIPT, MANIFEST], ids=lambda path: path.parent.name)
def test_the_commands_of_the_examples_parse(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = list_commands(path)
    assert [verb for verb, *_ in commands] == ["merge", "generate"]
    for verb, *words in commands:
        assert parse(verb, words)["run_file"]


def test_the_slurm_script_is_valid_and_ends_a_shard_before_its_time() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    text = SCRIPT.read_text("utf-8")
    assert "--shard auto" in text
    assert re.search(r"^#SBATCH --signal=B:TERM@\d+$", text, re.MULTILINE)


def test_the_kubernetes_job_has_as_many_pods_as_shards() -> None:
    text = MANIFEST.read_text("utf-8")
    counts = re.search(r"completions: (\d+)", text), re.search(r"--shard auto/(\d+)", text)
    assert counts[0] and counts[1]
    assert counts[0][1] == counts[1][1]


def test_the_command_of_the_example_for_ray_parses() -> None:
    shown = ast.get_docstring(ast.parse(RAY.read_text("utf-8"))) or ""
    command = re.search(
        r"^ +python examples/ray_workers.py (\d+) (.*)$", shown.replace("\\\n", " "), re.MULTILINE
    )
    assert command
    assert str(parse("generate", shlex.split(command[2]))["run_file"]).startswith("postgresql://")


async def answer_slowly(request: Received) -> Plan:
    await asyncio.sleep(0.2)
    return said(request)


def start_actor(folder: Path, url: str) -> Command:
    """Start what Ray starts, without Ray: a process that takes part in a run by a process of its own."""
    (folder / "small.toml").write_text(RECIPE)
    program = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import ray_workers; "
    program += "sys.exit(ray_workers.Worker().generate(sys.argv[1:]))"
    run = ("small.toml", "--run", "run.db", "--model", "openai:any", "--base-url", url, "--quiet")
    return start_python(program, *run, cwd=folder)


@pytest.mark.slow
async def test_an_actor_of_ray_that_is_killed_takes_its_process_along(tmp_path: Path) -> None:
    """Otherwise it would go on beside the one that Ray starts in its place. Here, it would hold the lock of the run."""
    async with Endpoint([answer_slowly]) as endpoint:
        actor = start_actor(tmp_path, endpoint.url)
        while len(endpoint.requests) < 5:
            assert actor.returncode is None, actor.peek()
            await asyncio.sleep(0.05)
        actor.send_signal(signal.SIGKILL)
        actor.finish()
        while (again := await generate(tmp_path, endpoint))[
            0
        ]:  # What is in flight is finished and stored first.
            assert "is being written by another process" in again[2]
            await asyncio.sleep(0.1)
        assert len(endpoint.requests) == 3 + 12 * 4


@pytest.mark.soak
async def test_a_process_of_an_actor_that_is_killed_alone_is_started_again(tmp_path: Path) -> None:
    async with Endpoint([answer_slowly]) as endpoint:
        actor = start_actor(tmp_path, endpoint.url)
        while len(endpoint.requests) < 5:
            assert actor.returncode is None, actor.peek()
            await asyncio.sleep(0.05)
        (process,) = Path(f"/proc/{actor.pid}/task/{actor.pid}/children").read_text().split()
        os.kill(int(process), signal.SIGKILL)
        _, err = await actor.communicate()
        assert actor.wait() == 0, err
    sessions = await stored(tmp_path)
    assert [len(session.turns) for session in sessions] == [4] * 12
