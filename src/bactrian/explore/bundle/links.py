"""Rewrites pages for a disk: links lead to files, and what needs a server is taken out."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from html import escape, unescape
from urllib.parse import parse_qsl, quote, urljoin, urlsplit

# In pages of ours an attribute contains neither quotes nor brackets of a text: those are escaped.
_LINK = re.compile(r'(<(?:a|img|link|script)\b[^>]*?\s)(href|src)="([^"]*)"')
_FORM = re.compile(r"<form\b.*?</form>", re.S)
_ANCHOR = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')
_HEAD = '<meta charset="utf-8">'
_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self' file:; "
    "style-src 'self' file:; img-src 'self' file:; base-uri 'none'; form-action 'none'\">"
)
"""In a page from a disk, ``'self'`` matches no file."""


def list_links(page: str, address: str) -> Iterator[str]:
    """Yield the addresses that ``page``, which is at ``address``, links to on the same server."""
    for match in _ANCHOR.finditer(page):
        target = urljoin(address, unescape(match[1]))
        if target.startswith("/") and not target.startswith("//"):
            yield target


def rewrite_page(page: str, address: str, file: str, find_file: Callable[[str], str | None]) -> str:
    """Return ``page`` with links to files; a link to what the copy does not contain becomes plain text.

    Args:
        page: HTML of the application.
        address: Its address there.
        file: Its file in the copy.
        find_file: Returns the file of an address, with a fragment if need be; None if the copy does not contain it.
    """

    def lead(match: re.Match[str]) -> str:
        before, name, link = match[1], match[2], unescape(match[3])
        if link.startswith("#"):
            return match[0]
        target = urljoin(address, link)
        found = find_file(target)
        if found is None:
            return before.rstrip()
        found, _, fragment = found.partition("#")
        way = quote(posixpath.relpath(found, posixpath.dirname(file) or "."))
        fragment = fragment or quote(urlsplit(target).fragment)
        return f'{before}{name}="{escape(way)}{f"#{escape(fragment)}" if fragment else ""}"'

    page = _FORM.sub("", page)
    # Modules are not loaded from a disk.
    page = _LINK.sub(lead, page).replace('<script type="module"', "<script defer")
    return page.replace(_HEAD, f"{_HEAD}\n{_POLICY}", 1)


def read_query(address: str) -> dict[str, str]:
    """Return the parameters of an address."""
    return dict(parse_qsl(urlsplit(address).query))
