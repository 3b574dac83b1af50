"""Every format by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bactrian.errors import InputError
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
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name

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


GROUP = "bactrian.export_formats"
"""Entry points of other packages: a :class:`~bactrian.export.format.Format` by its name."""


def find_format(name: str) -> Format:
    """The format of this name, built in or registered by an installed package.

    Raises:
        InputError: there is none, or what a package registers is not a format.
    """
    if name in FORMATS:
        return FORMATS[name]
    known = (*FORMATS, *list_plugins(GROUP))
    if name not in known:
        raise InputError(
            f"There is no format {name!r}.{suggest_name(name, known)}",
            where="--format",
            next=f"Formats: {', '.join(known)}.",
        )
    found = load_plugin(GROUP, name)
    if not isinstance(found, Format):
        raise InputError(
            f"What a package registers as the format {name!r} is not a Format.",
            where=GROUP,
            next="Mend or remove the package that registers it.",
        )
    return found
