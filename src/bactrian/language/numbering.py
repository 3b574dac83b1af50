"""Numbering of list items."""

from __future__ import annotations

import re
from collections.abc import Sequence

BOLD = r"(?:\*\*|__)?"
AFTER = rf"{BOLD}\s*(?P<item>.*)$"
NUMBERED = re.compile(
    rf"^(?:\#{{1,6}}\s+)?{BOLD}(?:(?:item|task|role|topic|subtopic|problem|question|n[or]\.?)\s+)?"
    rf"\#?[(\[\uff08]?(?P<value>\d{{1,6}})(?:st|nd|rd|th)?{BOLD}"
    rf"(?:\s*\\?(?:[.:\uff0e\uff1a。]\)?(?!\d)|[)\]\uff09、][.:]?)|\s*[-–—](?=\s)){AFTER}",
    re.IGNORECASE,
)


def strip_count(items: Sequence[str]) -> list[str]:
    """Remove the numbers from ``items`` if they count up from 1."""
    matches = [NUMBERED.match(item) for item in items]
    values = [int(match["value"]) for match in matches if match]
    if len(items) < 2 or values != list(range(1, len(items) + 1)):
        return list(items)
    return [match["item"] for match in matches if match]
