"""What ``.env`` in the working folder adds to the environment."""

from __future__ import annotations

import os
import re
import sys

from bactrian.errors import InputError

_NEVER = re.compile(r"HOME|PATH|BACTRIAN_CONFIG|XDG_.*|PYTHON.*|LD_.*|.*_PROXY|SSL_CERT_.*", re.IGNORECASE)
"""Variables that decide where keys go, or what runs: a folder that was handed over has no say in them."""


def read_dotenv() -> None:
    """Take from ``.env`` what the environment does not say, and remember what came from there.

    Raises:
        InputError: it is not UTF-8.
    """
    from dotenv import dotenv_values

    from bactrian.models.credentials import DOTENV

    os.environ.pop(DOTENV, None)
    try:
        # Not interpolated: a value must not carry a key of the environment to another place.
        found = dotenv_values(".env", interpolate=False)
    except UnicodeDecodeError as error:
        raise InputError("This is not UTF-8 text.", where=".env", next="Save it as UTF-8.") from error
    new = {name: value for name, value in found.items() if value is not None and name not in os.environ}
    refused = [name for name in new if _NEVER.fullmatch(name)]
    if refused:
        print(f"bactrian: warning: .env cannot set {', '.join(refused)}.", file=sys.stderr)
    taken = {name: value for name, value in new.items() if name not in refused and name != DOTENV}
    os.environ.update(taken)
    if taken:
        os.environ[DOTENV] = " ".join(taken)
