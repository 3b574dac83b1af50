"""``python -m benchmarks.throttle``: what refusals cost a run, as shares of its rate without any.

Refusals by chance, where the run should hardly slow down, and limits of the server, whose full rate it should reach.
"""

from __future__ import annotations

from benchmarks.__main__ import measured, server
from benchmarks.client import CALLS

LATENCY = 0.1
WINDOW = 16
SECONDS = 20
BY_CHANCE = ((0.01, 0), (0.05, 0), (0.01, 1))
"""Share of refusals, and the seconds that they ask for."""
LIMITS: tuple[dict[str, float], ...] = (
    {"room": 4},
    {"per_second": 40, "burst": 0.5},
    {"per_second": 40, "burst": 1, "retry_after": 1},
    {"per_second": 40, "burst": 10},
)


def measure_rate(window: int, conversations: int, **gate: float) -> float:
    """Return the answers a second of a run against a server with this gate."""
    with server(LATENCY, **gate) as port:
        return measured("bactrian", port, conversations, window)["calls_per_second"]


def main() -> None:
    """Measure, and print a line for each server: calls a second, and their share."""
    undisturbed = measure_rate(WINDOW, int(SECONDS * WINDOW / LATENCY) // CALLS)
    print(f"refuses nothing: {undisturbed:.0f}")
    for faults, after in BY_CHANCE:
        rate = measure_rate(
            WINDOW, int(SECONDS * WINDOW / LATENCY) // CALLS, faults=faults, retry_after=after
        )
        share = rate / undisturbed
        print(f"refuses {faults:.0%}, Retry-After {after or 'none'}: {rate:.0f}, {share:.2f}", flush=True)
    for gate in LIMITS:
        limit = gate.get("room", 0) / LATENCY or gate.get("per_second", 0) or 1
        rate = measure_rate(WINDOW, int(SECONDS * limit / CALLS), **gate)
        print(f"{gate}: {rate:.0f}, {rate / limit:.2f}", flush=True)


if __name__ == "__main__":
    main()
