"""Finds a quotation in the text that it is from."""

from __future__ import annotations

import re


def find_quotation(text: str, quote: str) -> tuple[int, int] | None:
    """Return begin and end of ``quote`` in ``text``, even if it was shortened or put on one line; None if not found."""
    said = quote.strip().removesuffix("…").rstrip()
    if not said:
        return None
    begin = text.find(said)
    if begin >= 0:
        return begin, begin + len(said)
    found = re.search(r"\s+".join(map(re.escape, said.split())), text)
    return None if found is None else found.span()
