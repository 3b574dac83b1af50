"""The one place through which text of others goes into Markdown and into the name of a file.

Models, people and files may say anything: Markdown and HTML that a page would take
as its own, names that no file system takes. To a terminal it goes
through :func:`bactrian.records.text.to_printable`, and into HTML through Jinja's autoescape.
"""

from __future__ import annotations

import hashlib
import html
import re

from bactrian.records.text import to_printable

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#|!~$])|(?<=://)|(?<=\bwww)(?=\.)|(?<=\w)(?=@)")
_LONGEST_NAME = 200
"""Bytes of a file's name; file systems take 255, and endings are added."""


def to_line(text: str) -> str:
    """``text`` on one line, printable."""
    return " ".join(to_printable(text).split())


def to_markdown(text: str) -> str:
    """``text`` on one line, as Markdown that shows it letter by letter: no markup, no HTML, no link."""
    escaped = _MARKDOWN.sub(lambda found: f"\\{found[1]}" if found[1] else "<!-- -->", to_line(text))
    return "<!-- -->".join(html.escape(part, quote=False) for part in escaped.split("<!-- -->"))


def to_code_span(text: str) -> str:
    """``text`` on one line, as code in Markdown; empty if nothing of it can be shown."""
    text = to_line(text).replace("|", "\u2223")
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def to_file_name(text: str) -> str:
    """A file's name for ``text``, without an ending: what no archive should hold is written as ``%XX``.

    A long one is cut, and a hash of the whole put in its place.
    """
    plain = "".join(one if one.isalnum() or one in "_-." else f"%{ord(one):02X}" for one in text)
    if plain.startswith(".") or not plain:
        plain = f"%{plain}"
    if len(plain.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        plain = f"{plain.encode()[: _LONGEST_NAME - 17].decode('utf-8', 'ignore')}-{digest}"
    return plain
