"""Every command of docs/export.md does what it says."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

from bactrian.export.registry import FORMATS
from tests.helpers.command import bactrian
from tests.helpers.runs import ORIGIN, answer, make_run, session

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text("utf-8")
IN_TABLE = re.findall(r"\| `(bactrian export [^`]+)` \|", PAGE)
IN_BLOCKS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def make_runs(folder: Path) -> None:
    plays = [session(f"001_{number:03}_001", user=f"U{number}") for number in range(12)]
    origin = replace(ORIGIN, models={"translator": "openai:one"}, language="German")
    german = [
        replace(one, id=f"de_{one.id}", provenance=origin, values={"language": "de", "source": one.id})
        for one in plays
    ]

    async def make() -> None:
        await make_run(folder / "society.db", plays)
        await make_run(folder / "physics.db", [answer()])
        await make_run(folder / "german.db", german)

    asyncio.run(make())
    problem = {"prompt": " ".join(map(str, range(20))), "canonical_solution": "return 1"}
    (folder / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(problem).encode()))


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    make_runs(tmp_path)
    assert len(IN_TABLE) == 11
    assert len(IN_BLOCKS) == 8
    for command in (*IN_TABLE, *IN_BLOCKS):
        program, *arguments = shlex.split(command)
        assert program == "bactrian"
        done = bactrian(*arguments, cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_the_page_has_every_format() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)`", PAGE, re.MULTILINE)) == set(FORMATS)
