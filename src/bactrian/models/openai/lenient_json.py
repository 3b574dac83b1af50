"""A lenient JSON decoder for what servers send."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from pydantic_core import from_json


def decode_json(body: bytes) -> tuple[Any, bool]:
    """Decode ``body``; return the value, and True if bytes that are not UTF-8 were replaced.

    Raises:
        ValueError: ``body`` is not JSON.
    """
    try:
        return from_json(body), False
    except ValueError:
        pass
    # The fast decoder rejects byte-order marks, lone surrogates and bare newlines in strings; servers send all three.
    try:
        text, lossy = body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        text, lossy = body.decode("utf-8-sig", "replace"), True
    try:
        return json.loads(text, strict=False), lossy
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True if ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return True if ``value`` is a JSON array."""
    return isinstance(value, list)
