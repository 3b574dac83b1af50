"""Code for interpreters that cannot import this package: compiled once for sandboxes, as an archive for containers."""

from __future__ import annotations

import fcntl
import functools
import io
import marshal
import os
import struct
import zipfile
from importlib.resources import files

_INSIDE = ("values", "syscalls", "lockdown", "worker")
"""Modules of ``inside/``, each after those that it imports. They are compiled once and handed over in memory: a
sandboxed interpreter needs no file of this package, and so no right to read one."""
_BOOT = (
    "import os,sys,marshal;from types import ModuleType\n"
    "b=marshal.loads(os.pread({handle},1<<24,0));os.close({handle})\n"
    "for n,c in b:\n m=sys.modules[n]=ModuleType(n);exec(c,m.__dict__)\n"
    "m.main()"
)
_SEALS = 1 | 2 | 4 | 8
"""F_SEAL_SEAL, SHRINK, GROW and WRITE: a program that gets hold of the memory cannot change it."""
_ADD_SEALS = 1033


def build_argument(handle: int) -> str:
    """Return the program for ``python -c`` that runs the modules behind a descriptor."""
    return _BOOT.format(handle=handle)


@functools.cache
def load_worker() -> int:
    """Return a descriptor of the code of the process inside, which cannot be changed any more."""
    return _pack("worker", [f"bactrian.sandbox.inside.{name}" for name in _INSIDE])


@functools.cache
def load_supervisor() -> int:
    """Return a descriptor of the code of the process around a sandbox, which cannot be changed any more."""
    return _pack("supervisor", ["bactrian.sandbox.inside.syscalls", "bactrian.sandbox.supervisor"])


def _pack(name: str, modules: list[str]) -> int:
    code = [(module, compile(_read_source(module), module, "exec", dont_inherit=True)) for module in modules]
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(handle, marshal.dumps(code))
    fcntl.fcntl(handle, _ADD_SEALS, _SEALS)
    return handle


def _read_source(module: str) -> str:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text("utf-8")


_FAR_SIDE = (
    "_version", "errors", "sandbox.artefacts", "sandbox.far_side", "sandbox.orders", "sandbox.outcome",
    "sandbox.payload", "sandbox.sandbox_process", "sandbox.supervisor", "sandbox.tiers",
    *(f"sandbox.inside.{name}" for name in _INSIDE),
)  # fmt: skip
"""Modules for containers that have Python but not this package."""
_PACKAGES = ("", "sandbox/", "sandbox/inside/")
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
    "from bactrian.sandbox.far_side import provide_in_container\n"
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
        for module in _FAR_SIDE:
            path = f"{module.replace('.', '/')}.py"
            archive.writestr(f"bactrian/{path}", files("bactrian").joinpath(path).read_bytes())
    data = content.getvalue()
    return struct.pack(">I", len(data)) + data
