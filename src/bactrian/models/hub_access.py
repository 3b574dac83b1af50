"""Access to the Hugging Face hub, or to a mirror of it, which may be hostile: address, key and errors of its client.

The client takes names of files, ETags and commits from the server and makes paths of them. What could lead out of its
folder is refused in every reply, before the client sees it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

from bactrian.errors import BactrianError, InputError, MissingExtra, Refused
from bactrian.models.credentials import find_key

_HUB = "https://huggingface.co"
# Headers and JSON keys that the client makes names of files and folders of.
_HEADERS = ("ETag", "X-Linked-Etag", "X-Repo-Commit", "X-Xet-Hash")
_DIGESTS = frozenset(("sha", "sha256", "oid", "xetHash", "blobId", "commitHash"))
_SIZES = frozenset(("size", "pointerSize"))
_PATHS = frozenset(("rfilename", "path"))
_WORD = re.compile(r'(?:W/)?"?[A-Za-z0-9][A-Za-z0-9._+=:-]{0,255}"?')

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LARGEST_FILE = 1 << 50  # Bytes
_LARGEST_REPLY = 64 << 20  # Bytes of JSON, an error or a redirect; also of a file whose size nobody announced


def get_endpoint() -> str:
    """Return the address of the hub: ``HF_ENDPOINT``, or the hub's own."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB


def get_token() -> str | bool | None:
    """Return the key for the hub; None for the key of ``hf auth login``, which is sent only to the hub itself."""
    official = get_endpoint() == _HUB
    return find_key("HF_TOKEN", get_endpoint(), official=official) or (None if official else False)


def import_hub(purpose: str) -> ModuleType:
    """Import the hub's client, whose every reply is then checked.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import huggingface_hub
        from huggingface_hub import utils
    except ModuleNotFoundError as error:
        raise MissingExtra("hub", purpose) from error
    hooks = utils.get_session().event_hooks
    if _check_reply not in hooks["response"]:
        # A factory, because the client makes a new session after some errors.
        checked = {**hooks, "response": [*hooks["response"], _check_reply]}
        client: Any = cast("Any", utils).httpx.Client
        utils.set_client_factory(
            lambda: client(event_hooks=checked, follow_redirects=True, timeout=None)  # as the client's own
        )
    return huggingface_hub


def is_plain_path(name: str) -> bool:
    """Return True if ``name`` is a path that stays in its folder on every system, in printable characters."""
    parts = name.split("/")
    return name.isprintable() and not {"", ".", ".."} & set(parts) and not re.search(r'[\\:*?"<>|]', name)


def _check_reply(reply: Any) -> None:
    """Raise Refused if a reply's headers or JSON contain what would lead out of the client's folder, or never end."""
    # A file's own reply may come from a storage service, whose ETags are no names.
    for header in _HEADERS if reply.request.method == "HEAD" else _HEADERS[1:]:
        if (word := reply.headers.get(header)) and not _WORD.fullmatch(word):
            raise _make_refusal(header, word, reply)
    called = _is_call(reply.request.url)
    if called and reply.has_redirect_location:
        _check_redirect(reply)
    if called or not reply.is_success:  # what the client reads as a whole
        _read_whole(reply)
    if not called or reply.has_redirect_location:
        return
    try:
        content = reply.json()
    except (ValueError, RecursionError):
        return  # The client explains it.
    for key, value in _list_facts(content):
        if value is not None and not _is_harmless(key, value):
            raise _make_refusal(key, value, reply)


def _is_call(url: Any) -> bool:
    """Return True if this is an address of the hub's API, whose replies are JSON, and not a file."""
    path: str = url.path.removeprefix(urlsplit(get_endpoint()).path)
    return path.startswith("/api/") and not path.startswith("/api/resolve-cache/")


