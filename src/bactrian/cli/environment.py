"""Variables from ``.env`` in the working folder."""

from __future__ import annotations

import os
import re
import sys

from bactrian.errors import InputError

_NEVER = re.compile(
    r"HOME|PATH|BACTRIAN_(CONFIG|DATA)|XDG_.*|PYTHON.*|LD_.*|.*_PROXY|SSL_CERT_.*", re.IGNORECASE
)
"""Variables that decide where keys go or what runs. ``.env`` must not set them, as it may come from another person."""


def read_dotenv() -> None:
    """Add the variables of ``.env`` that the environment lacks, and remember their names.

    Raises:
        InputError: the file is not UTF-8.
    """
    from dotenv import dotenv_values

    from bactrian.models.credentials import DOTENV

    os.environ.pop(DOTENV, None)
    try:
        # Not interpolated: a value must not copy a key from the environment.
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
