"""Exports from Python and from the command line: own formats, and filters by codes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import BehaviourLike, OwnBehaviour, find_installed, read_behaviours
from bactrian.errors import InputError
from bactrian.export.decontaminate import Benchmark, read_benchmark
from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.filters import Filters, Predicate
from bactrian.export.format import Format
from bactrian.export.registry import find_format
from bactrian.export.split import read_split
from bactrian.export.training_configs import Tool as TrainingTool
from bactrian.files.plugins import list_plugins
from bactrian.files.toml import suggest_name
from bactrian.play.endings.own import GROUP as ENDINGS_GROUP
from bactrian.prompts.pack import load_pack
from bactrian.records.ending import ENDING_CODES
from bactrian.records.finding import BEHAVIOURS
from bactrian.records.session import Session
from bactrian.store import open_store


class ExportChoices(TypedDict, total=False):
    """What else :meth:`bactrian.Run.export` takes, by keyword."""

    side: Literal["assistant", "user"]
    """Whose words a model is to learn."""
    min_rounds: int
    """Rounds that a session has at least."""
    unfinished: bool
    """Sessions that have not ended, too."""
    dedup: bool
    """Only the first of sessions that say the same."""
    decontaminate: str | Path | None
    """No sessions that quote this benchmark file."""
    thoughts: bool
    """What reasoning models thought, too."""
    redact: bool
    """Take out secrets, addresses and numbers of persons."""
    split: Sequence[str]
    """Parts of the role pairs to set aside: ``["validation=0.05"]``."""
    tool: TrainingTool | None
    """Write this training tool's configuration, too."""
    license: str
    """Licence of the data, for its card."""
    prompts: str | None
    """Prompt pack of the user's own that the run was made with."""
    behaviours: Iterable[BehaviourLike]
    """Of the user's own, for ``drop`` and for formats that list findings."""


async def export_session_data(
    run: Path,
    format: str | Format,  # noqa: A002  as on the command line
    out: Path,
    *,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    overwrite: bool = False,
    more: ExportChoices,
) -> dict[str, Any]:
    """Export the run at ``run`` and return the manifest. Raises what :meth:`bactrian.Run.export` raises."""
    chosen = format if isinstance(format, Format) else find_format(format)
    own = merge_installed(more.get("behaviours", ()))
    benchmark, prompts = more.get("decontaminate"), more.get("prompts")
    filters = read_filters(
        only,
        drop,
        endings=await list_ending_codes(run) if only or drop else (),
        own=own,
        min_rounds=more.get("min_rounds", 0),
        unfinished=more.get("unfinished", False),
        dedup=more.get("dedup", False),
        benchmark=read_benchmark(Path(benchmark)) if benchmark else None,
    )
    options = ExportOptions(
        format=chosen,
        out=out,
        filters=filters,
        split=read_split(list(more.get("split", ()))),
        side=more.get("side", "assistant"),
        findings=(lambda session: find_behaviours(session, own=own)) if "findings" in chosen.needs else None,
        tool=more.get("tool"),
        redact=more.get("redact", False),
        thoughts=more.get("thoughts", False),
        overwrite=overwrite,
        license=more.get("license", ""),
        pack=load_pack(prompts) if prompts else None,
    )
    async with open_store(run, read_only=True) as store:
        return await export_run(store, options)


def merge_installed(behaviours: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """The user's own behaviours, and those that installed packages register under other codes."""
    given = read_behaviours(behaviours)
    codes = {one.code for one in given}
    return (*given, *(one for one in find_installed() if one.code not in codes))


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
