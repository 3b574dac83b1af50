"""What docs/faults.md promises has a test."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "faults.md").read_text()


def test_every_test_on_the_page_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 50
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (HERE / file).exists() or f"def {test}(" not in (HERE / file).read_text()
    ]
    assert missing == []


def test_every_row_names_a_test() -> None:
    rows = [
        line for line in PAGE.splitlines() if line.startswith("|") and not re.match(r"\|(---| fault )", line)
    ]
    assert [row for row in rows if "::" not in row.rsplit("|", 2)[1]] == []
