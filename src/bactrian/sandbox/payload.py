"""Code for interpreters that cannot import this package: compiled once, and handed over in memory.

A sandboxed interpreter needs no file of this package, and so no right to read one.
"""

from __future__ import annotations

import fcntl
import functools
import marshal
import os
from dataclasses import dataclass
from importlib.resources import files

_INSIDE = ("values", "syscalls", "landlock", "seccomp", "lockdown", "worker")
"""Modules of ``inside/``, each after those that it imports."""
_BOOT = (
    "import os,sys,marshal;from types import ModuleType\n"
    "b=marshal.loads(os.pread({handle},1<<24,0));os.close({handle})\n"
    "for n,c in b:\n m=sys.modules[n]=ModuleType(n);exec(c,m.__dict__)\n"
    "m.main()"
)
_SEALS = 1 | 2 | 4 | 8
"""F_SEAL_SEAL, SHRINK, GROW and WRITE: a program that gets hold of the memory cannot change it."""
_ADD_SEALS = 1033


@dataclass(frozen=True, slots=True)
class Payload:
    """Modules in memory that cannot be changed any more."""

    handle: int
    """Descriptor to pass to the interpreter."""

    def build_argument(self) -> str:
        """Return the program for ``python -c``."""
        return _BOOT.format(handle=self.handle)


@functools.cache
def load_worker() -> Payload:
    """Return the code of the process inside."""
    return _pack("worker", [f"bactrian.sandbox.inside.{name}" for name in _INSIDE])


@functools.cache
def load_supervisor() -> Payload:
    """Return the code of the process around a sandbox."""
    return _pack("supervisor", ["bactrian.sandbox.inside.syscalls", "bactrian.sandbox.supervisor"])


def _pack(name: str, modules: list[str]) -> Payload:
    code = [(module, compile(_read_source(module), module, "exec", dont_inherit=True)) for module in modules]
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(handle, marshal.dumps(code))
    fcntl.fcntl(handle, _ADD_SEALS, _SEALS)
    return Payload(handle)


def _read_source(module: str) -> str:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text("utf-8")
