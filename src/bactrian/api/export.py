"""Exports from Python and from the command line: own formats, and filters by codes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.errors import InputError
from bactrian.export.decontaminate import Benchmark
from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.filters import Filters, Predicate
from bactrian.files.plugins import list_plugins
from bactrian.files.toml import suggest_name
from bactrian.play.own_endings import GROUP as ENDINGS_GROUP
from bactrian.records.ending import ENDING_CODES
from bactrian.records.finding import BEHAVIOURS
from bactrian.records.session import Session
from bactrian.store import open_store


async def export_session_data(run: Path, wish: ExportOptions) -> dict[str, Any]:
    """Export the run at ``run`` and return the manifest. Raises what :func:`export_run` raises."""
    async with open_store(run, read_only=True) as store:
        return await export_run(store, wish)


async def list_ending_codes(run: Path) -> tuple[str, ...]:
    """The codes by which sessions of the run at ``run`` ended."""
    async with open_store(run, read_only=True) as store:
        codes = {one.ending: None async for one in store.progress() if one.ending is not None}
    return tuple(codes)


def read_filters(
    only: Sequence[str],
    drop: Sequence[str],
    *,
    endings: Collection[str],
    own: Sequence[OwnBehaviour] = (),
    min_rounds: int = 0,
    unfinished: bool = False,
    dedup: bool = False,
    benchmark: Benchmark | None = None,
) -> Filters:
    """Read ``ending=CODE`` and ``finding=CODE``. Besides the usual codes, those of ``endings`` and ``own`` are known.

    Raises:
        InputError: one of them is not a valid filter, or its code is not known.
    """
    known = {
        "ending": tuple(dict.fromkeys((*ENDING_CODES, *list_plugins(ENDINGS_GROUP), *endings))),
        "finding": (*BEHAVIOURS, *(one.code for one in own)),
    }

    def reject(text: str) -> Predicate:
        kind, code = _read_code(text, "--drop", ("finding", "ending"), known)
        if kind == "ending":
            return lambda session: session.ending is not None and session.ending.code == code
        return lambda session: _shows(session, code, own)

    return Filters(
        endings=frozenset(_read_code(text, "--only", ("ending",), known)[1] for text in only),
        reject={text: reject(text) for text in drop},
        min_rounds=min_rounds,
        unfinished=unfinished,
        dedup=dedup,
        benchmark=benchmark,
    )


def _shows(session: Session, code: str, own: Sequence[OwnBehaviour]) -> bool:
    return any(found.behaviour == code for found in find_behaviours(session, own=own))


def _read_code(
    text: str, flag: str, kinds: tuple[str, ...], known: dict[str, tuple[str, ...]]
) -> tuple[str, str]:
    """The two sides of ``ending=task_done``."""
    kind, _, code = text.partition("=")
    if kind not in kinds or not code:
        raise InputError(
            f"{text!r} is not a valid filter.",
            where=flag,
            next=f"Write {' or '.join(f'{one}=CODE' for one in kinds)}.",
        )
    if code not in known[kind]:
        raise InputError(
            f"There is no {kind} {code!r}.{suggest_name(code, known[kind])}",
            where=flag,
            next=f"There are {', '.join(known[kind])}.",
        )
    return kind, code
