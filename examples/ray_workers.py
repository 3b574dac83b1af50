"""Workers of one run in PostgreSQL, started by Ray on the nodes of its cluster (pip install ray).

    python examples/ray_workers.py 3 ai-society --run postgresql://ann@db.example/society --model openai:gpt-4o

The number of workers comes first, and then what `bactrian generate` takes. Ray only starts processes, and the database
knows what is done. So a worker may be lost at any time: Ray starts another one, which joins the run.
Bactrian is installed on each node, and the password of the database is there in ~/.pgpass or PGPASSWORD.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

ENDED = (0, 3, 4)
"""Exit codes of a run that has nothing more to do: complete, at its budget, complete with failed jobs."""
LEASE_LOST = 5
"""The exit code of a worker that was not heard of for so long that others took over its jobs. It may join again."""


class Worker:
    """One process of the run. Its method runs in an actor of Ray."""

    def generate(self, arguments: Sequence[str]) -> int:
        """Take part in the run until it has ended; return the exit code."""
        # An actor that is killed takes its process along, which would go on beside the one of the next actor.
        tied = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "bactrian", "generate", *arguments]
        while (code := subprocess.call(tied)) < 0 or code == LEASE_LOST:
            pass  # A negative code is a signal that killed the process alone, for example when memory was short.
        return code


def main(count: int, arguments: Sequence[str]) -> int:
    """Start the workers, wait for all, and return the worst exit code."""
    import ray

    ray.init()
    # Half a core each, since they wait for replies most of the time. A lost actor is started again, on another node if
    # its own is gone, and begins its work anew.
    actor = ray.remote(num_cpus=0.5, max_restarts=-1, max_task_retries=-1)(Worker)
    # No handles are kept, so an actor leaves when its work is done, and makes room for one that waits for a core.
    codes = ray.get([actor.remote().generate.remote(arguments) for _ in range(count)])
    print("Exit codes:", *codes)
    return next((code for code in codes if code not in ENDED), max(codes))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
