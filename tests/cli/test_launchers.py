"""The examples for SLURM and Kubernetes: their scripts are valid, and their commands are commands of this program."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from bactrian.cli.help_form import load_verb

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCRIPT = EXAMPLES / "slurm" / "shards.sbatch"
MANIFEST = EXAMPLES / "kubernetes" / "shards.yaml"


def list_commands(path: Path) -> list[list[str]]:
    """The words of each command of this program in an example, its comments among them."""
    text = re.sub(r"\n {14}(?=--)", " ", path.read_text("utf-8"))
    found = re.findall(r"bactrian ((?:generate|merge) .*?)\s*(?:&|$)", text, re.MULTILINE)
    return [shlex.split(command.replace("part-*.db", "part-1.db part-2.db")) for command in found]


@pytest.mark.parametrize("path", [SCRIPT, MANIFEST], ids=lambda path: path.parent.name)
def test_the_commands_of_the_examples_parse(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = list_commands(path)
    assert [verb for verb, *_ in commands] == ["merge", "generate"]
    for verb, *words in commands:
        command = load_verb(verb)
        parser = command.make_parser(click.Context(command))
        values, rest, _ = parser.parse_args(args=list(words))
        assert not rest
        assert values["run_file"]


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
