"""Text that is stored, sent or displayed: cleaned, encoded, escaped for terminals, Markdown, HTML and file names."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Self, Union, cast, get_args, get_origin, get_type_hints

from pydantic_core import to_json as encode_json

_NUL = "\0"
# A reply may contain sequences that change a terminal's title or write to its clipboard.
_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]?"
)
_BREAKS = re.compile("[\u2028\u2029]")
# Matches characters that steer a terminal or are not seen: controls except newline and tab, direction marks,
# zero-width characters except the joiners of scripts and emoji, surrogates, and tags.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean_text(text: str) -> str:
    """Return ``text`` in a form that every store and wire format accepts.

    A lone surrogate becomes U+FFFD, and a NUL becomes the six characters ``\\u0000``: SQLite rejects the first,
    PostgreSQL the second, and a conversation should be the same in every store.
    """
    if text.isascii() and _NUL not in text:
        return text
    if _NUL in text:
        text = text.replace(_NUL, "\\u0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Text(str):
    """A string that caches its JSON form.

    Each message of a conversation is sent again with every later request, to both agents. Encoding it once and
    assembling request bodies from the bytes keeps the fortieth call as cheap as the first.
    """

    __slots__ = ("json",)

    json: bytes  # The quoted JSON string.

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.json = encode_json(text)
        return self


def to_printable(text: str) -> str:
    """Return ``text`` without terminal control sequences, control characters and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return STEERING.sub("", _BREAKS.sub("\n", _SEQUENCES.sub("", text)))


# Escaping of untrusted text for terminals, Markdown, HTML and file names.
#
# Text from models, people and files may contain sequences that steer a terminal, Markdown or HTML that would
# change a page, or characters that a file system rejects. HTML goes through Jinja's autoescape, after
# :func:`to_printable`.


_LONGEST_NAME = 200  # Maximum bytes of a file name; file systems allow 255, and suffixes are added.


def to_line(text: str) -> str:
    """Return ``text`` on one line, without unprintable characters."""
    return " ".join(to_printable(text).split())


def shorten_line(text: str, most: int) -> str:
    """Return ``text`` on one line, with at most so many characters and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} …"


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON, in which each character that steers a terminal is escaped; on one line by default."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return STEERING.sub(lambda match: json.dumps(match[0])[1:-1], text)


def to_file_name(text: str) -> str:
    """Return a file name for ``text``, without a suffix; unsafe characters become ``%XX``.

    A long name is cut and ends with a hash of the whole text.
    """
    plain = "".join(char if char.isalnum() or char in "_-." else f"%{ord(char):02X}" for char in text)
    if plain.startswith(".") or not plain:
        plain = f"%{plain}"
    if len(plain.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        plain = f"{plain.encode()[: _LONGEST_NAME - 17].decode('utf-8', 'ignore')}-{digest}"
    return plain


def to_path_part(text: str) -> str:
    """Return ``text`` as a part of a path: unchanged if it can be, else as :func:`to_file_name` writes it."""
    plain = to_printable(text) == text and not re.search(r"[/\\\n\t]", text) and not text.startswith(".")
    return text if plain and 0 < len(text.encode()) <= _LONGEST_NAME // 2 else to_file_name(text)


def write_count(count: int, noun: str) -> str:
    """Return ``count`` with its noun, as in ``1 turn`` and ``2 turns``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def show(item: object) -> None:
    """Display ``item`` in a notebook, or write it to standard output elsewhere."""
    if "IPython" in sys.modules:
        from importlib import import_module

        if import_module("IPython").get_ipython() is not None:
            import_module("IPython.display").display(item)
            return
    sys.stdout.write(f"{item}\n")


# Construction of records from plain JSON data.


Build = Callable[[Any], Any]


@cache
def find_builder(hint: Any) -> Build:
    """Return a function that builds a value of the type ``hint`` from plain data.

    Dataclasses, and tuples, mappings and unions of them, are built from objects and lists. A missing field takes its
    default; other values stay unchanged.

    Raises:
        TypeError: raised by the function if an object has a field that its dataclass lacks, or lacks a required field.
    """
    if hint is Text:
        return Text
    if is_dataclass(hint):
        return _make_dataclass_builder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _make_union_builder(arguments)
    if origin is tuple:
        build = find_builder(arguments[0])
        return lambda values: tuple(map(build, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        build = find_builder(arguments[1])
        return lambda values: {key: build(value) for key, value in values.items()}
    return lambda value: value


def _make_dataclass_builder(record: Any) -> Build:
    hints = get_type_hints(record)
    builders = {field.name: find_builder(hints[field.name]) for field in fields(record)}

    def build(values: Mapping[str, Any]) -> Any:
        built = {name: builders.get(name, _return_unchanged)(value) for name, value in values.items()}
        return record(**built)

    return build


def _make_union_builder(choices: tuple[Any, ...]) -> Build:
    """Return a builder for a union: None stays None; an object becomes the first dataclass that has all its fields."""
    records = [
        ({field.name for field in fields(choice)}, find_builder(choice))
        for choice in choices
        if is_dataclass(choice)
    ]
    others = [choice for choice in choices if not is_dataclass(choice) and choice is not type(None)]
    other = find_builder(others[0]) if len(others) == 1 else _return_unchanged

    def build(value: Any) -> Any:
        if value is None:
            return None
        if not records or not isinstance(value, Mapping):
            return other(value)
        values = cast("Mapping[str, Any]", value)
        for names, build_record in records:
            if names >= values.keys():
                return build_record(values)
        raise TypeError(f"no record has the fields {sorted(values)}")

    return build


def _return_unchanged(value: Any) -> Any:
    return value
