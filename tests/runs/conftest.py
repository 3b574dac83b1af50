"""The folder of a small recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.generation import RECIPE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path
