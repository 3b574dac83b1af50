"""What an import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "asyncio", "click", "dotenv", "jinja2", "pydantic", "rich", "xllamacpp")


@pytest.mark.parametrize(
    "statement",
    [
        "import bactrian",
        "import sys; sys.argv = ['bactrian', '--help']; from bactrian.cli.main import main; main()",
    ],
    ids=["the package", "the command's help"],
)
def test_nothing_heavy_is_imported_by(statement: str) -> None:
    check = f"""
import atexit, sys
atexit.register(lambda: print("heavy:", [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr))
{statement}
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert "heavy: []" in done.stderr


@pytest.mark.slow
def test_a_play_imports_nothing_of_data_sets_sandboxes_downloads_and_stores() -> None:
    """They took a third of the time of a short one."""
    check = "import bactrian.cli.commands.play, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    folders = ("bactrian.generate", "bactrian.analyze", "bactrian.sandbox", "bactrian.models.openai")
    others = ("rich.markdown", "rich.progress", "filelock")
    assert {name for name in done.stdout.split() if name.startswith((*folders, *others))} == set()


@pytest.mark.slow
def test_the_first_page_of_the_explorer_waits_for_no_detector_model_or_forecast() -> None:
    """They took half of the time."""
    check = "import bactrian.cli.commands.explore, bactrian.explore.server, bactrian.explore.list_pages, sys"
    done = subprocess.run(
        [sys.executable, "-c", f"{check}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    late = ("bactrian.analyze", "bactrian.detect", "bactrian.models.open", "bactrian.runs", "markdown_it")
    assert {name for name in done.stdout.split() if name.startswith(late)} == set()


def test_importing_the_session_engine_starts_no_thread() -> None:
    check = "import threading, bactrian.roleplay.loop, bactrian.store; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
