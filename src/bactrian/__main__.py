"""``python -m bactrian`` is the command ``bactrian``."""

from bactrian.cli.main import main

if __name__ == "__main__":
    main()
