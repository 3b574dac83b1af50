"""The code of the far side, for containers that have Python but not this package."""

from __future__ import annotations

import functools
import io
import struct
import zipfile
from importlib.resources import files

_MODULES = (
    "_version",
    "errors",
    *(
        f"sandbox.{name}"
        for name in ("artefacts", "limits", "orders", "outcome", "payload", "process", "supervisor", "tiers")
    ),
    *(
        f"sandbox.inside.{name}"
        for name in ("landlock", "lockdown", "seccomp", "syscalls", "values", "worker")
    ),
    *(f"sandbox.remote.{name}" for name in ("protocol", "server")),
)
_PACKAGES = ("", "sandbox/", "sandbox/inside/", "sandbox/remote/")

BOOT = (
    "import os,sys,struct\n"
    "if sys.version_info<(3,11):sys.exit('The image needs Python 3.11 or newer, not %d.%d.'%sys.version_info[:2])\n"
    "def read(n):\n"
    " data=b''\n"
    " while len(data)<n:\n"
    "  part=os.read(0,n-len(data))\n"
    "  if not part:sys.exit(1)\n"
    "  data+=part\n"
    " return data\n"
    "handle=os.memfd_create('bundle')\n"
    "os.write(handle,read(struct.unpack('>I',read(4))[0]))\n"
    "sys.path.insert(0,'/proc/self/fd/%d'%handle)\n"
    "from bactrian.sandbox.remote.server import provide_in_container\n"
    "provide_in_container()"
)
"""The program for ``python -c``: it takes the bundle from standard input."""


@functools.cache
def build_bundle() -> bytes:
    """Return a ZIP file of the modules, after its length in four bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for package in _PACKAGES:
            archive.writestr(f"bactrian/{package}__init__.py", "")
        for module in _MODULES:
            path = f"{module.replace('.', '/')}.py"
            archive.writestr(f"bactrian/{path}", files("bactrian").joinpath(path).read_bytes())
    data = content.getvalue()
    return struct.pack(">I", len(data)) + data
