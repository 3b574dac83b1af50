"""docs/export.md has every format. tests/docs/test_pages.py runs its commands."""

from __future__ import annotations

import re
from pathlib import Path

from bactrian.export.formats import FORMATS

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text("utf-8")


def test_the_page_has_every_format() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)`", PAGE, re.MULTILINE)) == set(FORMATS)
