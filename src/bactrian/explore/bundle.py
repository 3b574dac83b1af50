"""Writes the static copy: requests its pages from the application, and rewrites their links for a disk."""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape, unescape
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp

from bactrian._version import __version__
from bactrian.errors import InputError
from bactrian.explore.library import Library, open_library
from bactrian.explore.library_index import IMPORT_DONE, SEVERAL, read_meta, read_signature
from bactrian.explore.rendering import Explorer, read_asset
from bactrian.explore.server import build_app
from bactrian.explore.session_lists import ListFilter
from bactrian.files.atomic import MANIFEST, check_target, list_files, read_manifest, write_atomically
from bactrian.records.text import to_json

# Rewrites pages for a disk: links lead to files, and what needs a server is taken out.


# In pages of ours an attribute contains neither quotes nor brackets of a text: those are escaped.
_LINK = re.compile(r'(<(?:a|img|link|script)\b[^>]*?\s)(href|src)="([^"]*)"')
_FORM = re.compile(r"<form\b.*?</form>", re.S)
_ANCHOR = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')
_HEAD = '<meta charset="utf-8">'
# In a page from a disk, ``'self'`` matches no file.
_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self' file:; "
    "style-src 'self' file:; img-src 'self' file:; base-uri 'none'; form-action 'none'\">"
)


def list_links(page: str, address: str) -> Iterator[str]:
    """Yield the addresses that ``page``, which is at ``address``, links to on the same server."""
    for match in _ANCHOR.finditer(page):
        target = urljoin(address, unescape(match[1]))
        if _is_here(target):
            yield target


def _is_here(address: str) -> bool:
    """Return True for an address of this server; what a message links to has a host."""
    return address[:1] == "/" and address[1:2] != "/"


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
        other = find_file(target) if _is_here(target) else None
        if other is None:
            return before.rstrip()
        other, _, fragment = other.partition("#")
        way = quote(posixpath.relpath(other, posixpath.dirname(file) or "."))
        fragment = fragment or quote(urlsplit(target).fragment)
        return f'{before}{name}="{escape(way)}{f"#{escape(fragment)}" if fragment else ""}"'

    page = _FORM.sub("", page)
    # Modules are not loaded from a disk.
    page = _LINK.sub(lead, page).replace('<script type="module"', "<script defer")
    return page.replace(_HEAD, f"{_HEAD}\n{_POLICY}", 1)


# What a single page needs no more.
_HEADS = re.compile(
    r'<script\b.*?</script>|<link\b[^>]*>|<header class="top">.*?</header>|<footer>.*?</footer>'
    r'|<nav class="steps".*?</nav>',
    re.S,
)
_SINGLE = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'\">"
)


def make_single_page(page: str, address: str) -> str:
    """Return ``page``, which is at ``address``, as a file that needs nothing else: without scripts, forms and links."""
    style = "".join(read_asset(name) or "" for name in ("style.css", "talk.css"))
    page = _HEADS.sub("", rewrite_page(page, address, "page.html", lambda _: None))
    return page.replace(_POLICY, _SINGLE, 1).replace("</head>", f"<style>{style}</style>\n</head>", 1)


def _read_query(address: str) -> QueryParams:
    return QueryParams(urlsplit(address).query)


# Which maps a static copy contains.


def list_maps(library: Library, list_filter: ListFilter) -> Iterator[tuple[str, str]]:
    """Yield names and addresses of the maps that are drawn.

    A data set with conversations that were made to study misuse has none: topics are named by words of all texts.
    """
    for name, data_set in library.choose(list_filter.data).items():
        with data_set.read_index() as index:
            marked = index.execute("SELECT EXISTS (SELECT 1 FROM facts WHERE mark IS NOT NULL)").fetchone()[0]
            drawn = [what for what in ("task", "instruction") if f"map of {what}" in read_meta(index)]
        for what in () if marked else drawn:
            of = f" of {name}" if len(library.sets) > 1 else ""
            title = "Map of tasks" if what == "task" else "Map of instructions"
            yield f"{title}{of}", f"/map?{urlencode({'data': name, 'what': what})}"


# Requests pages from the application in this process, without a network.


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """What the application answered."""

    status: int
    body: bytes
    # By name, in small letters.
    headers: Mapping[str, str]


