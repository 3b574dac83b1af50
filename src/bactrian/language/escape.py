"""Escaping of untrusted text for terminals, Markdown, HTML and file names.

Text from models, people and files may contain sequences that steer a terminal, Markdown or HTML that would change a
page, or characters that a file system rejects. HTML goes through
Jinja's autoescape, after :func:`to_printable`.
"""

from __future__ import annotations

import hashlib
import html
import json
import re

from bactrian.records.text import STEERING, to_printable

__all__ = ["to_code_span", "to_file_name", "to_json", "to_line", "to_markdown", "to_printable"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#|!~$])|(?<=://)|(?<=\bwww)(?=\.)|(?<=\w)(?=@)")
_LONGEST_NAME = 200
"""Maximum bytes of a file name; file systems allow 255, and suffixes are added."""


def to_line(text: str) -> str:
    """Return ``text`` on one line, without unprintable characters."""
    return " ".join(to_printable(text).split())


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON, in which each character that steers a terminal is escaped; on one line by default."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text)


def to_markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally: no markup, no HTML, no link."""
    escaped = _MARKDOWN.sub(lambda found: f"\\{found[1]}" if found[1] else "<!-- -->", to_line(text))
    return "<!-- -->".join(html.escape(part, quote=False) for part in escaped.split("<!-- -->"))


def to_code_span(text: str) -> str:
    """Return ``text`` on one line as a Markdown code span; empty if nothing is printable."""
    text = to_line(text).replace("|", "\u2223")
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def to_file_name(text: str) -> str:
    """Return a file name for ``text``, without a suffix; unsafe characters become ``%XX``.

    A long name is cut and ends with a hash of the whole text.
    """
    plain = "".join(one if one.isalnum() or one in "_-." else f"%{ord(one):02X}" for one in text)
    if plain.startswith(".") or not plain:
        plain = f"%{plain}"
    if len(plain.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        plain = f"{plain.encode()[: _LONGEST_NAME - 17].decode('utf-8', 'ignore')}-{digest}"
    return plain


def to_path_part(text: str) -> str:
    """Return ``text`` as a part of a path: unchanged if it can be one, else as :func:`to_file_name` writes it."""
    plain = to_printable(text) == text and not re.search(r"[/\\\n\t]", text) and not text.startswith(".")
    return text if plain and 0 < len(text.encode()) <= _LONGEST_NAME // 2 else to_file_name(text)
