"""Commands of tests share processes, but nothing that one of them left behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.helpers.command import LINES, Command, clean_environment

TOOL = '''
def count(text: str) -> int:
    """Count characters.

    Args:
        text: what to count
    """
    return len(text)
'''


def run(folder: Path, *arguments: str, own_process: bool = False, **variables: str) -> tuple[int, str]:
    """The process and the output of a command."""
    command = Command(arguments, folder, clean_environment(**variables), own_process=own_process)
    out, _ = command.finish()
    return command.pid, out.decode()


def test_commands_with_one_environment_share_a_process_and_see_their_own_folder(tmp_path: Path) -> None:
    first, _ = run(tmp_path, "recipes", SHARED="1")
    second, out = run(tmp_path, "--version", SHARED="1", BACTRIAN_DEBUG="1")
    third, _ = run(tmp_path / "..", "recipes", "show", "none", SHARED="1")
    assert first == second == third
    assert out.startswith("0.")


def test_another_environment_or_a_wish_makes_another_process(tmp_path: Path) -> None:
    first, _ = run(tmp_path, "--version", SHARED="2")
    other, _ = run(tmp_path, "--version", SHARED="3")
    own, _ = run(tmp_path, "--version", SHARED="2", own_process=True)
    again, _ = run(tmp_path, "--version", SHARED="2")
    assert len({first, other, own}) == 3
    assert again == first


def test_no_command_follows_in_a_process_that_has_imported_code_of_a_test(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL)
    (tmp_path / "lines.json").write_text(json.dumps(LINES))
    usual = ("play", "Tea", "--model", "scripted:lines.json", "--no-keep")
    first, _ = run(tmp_path, *usual, SHARED="4")
    second, _ = run(tmp_path, *usual, "--tools", "tool.py", SHARED="4")
    third, _ = run(tmp_path, *usual, SHARED="4")
    assert first == second != third


def test_a_command_that_is_killed_at_once_hinders_no_other(tmp_path: Path) -> None:
    for _ in range(5):
        command = Command(["recipes"], tmp_path, clean_environment(SHARED="5"))
        command.kill()
        command.finish()
        assert command.wait() in (0, -signal.SIGKILL)
    assert run(tmp_path, "--version", SHARED="5")[1].startswith("0.")
