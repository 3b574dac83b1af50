"""Does each domain appear at its own stage and not before? A model made from nothing is trained on invented facts.

Run ``python -m benchmarks.emergence [SEEDS] [FOLDER]``; it needs the extras ``train`` and ``local``. The exit code is
1 if the claim fails. A folder that was begun is continued.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bactrian.api.dataset import run_order, watch_progress
from bactrian.api.measurements import KnownAnswerOrder, measure_known_answers
from bactrian.evaluate.known_answers import NOTHING, choose_size
from bactrian.runs.wiring import RunOrder


async def ask(order: RunOrder) -> int:
    """Ask what is missing, and return the number of failures."""
    return (await run_order(order, lambda _: None, watch_progress(None))).failed


def main() -> None:
    """Run the experiment, and print its report as JSON."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "emergence").absolute()
    order = KnownAnswerOrder(folder, tuple(range(1, seeds + 1)), choose_size(NOTHING))
    report = asyncio.run(measure_known_answers(order, ask)).to_json()
    print(json.dumps(report, ensure_ascii=False))
    sys.exit(0 if report["holds"] else 1)


if __name__ == "__main__":
    main()
