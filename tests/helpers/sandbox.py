"""Tests that run programs in a sandbox are skipped where there is none."""

from __future__ import annotations

import sys

import pytest

HAS_SANDBOX = sys.platform == "linux"
needs_sandbox = pytest.mark.skipif(not HAS_SANDBOX, reason="sandboxes need Linux")
