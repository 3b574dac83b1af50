from __future__ import annotations

from pathlib import Path

from bactrian.records.finding import BEHAVIOURS

PAGE = (Path(__file__).parents[2] / "docs" / "behaviours.md").read_text("utf-8")


def test_the_page_defines_every_behaviour() -> None:
    for behaviour in BEHAVIOURS:
        assert f"\n| `{behaviour}` | " in PAGE
