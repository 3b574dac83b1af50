"""Identifies the weights of a model on this computer."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bactrian.errors import InputError


def identify_weights(model: str) -> str | None:
    """Return the hash of the GGUF file of ``local:PATH``; None for any other model.

    Raises:
        InputError: the file cannot be read.
    """
    kind, _, name = model.partition(":")
    path = Path(name).expanduser()
    if kind != "local" or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise InputError(
            f"The weights cannot be read: {error.strerror}.", where=name, next="Check the file's permissions."
        ) from error
