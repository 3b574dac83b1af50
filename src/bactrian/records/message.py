"""One message as a model sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.records.text import Text


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a chat with a model. ``role`` is the wire format's word, not the part an agent plays."""

    role: Literal["system", "user", "assistant"]
    text: Text
