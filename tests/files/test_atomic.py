"""A replacement that is killed at any step is whole after the next start, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically

WRITE = """
import json, os, signal, sys
from pathlib import Path
from bactrian.files.atomic import write_atomically
from bactrian.files.atomic import list_files

target, text, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def audit(event, arguments):
    # Every change of a name, from the first rename on: the kill comes before the step is done.
    global left
    if event in ("os.rename", "os.rmdir") or (event == "os.remove" and started):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

started = True
sys.addaudithook(audit)
with write_atomically(target, overwrite=True, listed=True) as stage:
    data = stage / target.name
    if text.startswith("folder"):
        data.mkdir()
        data = data / "data"
    data.write_text(text)
    beside = text.startswith("file") or "beside" in text
    manifest = stage / (target.name + ".manifest.json") if beside else stage / target.name / "manifest.json"
    manifest.write_text(json.dumps({"bactrian": "1", "files": list_files(stage), "text": text}))
"""


def write(target: Path, text: str, steps: int = 1000) -> int:
    """Write in a process of its own that is killed after ``steps`` changes; gives its exit code."""
    return subprocess.run(
        [sys.executable, "-c", WRITE, str(target), text, str(steps)], check=False, timeout=60
    ).returncode


def read(target: Path) -> list[str]:
    beside = target.with_name(f"{target.name}.manifest.json")
    manifest = beside if beside.exists() else target / "manifest.json"
    data = target / "data" if target.is_dir() else target
    texts = [data.read_text()] if data.exists() else []
    return [*texts, json.loads(manifest.read_text())["text"]] if manifest.exists() else texts


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["file", "folder", "folder beside"])
def test_a_replacement_killed_at_any_step_is_finished_or_undone_by_the_next_start(
    tmp_path: Path, kind: str
) -> None:
    killed, target = 0, tmp_path / "tea"
    for steps in range(20):
        target = tmp_path / str(steps) / "tea"
        target.parent.mkdir()
        assert write(target, f"{kind} old") == 0
        code = write(target, f"{kind} new", steps)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        if kind == "file":
            assert len(read(target)) == 2, "no moment without data or without a manifest"
        # Without leave to replace: what is there stays, and what was decided is finished.
        with pytest.raises(InputError, match="exists already"), write_atomically(target):
            pass
        assert read(target) in ([f"{kind} old"] * 2, [f"{kind} new"] * 2)
        assert not [
            path for path in target.parent.iterdir() if path.suffix in (".bactrian-part", ".bactrian-ready")
        ]
    assert killed >= 3
    assert read(target) == [f"{kind} new"] * 2


def test_a_leftover_of_another_target_is_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / ".coffee.abcd1234.bactrian-part", tmp_path / ".tea.my_notes.part"]
    for other in others:
        other.mkdir()
    with write_atomically(tmp_path / "tea") as stage:
        (stage / "tea").write_text("new")
    assert all(other.exists() for other in others)


def test_what_another_process_is_writing_is_no_leftover(tmp_path: Path) -> None:
    held = """
import sys
from pathlib import Path
from bactrian.files.atomic import write_atomically
with write_atomically(Path(sys.argv[1])) as stage:
    (stage / "tea").write_text("slow")
    print("open", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path / "tea")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with write_atomically(tmp_path / "tea", overwrite=True) as stage:
            (stage / "tea").write_text("fast")
        assert (tmp_path / "tea").read_text() == "fast"
        (kept,) = tmp_path.glob(".tea.*.bactrian-part")
        assert (kept / "tea").read_text() == "slow"
        other.stdin.write("\n")
        other.stdin.close()
        assert other.wait() != 0  # It may not replace what has come in between.
    assert (tmp_path / "tea").read_text() == "fast"
    assert [path.name for path in tmp_path.iterdir()] == ["tea"]


def test_a_link_is_never_written_through_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "thesis.txt")
    with (
        pytest.raises(InputError, match="not a regular file"),
        write_atomically(tmp_path / "out.jsonl", overwrite=True) as stage,
    ):
        (stage / "out.jsonl").write_text("theirs")
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "out.jsonl").is_symlink()
