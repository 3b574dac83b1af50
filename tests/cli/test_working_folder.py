"""Nothing that lies in the working folder is run as a part of the program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.runs import make_run, session

NAMES = ("multiprocessing", "xllamacpp", "polars", "json", "asyncio", "pip")
COMMAND = Path(sys.executable).parent / "bactrian"
READ_BY_TWO = """
import asyncio
from pathlib import Path
from bactrian.analyze.aggregate import measure
from bactrian.store import open_store

async def read():
    async with open_store(Path("tea.db"), read_only=True) as store:
        assert len((await measure(store, processes=2)).facts) == 251

if __name__ == "__main__":
    asyncio.run(read())
"""


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A folder whose modules bear well-known names and leave a mark when they are imported."""
    (tmp_path / "bactrian").mkdir()
    for name, file in [(name, f"{name}.py") for name in NAMES] + [("bactrian", "bactrian/__init__.py")]:
        mark = tmp_path / f"{name}.ran"
        (tmp_path / file).write_text(f"import os\nos.close(os.open({str(mark)!r}, os.O_CREAT))\n")
    return tmp_path


def run_there(folder: Path, *command: Path | str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.glob("*.ran")) == []


@pytest.mark.slow
def test_the_processes_of_an_analysis_import_nothing_from_there(
    trapped: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    many = [session(f"001_{number:03d}_001", rounds=1) for number in range(1, 252)]
    asyncio.run(make_run(trapped / "tea.db", many))
    # A script, because a run that a command would read with processes is a large one.
    script = tmp_path_factory.mktemp("elsewhere") / "read.py"
    script.write_text(READ_BY_TWO)
    run_there(trapped, sys.executable, script)


@pytest.mark.slow
def test_the_process_of_the_built_in_model_imports_nothing_from_there(trapped: Path) -> None:
    run_there(trapped, COMMAND, "play", "Choose a tea", "--max-messages", "1", "--no-specify")
