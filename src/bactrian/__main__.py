"""The command ``bactrian``, and ``python -m bactrian``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. An interrupt while it is loading ends it without a message."""
    if sys.platform == "win32":
        sys.exit("bactrian: Windows is not supported, only Linux and macOS are. Next: run it under WSL.")
    try:
        from bactrian.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
