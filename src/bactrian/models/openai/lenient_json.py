"""JSON as servers send it, which is not always JSON."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from pydantic_core import from_json


def decode_json(body: bytes) -> tuple[Any, bool]:
    """Return the JSON value of ``body``, and whether bytes that are not UTF-8 had to be replaced.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return from_json(body), False
    except ValueError:
        pass
    # The quick decoder takes no byte-order mark, no half of a surrogate pair and no bare newline in a string;
    # servers send all three.
    try:
        text, lossy = body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        text, lossy = body.decode("utf-8-sig", "replace"), True
    try:
        return json.loads(text, strict=False), lossy
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether ``value`` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Tell whether ``value`` is a JSON array."""
    return isinstance(value, list)
