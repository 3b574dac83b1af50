"""``python -m benchmarks [RUNS]``: what a call costs, against aiohttp alone, in alternating runs of one session."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.table import Table

CASES = ((1000, 64, 0.0), (4000, 1000, 0.2))
"""Conversations, how many of them at once, and the server's latency in seconds."""
FIGURES = ("cpu_ms_per_call", "calls_per_second", "kb_per_conversation", "peak_mb")


@contextmanager
def server(latency: float, **gate: float) -> Generator[int]:
    """A server in a process of its own. Gives its port."""
    command = [sys.executable, "-m", "benchmarks.server", "0", str(latency), json.dumps(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def measured(who: str, *numbers: int) -> dict[str, float]:
    """One run of one client in a process of its own: port, conversations, and how many at once."""
    command = [sys.executable, "-m", "benchmarks.client", who, *map(str, numbers)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    """Measure and print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    table = Table(
        "case", "figure", "raw aiohttp", "bactrian", "ratio", title=f"Medians of {runs} alternating runs"
    )
    for conversations, window, latency in CASES:
        results: dict[str, list[dict[str, float]]] = {"raw": [], "bactrian": []}
        with server(latency) as port:
            for _ in range(runs):
                for who, taken in results.items():
                    taken.append(measured(who, port, conversations, window))
        case = f"{conversations} x 40 calls, {window} at once, {latency * 1000:.0f} ms"
        for figure in FIGURES:
            raw, ours = (median(run[figure] for run in results[who]) for who in ("raw", "bactrian"))
            ratio = median(
                b[figure] / a[figure] for a, b in zip(results["raw"], results["bactrian"], strict=True)
            )
            table.add_row(case, figure, f"{raw:.3f}", f"{ours:.3f}", f"{ratio:.2f}")
        if latency:
            ideal = window / latency
            share = median(run["calls_per_second"] for run in results["bactrian"]) / ideal
            table.add_row(case, "share of ideal throughput", "", f"{share:.0%}", "")
    start = [_seconds([sys.executable, "-m", "bactrian", "--help"]) for _ in range(runs)]
    table.add_row("start", "bactrian --help, seconds", "", f"{median(start):.2f}", "")
    Console().print(table)


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
