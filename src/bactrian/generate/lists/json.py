"""Reads lists written as JSON or as something close to it."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, cast

from bactrian.generate.lists.markers import has_numbers

_CUT_OFF = re.compile(r'(?:\{\s*"[^"]*"\s*:\s*)?\[\s*(?=")')
_COMMA = re.compile(r"\s*,?\s*")
_LAST_COMMA = re.compile(r",(?=\s*[\]}])")
_BARE = re.compile(r"^\[(?P<inside>[^\[\]{}\"]*,[^\[\]{}\"]*)\]$")
_NUMBERED_KEY = re.compile(r"[A-Za-z_ ]*\d+")
_AFTER = re.compile(r"[\s,;.]*(?:```|~~~|\n|\Z)")
_DEEPEST = 4
_LONGEST_LITERAL = 100_000


def read_json_items(text: str) -> list[str] | None:
    """Return the items of a JSON list: an array of texts, numbers or objects, an object with one, or JSON Lines.

    An array that was cut off yields its complete items. Python's quotes, a trailing comma and an array without quotes
    are read, too. None if ``text`` contains no such list.
    """
    starts = [position for position in (text.find("["), text.find("{")) if position >= 0]
    if not starts:
        return None
    before, written = text[: min(starts)], text[min(starts) :]
    introduced = before.rpartition("\n")[2].strip()
    if before.count("\n") > 2 or has_numbers(before) or (introduced and introduced[-1] not in ".!:"):
        return None  # brackets inside an item
    try:
        value, end = json.JSONDecoder().raw_decode(written)
    except RecursionError:
        return None
    except ValueError:
        return _whole_texts(written) or _nearly_json(written)
    if not _AFTER.match(written, end):
        return None  # [1] Actor
    if isinstance(value, dict) and len(objects := _by_line(written)) > 1:
        value = objects
    return _items(value) or None


def _items(value: Any, depth: int = 0) -> list[str]:
    """Return the items of a value: those of the only list in it, or its values if their keys are numbered."""
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) if (text := _text(item)) is not None]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return []
    table = cast("dict[str, Any]", value)
    inner: list[Any] = [each for each in table.values() if isinstance(each, (list, dict))]
    if len(inner) == 1:
        return _items(inner[0], depth + 1)
    texts = {key: each for key, each in table.items() if isinstance(each, str)}
    if len(texts) < 2 or len(texts) != len(table):
        return []
    if all(map(_NUMBERED_KEY.fullmatch, texts)):
        return list(texts.values())
    return [f"{key}: {text}" for key, text in texts.items()]


def _text(item: Any) -> str | None:
    """Return a text, a number as text, or the texts of an object joined by colons."""
    if isinstance(item, dict):
        texts = [each for each in cast("dict[str, Any]", item).values() if isinstance(each, str)]
        return ": ".join(texts) or None
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return str(item)
    return item if isinstance(item, str) else None


def _by_line(written: str) -> list[Any]:
    """Return the objects of JSON Lines."""
    found: list[Any] = []
    for line in written.splitlines():
        try:
            found.append(json.loads(line.strip().rstrip(",")))
        except (ValueError, RecursionError):
            break
    return found


def _nearly_json(written: str) -> list[str] | None:
    written = written.strip().strip("`~").strip()
    end = max(written.rfind("]"), written.rfind("}")) + 1
    written = _LAST_COMMA.sub("", written[:end])
    try:
        return _items(json.loads(written)) or None
    except (ValueError, RecursionError):
        pass
    if written[:1] in ("[", "{") and len(written) <= _LONGEST_LITERAL:
        try:
            return _items(ast.literal_eval(written)) or None
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    if bare := _BARE.match(written):
        items = [item.strip() for item in bare["inside"].split(",")]
        return items if all(items) else None
    return None


def _whole_texts(written: str) -> list[str] | None:
    """Return the complete texts of a JSON array that was cut off."""
    opened = _CUT_OFF.match(written)
    if opened is None:
        return None
    items: list[str] = []
    position = opened.end()
    while position < len(written):
        try:
            item, position = json.JSONDecoder().raw_decode(written, position)
        except ValueError:
            return items if written[position] == '"' else None
        if not isinstance(item, str):
            return None
        items.append(item)
        comma = _COMMA.match(written, position)
        position = comma.end() if comma else position
    return items
