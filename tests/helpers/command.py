"""The command ``bactrian``, run as a person and a program would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LINES = [
    "Build a tea timer.",
    "Instruction: Name the parts.\nInput: None",
    "Solution: A dial and a bell.\nNext request.",
    "<CAMEL_TASK_DONE>",
]
"""A script for the built-in agents: a task, an instruction, a solution, the end."""


def bactrian(
    *arguments: str, cwd: Path, text: bytes | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "BACTRIAN"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "bactrian", *arguments],
        cwd=cwd,
        env=environment | variables,
        input=text,
        capture_output=True,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]
