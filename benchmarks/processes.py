"""``python -m benchmarks.processes [RUNS]``: one process and two, in alternating runs of the command.

A call is a reply of a script, so that no server takes part; with a tool that computes for ten milliseconds; or of
a server, which is a Python program too and needs a core of its own. Where there are only two cores, a rate with two
processes says little of a quiet computer with more; the CPU time of a call, of all processes together, does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import server

TURNS = 20
RECIPE = """
name = "bench"
[[axes]]
name = "idea"
count = {count}
given = [{ideas}]
[role_play]
assistant = "Programmer"
user = "Trader"
idea = "{{{{ idea }}}}"
specify = false
max_messages = {turns}
"""
TOOL = """
import time

def compute(number: int) -> int:
    "Return what takes ten milliseconds of CPU time."
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        number = (number * 1_103_515_245 + 12_345) % 2**31
    return number
"""
CASES = {"script": 12_000, "tool": 300, "server": 3_000}
"""Conversations of each case."""
_PART = 0.2, 0.9
"""The part of the calls that is timed: the rest are starts and ends."""


def prepare(folder: Path, case: str, count: int) -> None:
    """Write the recipe, the tool and the script."""
    ideas = ", ".join(f'"Build tool {number}"' for number in range(count))
    tools = '[tools]\npython = "tool.py"\n' if case == "tool" else ""
    (folder / "bench.toml").write_text(RECIPE.format(count=count, ideas=ideas, turns=TURNS) + tools)
    (folder / "tool.py").write_text(TOOL)
    words = [" ".join(f"word{(7 * turn + 13 * place) % 997}" for place in range(80)) for turn in range(TURNS)]
    solved = [f"Solution: {text}.\nNext request." for text in words]
    called = 'Call: compute {"number": 1}'
    answers = [each for text in solved for each in ((called, text) if case == "tool" else (text,))]
    script = {"user": [f"Instruction: {text}\nInput: None" for text in words], "assistant": answers}
    (folder / "script.json").write_text(json.dumps(script))


def measure(folder: Path, case: str, processes: int, port: int) -> tuple[float, float]:
    """Return the calls a second of a run, and its milliseconds of CPU time for each."""
    run = folder / f"{time.monotonic_ns()}.db"
    model = ["--model", "openai:bench", "--base-url", f"http://127.0.0.1:{port}/v1"]
    if case != "server":
        model = ["--model", "scripted:script.json"]
    command = [
        sys.executable,
        "-m",
        "bactrian",
        "generate",
        "bench.toml",
        "--run",
        run.name,
        "--json",
        *model,
    ]
    command += ["--processes", str(processes)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [
            (json.loads(line)["calls"], time.monotonic(), read_cpu(process.pid)) for line in process.stdout
        ]
    calls = lines[-1][0]
    timed = [line for line in lines if _PART[0] * calls <= line[0] <= _PART[1] * calls]
    made, seconds, cpu = (last - first for first, last in zip(timed[0], timed[-1], strict=True))
    return made / seconds, 1000 * cpu / made


def read_cpu(pid: int) -> float:
    """Return the seconds of CPU time of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = 0
    for each in (str(pid), *children):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    cases = sys.argv[2:] or list(CASES)
    cores = os.cpu_count()
    table = Table(
        "case",
        "calls/s: 1",
        "2",
        "ratio",
        "CPU ms a call: 1",
        "2",
        "ratio",
        title=f"{cores} cores, medians of {runs}",
    )
    for case in cases:
        taken: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        with tempfile.TemporaryDirectory() as place, server(0.0) as port:
            folder = Path(place)
            prepare(folder, case, CASES[case])
            for _ in range(runs):
                for processes, results in taken.items():
                    results.append(measure(folder, case, processes, port))
        row: list[str] = []
        for figure, digits in ((0, 0), (1, 3)):
            one, two = ([result[figure] for result in taken[processes]] for processes in (1, 2))
            ratio = median(b / a for a, b in zip(one, two, strict=True))
            row += [f"{median(one):.{digits}f}", f"{median(two):.{digits}f}", f"{ratio:.2f}"]
        table.add_row(case, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
