"""The process that builds and follows the side file of a large run: pages stay fast while it works.

``python -m bactrian.explore.index.worker RUN SIDE [SOURCE]``; conversations in ``SOURCE`` are imported into the
run. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path


def main() -> None:
    """Run until the parent ends."""
    # Not at the top: the processes that search for behaviours import this module, too, and need less.
    from bactrian.explore.index.follow import follow_run

    os.nice(10)
    parent = os.getppid()
    run, side, *source = map(Path, sys.argv[1:])
    try:
        asyncio.run(follow_run(run, side, lambda: os.getppid() == parent, *source))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
