"""Code for interpreters that cannot import this package: compiled once for sandboxes, as an archive for containers."""

from __future__ import annotations

import fcntl
import functools
import io
import marshal
import os
import struct
import tomllib
import zipfile
from importlib.resources import files

# Modules of ``inside/``, each after those that it imports. They are compiled once and handed over in
# memory: a sandboxed interpreter needs no file of this package, and so no right to read one.
_INSIDE = ("values", "lockdown", "worker")
# Modules of the process around a sandbox, likewise.
_AROUND = ("inside.values", "measures", "scratch", "supervisor")
_BOOT = (
    "import os,sys,marshal;from types import ModuleType\n"
    "b=marshal.loads(os.pread({handle},1<<24,0));os.close({handle})\n"
    "for n,c in b:\n m=sys.modules[n]=ModuleType(n);exec(c,m.__dict__)\n"
    "m.main()"
)
# Options of an interpreter that reads no file, variable or folder but its own library.
ISOLATED = ("-I", "-S", "-B", "-X", "utf8")
# F_SEAL_SEAL, SHRINK, GROW and WRITE: a program that gets hold of the memory cannot change it.
_SEALS = 1 | 2 | 4 | 8
_ADD_SEALS = 1033


def build_command(interpreter: str, handle: int) -> list[str]:
    """Return the command that runs the modules behind a descriptor."""
    return [interpreter, *ISOLATED, "-c", _BOOT.format(handle=handle)]


@functools.cache
def load_worker() -> int:
    """Return a descriptor of the code of the process inside, which cannot be changed any more."""
    return _pack("worker", [f"bactrian.sandbox.inside.{name}" for name in _INSIDE])


@functools.cache
def load_supervisor() -> int:
    """Return a descriptor of the code of the process around a sandbox, which cannot be changed any more."""
    return _pack("supervisor", [f"bactrian.sandbox.{name}" for name in _AROUND])


@functools.cache
def load_calls() -> dict[str, dict[str, int]]:
    """Return the numbers of system calls on this machine by name, table by table; nothing for an unknown machine."""
    column = {"x86_64": 1, "aarch64": 2}.get(os.uname().machine)
    tables = tomllib.loads(files("bactrian.sandbox").joinpath("syscalls.toml").read_text("utf-8"))
    rows = {table: [entry.split(":") for entry in text.split()] for table, text in tables.items()}
    return {
        table: {row[0]: int(row[column]) for row in entries if row[column] != "-"}
        for table, entries in rows.items()
        if column
    }


def _pack(name: str, modules: list[str]) -> int:
    code = [(module, compile(_read_source(module), module, "exec", dont_inherit=True)) for module in modules]
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(handle, marshal.dumps(code))
    fcntl.fcntl(handle, _ADD_SEALS, _SEALS)
    return handle


def _read_source(module: str) -> str:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text("utf-8")


# Files for containers that have Python but not this package.
_FAR_SIDE = (
    "_version.py", "errors.py", "sandbox/orders.py", "sandbox/payload.py", "sandbox/measures.py",
    "sandbox/scratch.py", "sandbox/supervisor.py", "sandbox/syscalls.toml", "sandbox/tiers.py",
    *(f"sandbox/inside/{name}.py" for name in _INSIDE),
)  # fmt: skip
_PACKAGES = ("", "sandbox/", "sandbox/inside/")
# The program for ``python -c``: it takes the bundle from standard input.
_BOOT_BUNDLE = (
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
    "from bactrian.sandbox.orders import provide_sandbox\n"
    "from bactrian.sandbox import tiers\n"
    "provide_sandbox((tiers.{tier}(),))"
)


def write_boot(tier: str) -> str:
    """Return the program of a container whose sandbox is of the class ``tier``."""
    return _BOOT_BUNDLE.replace("{tier}", tier)


@functools.cache
def build_bundle() -> bytes:
    """Return a ZIP file of the modules, after its length in four bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for package in _PACKAGES:
            archive.writestr(f"bactrian/{package}__init__.py", "")
        for path in _FAR_SIDE:
            archive.writestr(f"bactrian/{path}", files("bactrian").joinpath(path).read_bytes())
    data = content.getvalue()
    return struct.pack(">I", len(data)) + data
