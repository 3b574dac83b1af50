"""The address of a run that is in a PostgreSQL database, and the file that holds a copy of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PosixPath
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from bactrian.errors import InputError

_SCHEMES = ("postgresql://", "postgres://")
_SECRET = re.compile(r"pass(?!file)|pwd|secret", re.IGNORECASE)
"""What libpq's names for a password are like, and what a person may take for one."""
LEASES = 1.0, 3600.0
"""The shortest and the longest lease, in seconds."""
KEEP_ELSEWHERE = (
    "Keep it in ~/.pgpass (or the file of PGPASSFILE), in a service file (?service=NAME) or in PGPASSWORD, and leave "
    "it out of the address."
)


@dataclass(frozen=True, slots=True)
class RunAddress:
    """Where a shared run is. It never contains a password."""

    text: str
    """As a person gives it again."""
    connection: str
    """For libpq: without the name of the run and the lease."""
    run: str
    """The name of the run in its database; empty for the only one."""
    lease: float | None
    """Seconds without a sign of life after which others take over the jobs of a worker; None for the run's own."""

    @property
    def schema(self) -> str:
        """The schema of the database that holds the tables of the run."""
        return f"bactrian_{self.run}" if self.run else "bactrian"

    def __str__(self) -> str:
        return self.text


class SharedRun(PosixPath):
    """The file that holds the copy of a shared run on this computer; it may be missing."""

    address: RunAddress | None = None
    """None for a path that was derived from this one."""


def is_address(text: object) -> bool:
    """Return True if ``text`` is an address and not a path."""
    return isinstance(text, str) and text.lower().startswith(_SCHEMES)


def find_address(path: object) -> RunAddress | None:
    """Return the address of the run that ``path`` is a copy of; None if it is a file of its own."""
    return path.address if isinstance(path, SharedRun) else None


def read_address(text: str) -> RunAddress:
    """Read the address of a shared run.

    Raises:
        InputError: it cannot be used, or contains a password.
    """
    try:
        parts = urlsplit(text)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise InputError("The address of the run cannot be read.", next=_EXAMPLE) from error
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    if "@" in f"{parts.path}{parts.query}{parts.fragment}" or ";" in parts.path:
        # The end of a password with such a sign would be shown as what follows the host.
        raise InputError(
            "The address contains / ? # ; or @ where none belongs.", next=f"{_EXAMPLE} {KEEP_ELSEWHERE}"
        )
    hidden = [key for key, _ in query if _SECRET.search(key)]
    options = _write_query((key, value) for key, value in query if key not in hidden)
    shown = f"postgresql://{f'{name}@' * bool(name)}{host}{parts.path}{'?' * bool(options)}{options}"
    if password or hidden:
        raise InputError("The address contains a password.", where=shown, next=KEEP_ELSEWHERE)
    given = dict(query)
    run, lease = given.pop("run", ""), given.pop("lease", None)
    if not re.fullmatch(r"[a-z0-9_]{0,40}", run):
        raise InputError(
            f"{run!r} cannot be the name of a run in a database.",
            where=shown,
            next="Write it in small letters, digits and _, as in ?run=society.",
        )
    if lease is not None and not (
        re.fullmatch(r"\d+(\.\d+)?", lease) and LEASES[0] <= float(lease) <= LEASES[1]
    ):
        raise InputError(
            f"{lease!r} cannot be a lease.", where=shown, next="Write its seconds, from 1 to 3600: ?lease=60"
        )
    connection = shown.partition("?")[0] + ("?" + _write_query(given.items()) if given else "")
    return RunAddress(shown, connection, run, None if lease is None else float(lease))


_EXAMPLE = "Write it as postgresql://USER@HOST/DATABASE."


def _write_query(pairs: Iterable[tuple[str, str]]) -> str:
    return urlencode(list(pairs), quote_via=quote, safe="/,")
