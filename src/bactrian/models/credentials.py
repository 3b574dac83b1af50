"""Assignment of API keys to addresses: no key is sent to an address of untrusted origin.

A key from the environment is sent to the provider's own address and to an address that the user gave explicitly: by a
flag, an argument or their own providers file. An address from the environment or from ``.env`` receives only a key
from the same origin, so that the ``.env`` of a foreign folder cannot collect keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from bactrian.errors import InputError

# Environment variable that lists the variables read from `.env`, separated by spaces.
DOTENV = "BACTRIAN_FROM_DOTENV"
_ADDRESSES = ("_BASE_URL", "_ENDPOINT")


def find_key(variable: str | None, address: str, *, official: bool) -> str:
    """Return the key in the environment variable ``variable`` for ``address``; empty if it is not set.

    ``official`` is True if the address is the provider's, as its row says.

    Raises:
        InputError: address and key have different origins.
    """
    key = os.environ.get(variable or "", "").strip()
    if not key or variable is None or official:
        return key
    origins = set(_find_origins(address, os.environ))
    if not origins or origins == {_find_origin(variable)}:
        return key
    raise InputError(
        f"The address comes from {' and '.join(sorted(origins))}, and the key {variable} from "
        f"{_find_origin(variable)}: it is not sent there.",
        where=address,
        next="Set both in the same place, or pass the address with a flag.",
    )


def _find_origin(variable: str) -> str:
    return ".env" if variable in os.environ.get(DOTENV, "").split() else "the environment"


def _find_origins(address: str, environment: Mapping[str, str]) -> Iterable[str]:
    """Yield the origins of the variables that contain ``address``; nothing if it comes from elsewhere."""
    for name, value in environment.items():
        if address in value and (name.endswith(_ADDRESSES) or name.startswith("BACTRIAN_")):
            yield _find_origin(name)