def _check_redirect(reply: Any) -> None:
    """Raise Refused if a call is sent to where its reply would not be checked."""
    location, url = reply.headers.get("Location", ""), reply.request.url
    try:
        target = url.join(location)
        known = target.host == url.host and _is_call(target)
    except Exception:  # noqa: BLE001 - the client's errors for an invalid address have no common class
        known = False
    if not known:
        raise _make_refusal("Location", location, reply)


def _read_whole(reply: Any) -> None:
    """Read a reply as its ``read`` does, but not without an end."""
    content = bytearray()
    for chunk in reply.iter_bytes():
        content += chunk
        if len(content) > _LARGEST_REPLY:
            raise _refuse_server(f"The server's reply has more than {_LARGEST_REPLY:,} bytes.", reply)
    vars(reply)["_content"] = bytes(content)


def _list_facts(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the facts in JSON that describe a repository or a file. Its card may contain anything."""
    for item in cast("list[Any]", content if isinstance(content, list) else [content]):
        if isinstance(item, dict):
            parts = cast("dict[str, Any]", item)
            yield from parts.items()
            for key in ("siblings", "lfs"):
                yield from _list_facts(parts.get(key))


def _is_harmless(key: str, value: Any) -> bool:
    """Return True if the client can use a fact of this name as it expects."""
    if key in _DIGESTS:
        return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
    if key in _PATHS:
        return isinstance(value, str) and is_plain_path(value)
    if key in _SIZES:
        return type(value) is int and 0 <= value <= _LARGEST_FILE
    if key == "siblings":
        return isinstance(value, list) and all(
            isinstance(item, dict) and "rfilename" in item for item in cast("list[Any]", value)
        )
    return key != "lfs" or isinstance(value, dict)


def _make_refusal(name: str, value: object, reply: Any) -> Refused:
    shown = repr(value)[:80] if not isinstance(value, int) else "a number that is out of range"
    problem = f"The server's {name} is {shown}, which could lead to a file outside of the hub's cache."
    return _refuse_server(problem, reply)


def _refuse_server(problem: str, reply: Any) -> Refused:
    return Refused(
        f"{problem} Nothing was written.",
        where=str(reply.request.url)[:200],
        next="Do not use this server: unset HF_ENDPOINT, or name one that you trust.",
    )


def make_hub_bar(size: int = 0, progress: Callable[[int, int], None] | None = None) -> Any:
    """Return a progress bar class for the hub's client that forwards its progress instead of displaying it.

    ``progress`` receives the bytes that are done, and ``size``. A file that is larger than announced is refused.
    """
    base: Any = import_module("tqdm").tqdm

    class Bar(base):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **{**more, "disable": True})  # pyright: ignore[reportUnknownMemberType]
            self.done = int(more.get("initial") or 0)
            self.limit = size or int(more.get("total") or 0) or _LARGEST_REPLY

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            if self.done > self.limit:
                raise Refused(
                    f"The server sends more than the {self.limit:,} bytes that it announced.",
                    where=get_endpoint(),
                    next="Do not use this server: unset HF_ENDPOINT, or name one that you trust.",
                )
            if progress is not None:
                progress(min(self.done, size), size)

    return Bar


@contextmanager
def explain_hub_errors(
    repo: str,
    failure: str,
    hint: str = "Go online and run the same command; what was fetched completely is used offline.",
) -> Generator[None]:
    """Turn what the hub's client raises into our own errors; ``failure`` says what could not be done."""
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except RepositoryNotFoundError as error:
        raise InputError(
            f"The hub has no repository {repo!r}, or you have no access to it.",
            where=get_endpoint(),
            next="Check its name; for a private or gated one set HF_TOKEN.",
        ) from error
    except RevisionNotFoundError as error:
        raise InputError(
            f"The repository {repo!r} has no such revision.",
            where=get_endpoint(),
            next="Name a branch, a tag or a commit of it.",
        ) from error
    except BactrianError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0][:200]
        raise Refused(
            f"{failure}: {first or type(error).__name__}.",
            where=get_endpoint(),
            next=hint,
        ) from error
