"""Invitations to vote: a link for each voter. A voter is a pseudonym, and a link contains a token instead.

The file ``invitations.json`` beside the solutions keeps a hash of each token: a reader of the file cannot vote with it.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock
from pydantic import TypeAdapter

from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.records.text import clean_text

DEFAULT_ADDRESS = "http://127.0.0.1:8642"  # of `bactrian explore`
_FILE = "invitations.json"
_LONGEST_NAME = 64
_BYTES = 18  # Random bytes of a token: 24 characters


@dataclass(frozen=True, slots=True)
class Invitation:
    """A voter and the hash of the voter's token."""

    voter: str  # A pseudonym
    digest: str  # SHA-256 of the token, hexadecimal
    created: float  # Seconds since 1970


_ADAPTER = TypeAdapter(dict[str, list[Invitation]])


def read_invitations(folder: Path) -> list[Invitation]:
    """Return the invitations of an evaluation, oldest first.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / _FILE
    try:
        return _ADAPTER.validate_json(path.read_bytes())["invitations"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError) as error:
        raise InputError(
            "The file of invitations cannot be read.",
            where=str(path),
            next="Move it away and invite the voters again; their votes are kept under their pseudonyms.",
        ) from error


def invite_voters(folder: Path, names: Sequence[str]) -> Mapping[str, str]:
    """Store an invitation for each pseudonym and return the tokens by pseudonym. A new token replaces an old one.

    Raises:
        InputError: a name is not a pseudonym of 1 to 64 characters, or occurs twice.
    """
    voters = [_check_name(name) for name in names]
    if len(set(voters)) < len(voters):
        raise InputError("A pseudonym occurs twice.", next="Give each voter a pseudonym of their own.")
    tokens = {voter: secrets.token_urlsafe(_BYTES) for voter in voters}
    new = [Invitation(voter, _hash_token(token), time.time()) for voter, token in tokens.items()]
    with FileLock(folder / f".{_FILE}.lock"):
        kept = [entry for entry in read_invitations(folder) if entry.voter not in tokens]
        _write(folder, (*kept, *new))
    return tokens


def withdraw_invitation(folder: Path, voter: str) -> None:
    """Make a voter's link invalid. The voter's votes stay.

    Raises:
        InputError: no voter of this name is invited.
    """
    with FileLock(folder / f".{_FILE}.lock"):
        have = read_invitations(folder)
        kept = [entry for entry in have if entry.voter != voter]
        if len(kept) == len(have):
            known = ", ".join(entry.voter for entry in have) or "nobody is invited"
            raise InputError(f"Nobody is named {voter!r}.", where=str(folder), next=f"Invited: {known}.")
        _write(folder, kept)


def merge_invitations(folders: Iterable[Path], target: Path) -> None:
    """Write all invitations of ``folders`` into ``target``; of two for one person, the newer one. Raises InputError."""
    found = sorted(
        (each for folder in folders for each in read_invitations(folder)), key=lambda each: each.created
    )
    if merged := {each.voter: each for each in found}:
        with FileLock(target / f".{_FILE}.lock"):
            _write(target, merged.values())


def find_voter(folder: Path, token: str) -> str | None:
    """Return the pseudonym that ``token`` was made for; None if it is not valid."""
    digest = _hash_token(token)
    return next((entry.voter for entry in read_invitations(folder) if entry.digest == digest), None)


def name_voters(count: int, kind: str = "voter") -> list[str]:
    """Return ``count`` random pseudonyms, which begin with ``kind``."""
    return [f"{kind}-{secrets.token_hex(3)}" for _ in range(count)]


def check_address(address: str) -> str:
    """Return the address of a server without a slash at its end. Raises InputError."""
    parts = urlsplit(address)
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.netloc) and not parts.query
        is_address &= parts.port is None or parts.port > 0
    except ValueError:  # of a port
        is_address = False
    if not is_address:
        raise InputError(
            f"{address!r} is not the address of a server.", next="Give it like http://lab-machine:8642."
        )
    return address.rstrip("/")


def tell_server(run: Path, address: str) -> str:
    """Return in words which command serves the links to ``address``."""
    parts = urlsplit(address)
    host = "" if parts.hostname in ("127.0.0.1", "localhost", "::1") else " --host 0.0.0.0"
    port = f" --port {parts.port}" if parts.port not in (None, urlsplit(DEFAULT_ADDRESS).port) else ""
    command = f"bactrian explore {shlex.quote(str(run))} --edit{host}{port}"
    more = "For people on other computers, or another port, repeat this with --address."
    return f"The links work while this runs: {command}\n{more}"


def make_links(address: str, page: str, tokens: Mapping[str, str]) -> dict[str, str]:
    """Return the link of each person to a page of the server at ``address``. Raises InputError."""
    base = check_address(address)
    return {name: f"{base}/{page}?invite={token}" for name, token in tokens.items()}


def _check_name(name: str) -> str:
    voter = " ".join(clean_text(name).split())
    if not 0 < len(voter) <= _LONGEST_NAME:
        raise InputError("A pseudonym has 1 to 64 characters.", where=name[:80], next="Give a shorter name.")
    if "@" in voter:
        raise InputError(
            f"{voter!r} looks like an address; votes carry only a pseudonym.",
            next="Invent a name, such as heron.",
        )
    return voter


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _write(folder: Path, invitations: Iterable[Invitation]) -> None:
    content = _ADAPTER.dump_json({"invitations": list(invitations)}, indent=1)
    with write_atomically(folder / _FILE, overwrite=True) as stage:
        (stage / _FILE).write_bytes(content + b"\n")
