"""A disk whose n-th call fails, for commands that run for real: :func:`run_with_faults` runs one once for each n.

As a program it is started with ``faulty_disk.c`` loaded before the C library. It imports the command line once for all
tests of this process, and forks a command for each n, so that a hundred failures take seconds.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bactrian.cli.main import main
from tests.helpers.command import clean_environment
from tests.helpers.command_server import import_everything, read_once

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class FaultyRun:
    """A command one of whose calls failed."""

    folder: Path
    """Where it ran; it is left as the command left it."""
    code: int
    err: str


def _build_library(folder: Path) -> Path:
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
    server, library = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    order = {
        "folder": str(folder),
        "base": tempfile.mkdtemp(dir=folder.parent),
        "command": list(command),
        "environment": clean_environment(),
        "kinds": kinds,
        "error": error,
        "forever": forever,
        "step": step,
        "library": str(library),
    }
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    found: list[FaultyRun] = []
    while (line := server.stdout.readline()) != "\n":
        assert line, "the process that forks commands has ended"
        one = json.loads(line)
        found.append(FaultyRun(Path(one["folder"]), one["code"], one["err"]))
    return found


@cache
def _start_server() -> tuple[subprocess.Popen[str], Path]:
    """Start the process that forks commands; it ends with this one. Gives the library, too."""
    folder = Path(tempfile.mkdtemp())
    library = _build_library(folder)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.faulty_disk"],
        cwd=_ROOT,
        env=clean_environment(LD_PRELOAD=str(library)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def stop() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(stop)
    return server, library


def _serve() -> None:
    """Carry out an order for each line; what it gave is a line each, and an empty one."""
    import_everything()
    read_once()
    gc.freeze()
    for line in sys.stdin:
        for found in _fail_in_turn(json.loads(line)):
            sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.write("\n")
        sys.stdout.flush()


def _fail_in_turn(order: dict[str, Any]) -> Generator[dict[str, object]]:
    base = Path(order["base"])
    for n in count(1, order["step"]):
        copy = base / f"n{n}"
        shutil.copytree(order["folder"], copy)
        child = os.fork()
        if child == 0:
            _run(order, copy, n)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        fired = (base / f"n{n}.fired").read_text() if (base / f"n{n}.fired").exists() else "1"
        if fired == "0":
            return
        err = (base / f"n{n}.err").read_text(errors="replace")
        yield {"folder": str(copy), "code": code, "err": err}


def _run(order: dict[str, Any], copy: Path, n: int) -> NoReturn:
    """Run the command in this process, which is a fork, and end it."""
    library = ctypes.CDLL(str(order["library"]))
    err = os.open(copy.with_suffix(".err"), os.O_WRONLY | os.O_CREAT)
    os.dup2(err, 2)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 0)
    os.chdir(copy)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["bactrian", *order["command"]]
    library.fail_call(f"{copy}/".encode(), order["kinds"].encode(), n, order["error"], int(order["forever"]))
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
    _serve()
