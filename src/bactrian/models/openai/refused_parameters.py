"""Which parameter an endpoint refuses, from the words of its error."""

from __future__ import annotations

import re
from collections.abc import Collection

from bactrian.errors import Refused

_UNSUPPORTED = re.compile(
    r"unsupported|not (be )?(support|permitted|allow|accept|available)|does not (support|accept|allow|take)"
    r"|unrecognized|unrecognised|unknown|unexpected|extra|forbidden|deprecated|instead"
    r"|cannot both|no endpoints found",
    re.IGNORECASE,
)
_THINKING = re.compile(r"(not support|unsupported) (thinking|reasoning)\b", re.IGNORECASE)
"""Wordings that mean ``reasoning_effort`` and do not name it, such as Ollama's."""


def find_refused_parameter(fault: Refused, sent: Collection[str]) -> str | None:
    """Return the sent parameter that the endpoint does not support; None if it names none.

    Of two that it does not accept together, the later one. A value out of range does not count, because the user has
    to know about it.
    """
    words = f"{fault.what} {fault.sample.decode(errors='replace')}"
    if not _UNSUPPORTED.search(words):
        return None
    named = [name for name in sent if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words)]
    if not named and _THINKING.search(words):
        named = [name for name in sent if name == "reasoning_effort"]
    return named[-1 if "cannot both" in words else 0] if named else None
