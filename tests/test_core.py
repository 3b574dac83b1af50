"""The core does not know the verbs: it works in a copy of the package from which they are deleted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

import bactrian

SOURCE = Path(bactrian.__file__).parent
ROOT = Path(__file__).parents[1]
VERBS = ("analyze", "evaluate", "explore", "ingest", "train")
FOLDERS = ("records", "protocol", "roleplay", "models", "store", "runs")
"""The folders of the core's tests."""


def copy_without(verbs: Collection[str], folder: Path) -> Path:
    """Make a copy of the package, of links, without these folders; gives the folder in which it lies."""
    (folder / "bactrian").mkdir(parents=True)
    for path in SOURCE.iterdir():
        if path.name not in verbs and path.name != "__pycache__":
            (folder / "bactrian" / path.name).symlink_to(path)
    return folder


def run_python(copy: Path, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (copy, ROOT)))}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_without_any_verb_the_core_is_imported_and_plays_a_session_and_a_run(tmp_path: Path) -> None:
    copy = copy_without(VERBS, tmp_path / "copy")
    done = run_python(copy, "-m", "tests.helpers.core_alone", tmp_path, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout == "5 task_done [4, 4]\n"


def find_tests_of_core() -> Sequence[str]:
    """The files of the core's tests that use nothing above the core."""
    above = re.compile(
        rf"bactrian\.(?:api|cli|{'|'.join(VERBS)})\b|from bactrian import|import bactrian\b"
        r"|helpers\.(?:command|generation)\b"
    )
    return [
        str(path.relative_to(ROOT))
        for name in FOLDERS
        for path in sorted((ROOT / "tests" / name).rglob("test_*.py"))
        if not above.search(path.read_text("utf-8"))
    ]


@pytest.mark.soak
@pytest.mark.parametrize("verbs", [*((verb,) for verb in VERBS), VERBS], ids=" ".join)
def test_the_tests_of_the_core_pass_without(verbs: Collection[str], tmp_path: Path) -> None:
    copy = copy_without(verbs, tmp_path / "copy")
    files = find_tests_of_core()
    assert len(files) > 20
    done = run_python(copy, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *files, cwd=ROOT)
    assert done.returncode == 0, done.stdout
