"""Which key goes to which address: never one to an address that somebody else may have written down.

A key from the environment goes to a provider's own address and to one that the person gave in words: a flag, an
argument, their own file of providers. An address that comes from the environment or from ``.env`` gets only a key from
the same place, so that the ``.env`` of a folder that was handed over cannot collect keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from bactrian.errors import InputError

DOTENV = "BACTRIAN_FROM_DOTENV"
"""Environment variable with the names of those that were read from ``.env``, separated by spaces."""
_ADDRESSES = ("_BASE_URL", "_ENDPOINT")


def find_key(variable: str | None, address: str, *, own: bool) -> str:
    """The key in the environment variable ``variable`` for ``address``; empty if it is not set.

    ``own`` is True if the address is the provider's own, as its row says.

    Raises:
        InputError: address and key come from different places.
    """
    key = os.environ.get(variable or "", "").strip()
    if not key or variable is None or own:
        return key
    places = set(_places_of(address, os.environ))
    if not places or places == {_place(variable)}:
        return key
    raise InputError(
        f"The address comes from {' and '.join(sorted(places))}, and the key {variable} from "
        f"{_place(variable)}: it is not sent there.",
        where=address,
        next="Set both in the same place, or give the address with a flag.",
    )


def _place(variable: str) -> str:
    return ".env" if variable in os.environ.get(DOTENV, "").split() else "the environment"


def _places_of(address: str, environment: Mapping[str, str]) -> Iterable[str]:
    """Where ``address`` is written among the variables that can hold one; nothing if a person gave it otherwise."""
    for name, value in environment.items():
        if address in value and (name.endswith(_ADDRESSES) or name.startswith("BACTRIAN_")):
            yield _place(name)
