"""Assignment of API keys to addresses: no key is sent to an address of untrusted origin.

A key from the environment is sent to the provider's own address and to an address that the user gave explicitly: by a
flag, an argument or their own providers file. An address from the environment or from ``.env`` receives only a key
from the same origin, so that the ``.env`` of a foreign folder cannot collect keys.
"""

from __future__ import annotations

import os

from bactrian.errors import InputError
from bactrian.models.http import hide_credentials

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
    # Of the variables that contain the address; none if it comes from elsewhere
    origins = {
        _find_origin(name)
        for name, value in os.environ.items()
        if address in value and (name.endswith(_ADDRESSES) or name.startswith("BACTRIAN_"))
    }
    if not origins or origins == {_find_origin(variable)}:
        return key
    raise InputError(
        f"The address comes from {' and '.join(sorted(origins))}, and the key {variable} from "
        f"{_find_origin(variable)}: it is not sent there.",
        where=hide_credentials(address),
        next="Set both in the same place, or pass the address with a flag.",
    )


def _find_origin(variable: str) -> str:
    return ".env" if variable in os.environ.get(DOTENV, "").split() else "the environment"
