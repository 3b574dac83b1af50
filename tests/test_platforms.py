"""What is said where Bactrian does not run."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import metadata


def test_on_windows_one_line_says_what_is_supported() -> None:
    program = "import sys; import bactrian.__main__ as start; sys.platform = 'win32'; start.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "bactrian: Windows is not supported, only Linux and macOS are. Next: run it under WSL.\n"
    )


def test_the_package_names_the_systems_it_supports() -> None:
    systems = [line for line in metadata("bactrian").get_all("Classifier", []) if "Operating System" in line]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