async def fetch_page(app: ASGIApp, address: str) -> FetchedPage:
    """Return the page at ``address``, which begins with a slash."""
    parts = urlsplit(address)
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "headers": [(b"host", b"127.0.0.1")],
        "path": unquote(parts.path),
        "query_string": parts.query.encode(),
    }
    status, headers, body = 0, dict[str, str](), bytearray()
    requests = [{"type": "http.request", "body": b"", "more_body": False}]
    leaves = asyncio.Event()

    async def receive() -> dict[str, Any]:
        # A response that is sent from a file waits meanwhile for the client to leave, which this one does only where
        # the answer has no end.
        if not requests:
            await leaves.wait()
        return requests.pop() if requests else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        headers.update((name.decode().lower(), value.decode()) for name, value in message.get("headers", ()))
        body.extend(message.get("body", b""))
        if headers.get("content-type", "").startswith("text/event-stream"):
            leaves.set()

    await app(scope, receive, send)
    return FetchedPage(status, bytes(body), headers)


# Conversations of a copy, unless a limit is given.
MOST = 1000
# The filter that leaves out what was made to study misuse.
NOT_RED = "-red-team"
_FORMAT = "bundle"
_ASSETS = ("style.css", "talk.css", "page.js", "bundle.js", "icon.svg")
# Parameters of a conversation's address that show another part of it.
_VIEWS = ("from", "whole")
# Conditions that the search of a copy can say in words.
_SAID = frozenset(("ending", "behaviour", "assistant", "user", "agent", "mark", "data"))
# Files of agents that are copied: in a published folder, others could run scripts.
_PICTURES = frozenset((".png", ".jpg", ".jpeg", ".gif", ".webp"))
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_PAUSE = 0.25


async def write_bundle(
    paths: Sequence[Path],
    folder: Path,
    query: str = "",
    most: int = MOST,
    tell: Callable[[str], None] = lambda _: None,
) -> int:
    """Write a static copy and return the number of its conversations.

    Args:
        paths: Runs, exports and archives.
        folder: What is written: a new folder, or a copy that is replaced.
        query: The filter, as in the address of a list.
        most: Conversations, at most.
        tell: Receives the progress.

    Raises:
        InputError: the filter is wrong, nothing or too much fits, or the folder contains something else.
        StoreError: a run cannot be read.
    """
    folder = _check_folder(folder)
    list_filter = ListFilter.read(QueryParams(query.removeprefix("?")))
    async with open_library(paths) as library:
        await _wait_for_index(library, tell)
        with write_atomically(folder, overwrite=True, listed=True, protect=paths) as stage:
            target = stage / _check_folder(folder).name  # again: it may have changed meanwhile
            target.mkdir()
            return await copy_pages(library, list_filter, target, most, tell)


async def copy_pages(
    library: Library,
    list_filter: ListFilter,
    folder: Path,
    most: int,
    tell: Callable[[str], None] = lambda _: None,
) -> int:
    """Write a static copy of a library whose index is complete into an empty folder; return as :func:`write_bundle`.

    Raises:
        InputError: nothing or too much fits the filter, or it asks for what was made to study misuse.
    """
    list_filter = replace(list_filter, after="", view="")
    if list_filter.mark == "red-team":
        raise InputError(
            "Conversations that were made to study misuse are not copied.",
            option="mark",
            next="Leave them out with a filter, or copy another run.",
        )
    if library.list_sessions(ListFilter(mark="red-team")).count():
        list_filter = replace(list_filter, mark=list_filter.mark or NOT_RED)
    maps = tuple(list_maps(library, list_filter))
    explorer = Explorer(library, static=list_filter.write() or "?", maps=maps)
    copy = _BundleCopy(build_app(explorer), list_filter, explorer.maps)
    try:
        rows = await copy.read_rows(most)
    except InputError as error:
        if list_filter.mark == NOT_RED:
            error.next = f"{error.next} Conversations that were made to study misuse are never copied."
        raise
    await copy.write(folder, rows, tell)
    return len(rows)


