"""All formats by name: the built-in ones, and those of other packages.

A package offers a format under the entry-point group ``bactrian.export_formats``; the entry point is a
:class:`~bactrian.export.format.Format`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from bactrian.errors import InputError
from bactrian.export import lists
from bactrian.export.format import Format
from bactrian.export.formats import (
    alpaca,
    camel_chat,
    camel_instructions,
    camel_science,
    camel_translated,
    csv,
    hf,
    messages,
    parquet,
    preference,
    sharegpt,
)
from bactrian.export.training_configs import Tool
from bactrian.files.plugins import find_plugins
from bactrian.files.toml import suggest_name

GROUP = "bactrian.export_formats"
_MODULES = (
    messages,
    sharegpt,
    alpaca,
    preference,
    hf,
    parquet,
    csv,
    camel_chat,
    camel_instructions,
    camel_science,
    camel_translated,
)
FORMATS: Mapping[str, Format] = MappingProxyType({module.FORMAT.name: module.FORMAT for module in _MODULES})
"""The built-in formats."""
_OTHER_NAMES = {
    "jsonl": "messages",
    "json": "messages",
    "chatml": "messages",
    "openai": "messages",
    "dpo": "preference",
    "huggingface": "hf",
    "datasets": "hf",
    "camel": "camel-chat",
}
"""What other programs call our formats."""


def list_formats() -> tuple[str, ...]:
    """Return the names of the built-in formats, ``lists`` among them."""
    return (*FORMATS, lists.NAME)


def find_format(name: str) -> Format:
    """Return the format of this name; built-in formats take precedence.

    Raises:
        InputError: no format has this name, or a package's cannot be loaded.
    """
    if name in FORMATS:
        return FORMATS[name]
    others = {one.name: one for one in find_plugins(GROUP)}
    if name not in others:
        known = (*list_formats(), *others)
        if name in get_args(Tool):
            raise InputError(
                f"{name} is a training tool and not a format.",
                where="--format",
                next=f"Write a format that it reads, and its configuration: --format messages --for {name}",
            )
        other = _OTHER_NAMES.get(name.lower())
        hint = f" Did you mean {other!r}?" if other else suggest_name(name, known)
        raise InputError(
            f"There is no format {name!r}.{hint}",
            where="--format",
            next=f"Formats: {', '.join(known)}.",
        )
    try:
        found: object = others[name].load()
    except Exception as error:  # Code of other packages may raise any exception.
        raise InputError(
            f"The format cannot be loaded: {type(error).__name__}: {error}",
            where=f"{others[name].value}, the entry point {name!r} of {GROUP}",
            next="Fix or update the package that registers it.",
        ) from error
    if not isinstance(found, Format):
        raise InputError(
            f"This is a {type(found).__name__}, not a bactrian.export.format.Format.",
            where=f"{others[name].value}, the entry point {name!r} of {GROUP}",
            next="Point the entry point to a Format.",
        )
    return found
