"""Saved views: names for the addresses of pages, in a small file of the user."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from bactrian.errors import InputError, explain_os_errors
from bactrian.files.recent_runs import find_state_folder

_MOST, _LONGEST_NAME, _LONGEST_ADDRESS = 100, 60, 4000


def _find_file() -> Path:
    return find_state_folder() / "explorer-views.json"


def is_address(text: str) -> bool:
    """Return True for the address of a page on this server, such as ``/statistics?ending=task_done``."""
    parts = urlsplit(text) if len(text) <= _LONGEST_ADDRESS and text.isprintable() else None
    # Two slashes would begin the name of another server.
    return parts is not None and text[:1] == "/" and text[1:2] not in ("/", "\\") and not parts.netloc


def read_views() -> dict[str, str]:
    """Return the addresses by name, in the order of saving; what is damaged is left out."""
    with suppress(OSError, ValueError):
        stored: object = json.loads(_find_file().read_text("utf-8"))
        if isinstance(stored, dict):
            return {
                str(name): address  # pyright: ignore[reportUnknownArgumentType]
                for name, address in stored.items()  # pyright: ignore[reportUnknownVariableType]
                if isinstance(address, str) and is_address(address)
            }
    return {}


def save_view(name: str, address: str) -> None:
    """Save a view.

    Raises:
        InputError: the name or the address cannot be used, another view has the name, there are too many, or the file
            cannot be written.
    """
    name = " ".join(name.split())
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise InputError(
            f"The name of a view has 1 to {_LONGEST_NAME} characters.",
            next="Go back and give it a short name.",
        )
    if not is_address(address):
        raise InputError("This is not an address of a page.", where="address", next="Save it from its page.")
    views = read_views()
    if views.get(name, address) != address:
        raise InputError(
            f"Another view has the name {name!r}.",
            next="Go back and give another name, or remove that view in the library.",
        )
    if len(views) >= _MOST and name not in views:
        raise InputError(f"There are {_MOST} saved views.", next="Remove one in the library.")
    _write({**views, name: address})


def remove_view(name: str) -> None:
    """Remove a view, if there is one of this name. Raises InputError if the file cannot be written."""
    _write({other: address for other, address in read_views().items() if other != name})


def _write(views: dict[str, str]) -> None:
    file = _find_file()
    with explain_os_errors("The view cannot be saved", file, "Make room on its disk."):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(views, out, indent=1)
        Path(part).replace(file)
