"""Ctrl-C while a command is loading ends it quietly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command import clean_environment

# The interrupt comes while a module is imported that the start of the command needs.
INTERRUPTS = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["bactrian", "analyze", "tea.db"]
from bactrian.__main__ import main
main()
"""


@pytest.mark.system
@pytest.mark.parametrize("module", ["bactrian.cli.main", "click", "dotenv", "bactrian.cli.commands.analyze"])
def test_an_interrupt_while_a_command_is_loading_ends_it_quietly(tmp_path: Path, module: str) -> None:
    (tmp_path / ".env").write_text("BACTRIAN_SEED=7\n")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTS.format(module=module)],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
