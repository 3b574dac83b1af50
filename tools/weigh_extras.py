"""Measures what each optional part of the program weighs, installed with bytecode, as a table in Markdown.

``python -m tools.weigh_extras`` installs this source tree into temporary folders, with uv, which has to be on the path.
``--parts`` lists the ten largest packages of each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# For the development of the program itself, and what brings PyTorch: several gigabytes.
LEFT_OUT = frozenset(("dev", "docs", "train", "trl"))


def list_extras() -> list[str]:
    """Return the names of the extras, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [name for name in project["project"]["optional-dependencies"] if name not in LEFT_OUT]


def install(folder: Path, extra: str) -> None:
    """Install the program with one of its extras, none if empty, into ``folder``."""
    project = f"{ROOT}[{extra}]" if extra else str(ROOT)
    options = ["--quiet", "--link-mode", "copy", "--compile-bytecode", "--python", sys.executable]
    options += ["--target", str(folder), "-c", str(ROOT / "constraints.txt")]
    subprocess.run(["uv", "pip", "install", *options, project], check=True)


def weigh(folder: Path) -> dict[str, int]:
    """Return the bytes of each file or folder in ``folder``, as they lie on the disk."""
    return {
        path.name: sum(
            file.stat().st_blocks * 512 for file in (path, *path.rglob("*")) if not file.is_symlink()
        )
        for path in folder.iterdir()
    }


def write_size(size: int) -> str:
    """Return a number of bytes in megabytes."""
    return f"{size / 1e6:,.0f} MB"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("extras", nargs="*", default=["", *list_extras()])
    options = parser.parse_args(arguments)
    core = 0
    print("| extra | installed | more than without it |\n|---|---|---|")
    for extra in options.extras:
        with tempfile.TemporaryDirectory() as name:
            install(Path(name), extra)
            parts = weigh(Path(name))
        whole = sum(parts.values())
        core = core or whole
        name = f"`{extra}`" if extra else "none"
        print(f"| {name} | {write_size(whole)} | {write_size(whole - core)} |", flush=True)
        for part in sorted(parts, key=parts.__getitem__, reverse=True)[: 10 * options.parts]:
            print(f"  {part}: {write_size(parts[part])}", flush=True)


if __name__ == "__main__":
    main()