def _check_folder(folder: Path) -> Path:
    """Return the absolute path of ``folder``; raise InputError unless it is new, empty, or a copy and nothing else."""
    folder = folder.absolute()
    check_target(folder, overwrite=True, listed=True)
    if folder.is_dir() and any(folder.iterdir()):
        manifest = read_manifest(folder / MANIFEST)
        if manifest is None or manifest["format"] != _FORMAT:
            what = "This folder contains something other than a copy of the explorer."
            raise InputError(what, where=str(folder), next="Name a new folder.")
    return folder


async def _wait_for_index(library: Library, tell: Callable[[str], None]) -> None:
    """Wait until everything is imported and searched for behaviours."""
    for data_set in library.sets.values():
        while data_set.upkeep is not None:
            state = await asyncio.to_thread(data_set.read_state)
            if data_set.upkeep.has_failed or state["problem"]:
                what = state["problem"] or "The index could not be built."
                raise InputError(what, where=str(data_set.source), next="Try again.")
            imported = not data_set.is_imported or (state.get("import") or "").startswith(IMPORT_DONE)
            complete = state["sessions"] and state["seen"] == state["sessions"] == state["texts"]
            # An index of before may be complete, and not know the marks and turns that came since.
            current = state.get("signature") == read_signature(data_set.store.path)
            if imported and complete and current and not await data_set.store.outlines(state["last"], 1):
                break
            tell(f"{data_set.name}: {state['seen']:,} of {state['sessions']:,} conversations indexed")
            await asyncio.sleep(_PAUSE)


