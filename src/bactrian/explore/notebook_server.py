"""The explorer beside a notebook: ``python -m bactrian.explore.notebook_server RUN [--edit]``.

It prints its address, may stand in a frame of a page of this computer, and ends when its standard input does: with the
kernel, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from bactrian.errors import BactrianError
from bactrian.explore.server import ServerOptions, run_server


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve until the standard input ends."""
    run, *more = sys.argv[1:]
    options = ServerOptions(port=_find_port(), edit="--edit" in more, framed=True)
    threading.Thread(target=_end_with_input, daemon=True).start()

    def tell() -> None:
        sys.stdout.write(f"{options.write_address(options.token)}\n")
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(run_server([Path(run)], options, tell))
        except BactrianError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
