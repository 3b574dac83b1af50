"""A command that runs in the process of its test leaves it as it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.helpers.command import bactrian

TOOL = '''
def count(text: str) -> int:
    """Count characters.

    Args:
        text: what to count
    """
    return len(text)
'''


def test_a_command_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BACTRIAN_SEED=7\n")
    (tmp_path / "tool_of_a_test.py").write_text(TOOL)
    before = (dict(os.environ), Path.cwd(), list(sys.path), sys.argv, sys.stdout, len(os.listdir("/dev/fd")))
    done = bactrian(
        "--debug", "play", "Tea", "--tools", "tool_of_a_test.py", "--model", "none:x", cwd=tmp_path
    )
    assert done.returncode == 2
    after = (dict(os.environ), Path.cwd(), list(sys.path), sys.argv, sys.stdout, len(os.listdir("/dev/fd")))
    assert after == before
    assert "tool_of_a_test" not in sys.modules


def test_a_command_reads_its_input_and_writes_both_outputs(tmp_path: Path) -> None:
    done = bactrian("--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0.")
    done = bactrian("nonsense", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nonsense" in done.stderr
