"""Small and odd file systems for tests, where mounting one is permitted."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Generator[Path]:
    """Mount a file system in memory at ``folder``, with ``options`` such as ``size=2m``; skip the test if that is not
    permitted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(folder: Path, size: str) -> None:
    """Give a file system that :func:`mounted` made another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)
