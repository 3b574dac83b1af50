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


def find_format(name: str) -> Format:
    """The format of this name.

    Raises:
        InputError: there is none.
    """
    if name not in FORMATS:
        raise InputError(
            f"There is no format {name!r}.{suggest_name(name, FORMATS)}",
            where="--format",
            next=f"Formats: {', '.join(FORMATS)}.",
        )
    return FORMATS[name]
