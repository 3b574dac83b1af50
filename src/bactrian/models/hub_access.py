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

from bactrian.errors import BactrianError, InputError, MissingExtra, Refused
from bactrian.models.credentials import find_key

_HUB = "https://huggingface.co"
# Headers and JSON keys that the client makes names of files and folders of.
_HEADERS = ("ETag", "X-Linked-Etag", "X-Repo-Commit", "X-Xet-Hash")
_WORDS = frozenset(("sha", "sha256", "oid", "xetHash", "blobId", "commitHash"))
_PATHS = frozenset(("rfilename", "path"))
_WORD = re.compile(r'(?:W/)?"?[A-Za-z0-9][A-Za-z0-9._+=:-]{0,255}"?')


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
    """Raise Refused if a reply's headers or JSON contain what would lead out of the client's folder."""
    # A file's own reply may come from a storage service, whose ETags are no names.
    for header in _HEADERS if reply.request.method == "HEAD" else _HEADERS[1:]:
        _check_word(header, reply.headers.get(header), reply)
    path: str = reply.request.url.path
    if "/api/" not in path or "/resolve/" in path:
        return
    if reply.is_redirect:
        if "/api/" not in (
            location := reply.headers.get("Location", "")
        ):  # where its reply would not be checked
            raise _make_refusal("Location", location, reply)
        return
    reply.read()
    try:
        items = list(_list_items(reply.json()))
    except (ValueError, RecursionError):
        return  # The client explains it.
    for key, value in (pair for item in items for pair in item.items() if isinstance(pair[1], str)):
        if key in _WORDS:
            _check_word(key, value, reply)
        elif key in _PATHS and not is_plain_path(value):
            raise _make_refusal(key, value, reply)


def _list_items(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in JSON that describe a repository or a file. Its card may contain anything."""
    for item in cast("list[Any]", content if isinstance(content, list) else [content]):
        if isinstance(item, dict):
            parts = cast("dict[str, Any]", item)
            yield parts
            for key in ("siblings", "lfs"):
                yield from _list_items(parts.get(key))


def _check_word(name: str, value: str | None, reply: Any) -> None:
    if value and not _WORD.fullmatch(value):
        raise _make_refusal(name, value, reply)


def _make_refusal(name: str, value: str, reply: Any) -> Refused:
    return Refused(
        f"The server's {name} is {value[:80]!r}, which could lead to a file outside of the hub's cache. "
        "Nothing was written.",
        where=str(reply.request.url)[:200],
        next="Do not use this server: unset HF_ENDPOINT, or name one that you trust.",
    )


def make_hub_bar(size: int = 0, progress: Callable[[int, int], None] | None = None) -> Any:
    """Return a progress bar class for the hub's client that forwards its progress instead of displaying it.

    ``progress`` receives the bytes that are done, and ``size``.
    """
    base: Any = import_module("tqdm").tqdm

    class Bar(base):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **{**more, "disable": True})  # pyright: ignore[reportUnknownMemberType]
            self.done = int(more.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
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
