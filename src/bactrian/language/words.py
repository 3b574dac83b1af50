"""Quotations in a turn, for the detectors."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|「[^」\n]{1,400}」")


def strip_quotations(text: str) -> str:
    """Replace text in quotation marks with spaces, so that positions stay the same."""
    if '"' not in text and text.isascii():
        return text
    return _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
