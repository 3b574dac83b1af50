"""Read by Python at its start: the processes of the tests are guarded too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("network_guard", Path(__file__).parents[1] / "network.py")
assert _SPEC
assert _SPEC.loader
_GUARD = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_GUARD)
_GUARD.guard_network()
