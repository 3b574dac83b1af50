"""Copies of shared runs."""

from __future__ import annotations

from pathlib import Path

from bactrian.errors import InputError
from bactrian.store import RunAddress, find_address, locate_run


def pull(run: str | Path, file: str | Path) -> int:
    """Copy a shared run to ``file``, or what it lacks of the run; return the number of sessions that were read.

    Raises:
        InputError: ``run`` is no address, the database cannot be used, or the file is another run.
        StoreError: the file cannot be written.
    """
    from bactrian.shared.copies import pull_run

    return pull_run(_need_address(run), Path(file))


def push(run: str | Path, address: str | Path) -> int:
    """Copy a run to a database, where any number of processes continue it; return the number of its sessions.

    Raises:
        InputError: the database cannot be used, or holds such a run already.
        StoreError: the run cannot be read.
    """
    from bactrian.shared.copies import push_run

    return push_run(Path(run), _need_address(address))


def _need_address(run: str | Path) -> RunAddress:
    address = find_address(locate_run(run))
    if address is None:
        raise InputError(
            "This is not the address of a shared run.",
            where=str(run),
            next="Write it as postgresql://USER@HOST/DATABASE.",
        )
    return address
