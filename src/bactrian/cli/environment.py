"""Environment variables: those from ``.env`` in the working folder, and those that quiet libraries."""

from __future__ import annotations

import os
import re
import sys

from bactrian.errors import InputError

_OPTIONS = (
    r"\w+_MODEL|MODEL|JUDGE|EXTRACTOR|BASE_URL|RUN|LANGUAGE|LICENSE|SEED|PRICE|BUDGET|LIMIT|MAX_\w+|\w+_PER_MINUTE"
    r"|CONCURRENCY|TIMEOUT|WINDOW|TEMPERATURE|TOP_P|REASONING_EFFORT|REPLY_LENGTH|WORD_LIMIT|PROTOCOL|ENDINGS"
    r"|ASSISTANT|USER|\w+_DESCRIPTION|THOUGHTS|REDACT|MARK|NOTE|JSON|QUIET|VERBOSE|DEBUG"
)
_MAY = re.compile(
    rf"BACTRIAN_({_OPTIONS})|(?!BACTRIAN_|LD_|PYTHON|OTEL_|HF_ENDPOINT)\w*(_KEY|_TOKEN|_SECRET|_PASSWORD|_BASE_URL|_ENDPOINT)",
    re.IGNORECASE,
)
"""Variables that ``.env`` may set: keys, addresses of models, and options that decide neither where keys go nor what
runs. It may come from another person: one option names code to load, others allow what only the user can."""

_HUB = {"HF_HUB_VERBOSITY": "error", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Settings of the hub's client: it prints no warnings beside our progress, and sends no requests besides ours."""


def configure_hub() -> None:
    """Set what the hub's client reads when it is imported, unless the user has set it.

    Only commands do so: in a program that imports this package, these settings are the program's own.
    """
    for name, value in _HUB.items():
        os.environ.setdefault(name, value)


def read_dotenv() -> None:
    """Add the variables of ``.env`` that the environment lacks, and remember their names.

    Raises:
        InputError: the file is not UTF-8.
    """
    from bactrian.models.credentials import DOTENV

    os.environ.pop(DOTENV, None)
    if not os.path.exists(".env"):  # noqa: PTH110 (pathlib and dotenv take longer to import than all else here)
        return
    from dotenv import dotenv_values

    try:
        # Not interpolated: a value must not copy a key from the environment.
        found = dotenv_values(".env", interpolate=False)
    except UnicodeDecodeError as error:
        raise InputError("This is not UTF-8 text.", where=".env", next="Save it as UTF-8.") from error
    new = {name: value for name, value in found.items() if value is not None and name not in os.environ}
    refused = [name for name in new if not _MAY.fullmatch(name)]
    if refused:
        print(f"bactrian: warning: .env cannot set {', '.join(refused)}.", file=sys.stderr)
    taken = {name: value for name, value in new.items() if name not in refused and name != DOTENV}
    os.environ.update(taken)
    if taken:
        os.environ[DOTENV] = " ".join(taken)
