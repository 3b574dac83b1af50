"""The process that builds and follows the side file of a large run: pages stay fast while it works.

``python -m bactrian.explore.index.worker RUN SIDE NAME [SOURCE]``; conversations in ``SOURCE`` are imported into the
run. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from bactrian.explore.index.follow import follow_run


def main() -> None:
    """Run until the parent ends."""
    os.nice(10)
    parent = os.getppid()
    run, side, name, *source = sys.argv[1:]
    try:
        asyncio.run(
            follow_run(Path(run), Path(side), name, lambda: os.getppid() == parent, *map(Path, source))
        )
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
