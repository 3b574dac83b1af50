"""Reads lists written as Markdown tables or as HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ROW = re.compile(r"^\s*\|(?P<cells>.*)\|\s*$")
_RULE = re.compile(r"^[\s:|-]*-[\s:|-]*$")
_CELL = re.compile(r"(?<!\\)\|")
_ITEM = re.compile(r"<li\b[^>]*>(?P<item>.*?)(?=</li>|<li\b|</[ou]l>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^>]*>", re.IGNORECASE)
_ORDINAL = re.compile(r"\D{0,3}\d+\W{0,2}")


def read_table_items(lines: Sequence[str]) -> list[str]:
    """Return the rows of the first table without its header and its column of numbers; empty without a table.

    The cells of a row are joined by colons: name, then descriptions.
    """
    rows: list[list[str]] = []
    has_head = False
    for line in lines:
        row = _ROW.match(line)
        if row is None:
            if rows:
                break
            continue
        if _RULE.match(line):
            has_head = len(rows) == 1
            rows = [] if has_head else rows
            continue
        rows.append([cell.strip().replace("\\|", "|") for cell in _CELL.split(row["cells"])])
    if len(rows) < 2 and not has_head:
        return []
    widest = max((len(row) for row in rows), default=0)
    whole = [row for row in rows if len(row) == widest]
    numbers = widest > 1 and all(_ORDINAL.fullmatch(row[0]) or not row[0] for row in whole)
    return [": ".join(filter(None, row[1:] if numbers else row)) for row in whole]


def read_html_items(text: str) -> list[str]:
    """Return the texts of all ``<li>`` elements."""
    return [" ".join(_TAG.sub("", match["item"]).split()) for match in _ITEM.finditer(text)]