@dataclass(slots=True)
class _BundleCopy:
    """The pages of a copy: which addresses it contains, and in which files."""

    app: Starlette
    list_filter: ListFilter
    maps: Sequence[tuple[str, str]] = ()
    # File by the key of an address, in the order of discovery.
    files: dict[str, str] = field(default_factory=dict[str, str])
    _taken: set[str] = field(default_factory=set[str])
    # Paths of the conversations.
    _chosen: set[str] = field(default_factory=set[str])

    async def read_rows(self, most: int) -> list[dict[str, Any]]:
        """Return all conversations that fit. Raises InputError if these are none, or more than ``most``."""
        rows: list[dict[str, Any]] = []
        after = ""
        while after is not None:
            page = json.loads(await self._get(f"/conversations.json{self.list_filter.write(after=after)}"))
            if page["count"] > most:
                raise InputError(
                    f"{page['count']:,} conversations fit, and a copy contains at most {most:,}.",
                    next="Narrow it with --filter, or raise --limit.",
                )
            rows += page["sessions"]
            after = page["next"]
        if not rows:
            raise InputError(
                "No conversation fits the filter.", next="Copy the filter from the address of a list."
            )
        return rows

    async def write(self, target: Path, rows: Sequence[dict[str, Any]], tell: Callable[[str], None]) -> None:
        """Write all files of the copy into the empty folder ``target``."""
        self._chosen = {_name_path(row) for row in rows if "/" not in row["id"]}  # such an id has no page
        queue = [
            f"/conversations{self.list_filter.write()}",
            f"/statistics{self.list_filter.write()}",
            "/help",
        ]
        queue += [address for _, address in self.maps]
        for address in queue:
            self._name(address)
        for done, address in enumerate(queue):
            page = await self._get(address)
            file = self.files[self._find_key(address)]
            if file.endswith(".html"):
                text = page.decode()
                for link in list_links(text, address):
                    if (key := self._find_key(link)) and key not in self.files:
                        self._name(link)
                        queue.append(link)
                page = rewrite_page(text, address, file, self._find_file).encode()
            path = target / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(page)
            if done % 100 == 0:
                tell(f"{done:,} of {len(queue):,} files")
        self._write_assets(target, rows)
        self._write_manifest(target, len(rows))

    async def _get(self, address: str) -> bytes:
        page = await fetch_page(self.app, address)
        if page.status != 200:
            raise InputError("A page could not be copied.", where=address, next="Try again.")
        return page.body

    def _find_key(self, address: str) -> str:
        """Return what tells the pages of the copy apart; empty for a page that is none of them."""
        path, query = urlsplit(address).path, _read_query(address)
        if path in ("/conversations", "/statistics"):
            same = replace(ListFilter.read(query), after="") == self.list_filter
            return f"{path} {query.get('after', '')}" if same and "by" not in query else ""
        if path.startswith("/c/") and "/".join(path.split("/")[:4]) in self._chosen:
            if "/files/" in path and PurePosixPath(path).suffix.lower() not in _PICTURES:
                return ""
            return " ".join((path, *(f"{name}={query[name]}" for name in _VIEWS if name in query)))
        if path in ("/map", "/map.svg") and any(_read_query(map_) == query for _, map_ in self.maps):
            return f"{path} {query['data']} {query['what']}"
        return path if path == "/help" else ""

    def _find_file(self, address: str) -> str | None:
        path = urlsplit(address).path
        if path.startswith("/static/"):
            return path.removeprefix("/")
        if file := self.files.get(self._find_key(address)):
            return file
        return self._find_search(address) if path == "/conversations" else None

    def _find_search(self, address: str) -> str | None:
        """Return the list with a search instead of a narrower filter; None if words cannot say it."""
        narrow = ListFilter.read(_read_query(address))
        here = self.list_filter.conditions
        more = {name: value for name, value in narrow.conditions.items() if here.get(name) != value}
        if not more or not more.keys() <= _SAID or narrow.q != self.list_filter.q:
            return None
        words: list[str] = []
        for value in more.values():
            words += value if isinstance(value, tuple) else [value]
        return f"index.html#{quote(', '.join(word.replace('_', ' ') for word in words))}"

    def _name(self, address: str) -> None:
        base = self._make_name(address)
        stem, dot, ending = base.rpartition(".")
        names = chain([base], (f"{stem}-{number}{dot}{ending}" for number in count(2)))
        # Some disks do not tell capitals from small letters.
        name = next(name for name in names if name.lower() not in self._taken)
        self.files[self._find_key(address)] = name
        self._taken.add(name.lower())

    def _make_name(self, address: str) -> str:
        path, query = urlsplit(address).path, _read_query(address)
        if path == "/conversations":
            return "list.html" if self.files else "index.html"
        if path.startswith("/map"):
            kind = path.removeprefix("/map") or ".html"
            return f"map-{make_slug(query['data'])}-{make_slug(query['what'])}{kind}"
        if not path.startswith("/c/"):
            return f"{path.strip('/')}.html"
        _, _, data, name, *more = path.split("/")
        view = "".join(f"-{part}-{make_slug(query[part])}" for part in _VIEWS if part in query)
        if more and more[0] == "files":
            return (
                f"c/{make_slug(unquote(data))}/{make_slug(unquote(name))}-files/{make_slug(unquote(more[1]))}"
            )
        ending = {"markdown": ".md", "json": ".json"}.get(more[0], f"-{more[0]}.html") if more else ".html"
        return f"c/{make_slug(unquote(data))}/{make_slug(unquote(name))}{view}{ending}"

    def _write_assets(self, target: Path, rows: Sequence[dict[str, Any]]) -> None:
        (target / "static").mkdir()
        for name in _ASSETS:
            (target / "static" / name).write_text(read_asset(name) or "", "utf-8")
        searched: list[tuple[str, str, str, str]] = []
        for row in rows:
            if file := self.files.get(_name_path(row)):  # An id such as ``..`` has no address.
                words = ", ".join((row["ending"], *row["behaviours"], *row["marks"])).replace("_", " ")
                searched.append((file, SEVERAL.join(row["roles"]), row["task"] or "", words))
        # A script, because a page on a disk may not read another file. No text can end it.
        text = (
            to_json(searched)
            .replace("<", "\\u003c")
            .replace("\u2028", "\\u2028")
            .replace("\u2029", "\\u2029")
        )
        (target / "static" / "rows.js").write_text(f"const ROWS = {text};\n", "utf-8")

    def _write_manifest(self, target: Path, count: int) -> None:
        content = {
            "bactrian": __version__,
            "format": _FORMAT,
            "filter": self.list_filter.write(),
            "conversations": count,
            "files": list_files(target.parent),
        }
        (target / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _name_path(row: dict[str, Any]) -> str:
    """Return the path of a conversation's page, as pages link to it."""
    return f"/c/{quote(row['data'], safe='')}/{quote(row['id'], safe='')}"


def make_slug(text: str) -> str:
    """Return ``text`` as a part of a file's name."""
    return _UNSAFE.sub("_", text).strip("_.")[:_LONGEST_NAME] or "x"
