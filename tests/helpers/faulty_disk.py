"""A disk whose n-th call fails, for commands that run for real: :func:`run_with_faults` runs one once for each n.

As a program it is started with ``faulty_disk.c`` loaded before the C library. It imports the command line once and
forks a command for each n, so that a hundred failures take seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bactrian.cli.main import main
from tests.helpers.command import clean_environment
from tests.helpers.command_server import import_everything

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class FaultyRun:
    """A command one of whose calls failed."""

    folder: Path
    """Where it ran; it is left as the command left it."""
    code: int
    err: str


def build_library(folder: Path) -> Path:
    """Compile the library; skip the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    library = folder / "faulty_disk.so"
    source = Path(__file__).with_name("faulty_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def run_with_faults(
    folder: Path,
    command: Sequence[str],
    *,
    kinds: str,
    error: int,
    forever: bool = False,
    step: int = 1,
) -> list[FaultyRun]:
    """Run ``command`` in a copy of ``folder`` for each n, until it makes fewer than n calls."""
    base = Path(tempfile.mkdtemp(dir=folder.parent))
    library = build_library(base)
    order = {
        "folder": str(folder),
        "base": str(base),
        "command": list(command),
        "kinds": kinds,
        "error": error,
        "forever": forever,
        "step": step,
        "library": str(library),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.faulty_disk", json.dumps(order)],
        cwd=_ROOT,
        env=clean_environment(LD_PRELOAD=str(library)),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [FaultyRun(Path(one["folder"]), one["code"], one["err"]) for one in found]


def _serve(order: dict[str, object]) -> None:
    import_everything()
    base, folder, step = Path(str(order["base"])), Path(str(order["folder"])), int(str(order["step"]))
    n = 1
    while True:
        copy = base / f"n{n}"
        shutil.copytree(folder, copy)
        child = os.fork()
        if child == 0:
            _run(order, copy, n)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        fired = (base / f"n{n}.fired").read_text() if (base / f"n{n}.fired").exists() else "1"
        if fired == "0":
            return
        err = (base / f"n{n}.err").read_text(errors="replace")
        sys.stdout.write(json.dumps({"folder": str(copy), "code": code, "err": err}) + "\n")
        n += step


def _run(order: dict[str, object], copy: Path, n: int) -> None:
    """Run the command in this process, which is a fork, and end it."""
    library = ctypes.CDLL(str(order["library"]))
    err = os.open(copy.with_suffix(".err"), os.O_WRONLY | os.O_CREAT)
    os.dup2(err, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(copy)
    sys.argv = ["bactrian", *(str(part) for part in order["command"])]  # type: ignore[attr-defined]
    library.fail_call(
        f"{copy}/".encode(), str(order["kinds"]).encode(), n, order["error"], int(bool(order["forever"]))
    )
    code = 99  # an error that nothing turned into a message
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception:  # noqa: BLE001  reported by the exit code
        traceback.print_exc()
    sys.stderr.flush()
    fired = library.count_fired()
    library.fail_call(b"/", b"", 1, 0, 0)
    copy.with_suffix(".fired").write_text(str(fired))
    os._exit(code)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
