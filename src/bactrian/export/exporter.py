"""From a run to files, in one walk over its sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bactrian.errors import InputError
from bactrian.export.counts import ExportCounts
from bactrian.export.filters import Filters, SessionFilter
from bactrian.export.format import Add, ExportContext, Format
from bactrian.export.manifest import build_manifest, describe_files, list_written
from bactrian.export.redact import Redactor
from bactrian.export.registry import FORMATS
from bactrian.export.split import Split
from bactrian.export.system_prompts import SystemPrompts
from bactrian.export.training_configs import DATASET_INFO, DataFile, Tool, check_tool, write_entry
from bactrian.files.atomic import MANIFEST, companion_path, write_atomically
from bactrian.prompts.pack import Pack
from bactrian.records.candidate import Preference
from bactrian.records.finding import Finding
from bactrian.records.session import Kind, Session, find_kind
from bactrian.records.turn import Speaker
from bactrian.store import RunReader


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What to write, and where."""

    format: Format
    out: Path
    filters: Filters = field(default_factory=Filters)
    split: Split = field(default_factory=Split)
    side: Speaker = "assistant"
    findings: Callable[[Session], Sequence[Finding]] | None = None
    """Finds the behaviours of a session, for a format that lists them."""
    choices: Callable[[Session], Sequence[Preference]] | None = None
    """The choices between proposals of a session, for the format of preferences; None for those that the run keeps."""
    tool: Tool | None = None
    """The training tool to write a configuration for."""
    redact: bool = False
    overwrite: bool = False
    license: str = ""
    """SPDX name of the data's licence; empty if nobody said."""
    pack: Pack | None = None
    """A prompt pack of the user's own that sessions of the run were made with."""


async def export_run(store: RunReader, wish: ExportOptions) -> dict[str, Any]:
    """Write the run as ``wish`` says. Gives the manifest of what was written.

    Raises:
        InputError: the target is there already or cannot be written, or the run holds nothing for it.
        MissingExtra: the format, or redaction, needs an optional part.
        BactrianError: no space is left.
        StoreError: the run cannot be read.
    """
    if wish.tool:
        check_tool(wish.tool, wish.format.name)
    if wish.out.absolute() == store.path.absolute():
        raise InputError("This is the run itself.", where=str(wish.out), next="Use another --out.")
    recipe = await store.recipe()
    kept: dict[str, Sequence[Preference]] = {}

    def stored(session: Session) -> Sequence[Preference]:
        return kept.get(session.id, ())

    frame = ExportContext(
        store.path.stem, SystemPrompts(recipe, wish.pack), wish.side, wish.findings, wish.choices or stored
    )
    with write_atomically(wish.out, overwrite=wish.overwrite, shared=frozenset((DATASET_INFO,))) as stage:
        target = stage / wish.out.name
        tally = await _write(store, wish, frame, target, kept)
        made = build_manifest(_described(wish, frame, recipe), tally)
        if wish.format.finish is not None:
            wish.format.finish(target, made)
        _configure(wish, stage)
        made["files"] = describe_files(stage)
        inside = target.is_dir() and wish.format.manifest_inside
        place = target / MANIFEST if inside else stage / companion_path(target, MANIFEST)
        place.write_text(list_written(made), "utf-8")
    return made


async def _write(
    store: RunReader,
    wish: ExportOptions,
    frame: ExportContext,
    target: Path,
    choices: dict[str, Sequence[Preference]],
) -> ExportCounts:
    """Write every session that fits; for a format of choices, its own are put into ``choices`` before."""
    tally = ExportCounts()
    sieve = SessionFilter(wish.filters)
    redactor = Redactor() if wish.redact else None
    with ExitStack() as stack:
        add = _opened(wish, frame, target, stack)
        async for session in store.sessions():
            tally.seen += 1
            reason = _unfit(session, wish.format) or sieve.find_reason(session)
            if reason is None:
                part = wish.split.part(session)
                given = session if redactor is None else redactor.session(session)
                if wish.format.needs:
                    choices.clear()
                    known = await store.deliberation(session.id)
                    choices[session.id] = [
                        one if redactor is None else redactor.choice(one) for one in known.choices()
                    ]
                if rows := add[part](given):
                    if not wish.format.tools and any(turn.uses for turn in given.turns):
                        frame.notes[_WITHOUT_TOOLS] += 1
                    tally.count(given, part, rows)
                    continue
                reason = _nothing_in_it(wish)
            tally.left_out[reason] += 1
        if redactor is not None:
            tally.redacted.update(redactor.found)
        if not tally.sessions:
            raise _nothing(tally, wish, str(store.path))
    return tally


_WITHOUT_TOOLS = "sessions are without what their agents called: only messages, csv and parquet hold it"


def _opened(wish: ExportOptions, frame: ExportContext, target: Path, stack: ExitStack) -> Mapping[str, Add]:
    """The writer of each part of the data."""
    form, parts = wish.format, wish.split.names
    divided = len(parts) > 1
    add: dict[str, Add] = {}
    for part in parts:
        path = form.place(target, part, divided=divided)
        path.parent.mkdir(parents=True, exist_ok=True)
        add[part] = stack.enter_context(form.opened(path, frame))
    return add


def _unfit(session: Session, form: Format) -> Kind | None:
    kind = find_kind(session)
    return None if kind in form.kinds else kind


def _nothing(tally: ExportCounts, wish: ExportOptions, where: str) -> InputError:
    """Why nothing was written."""
    if not tally.seen:
        return InputError("The run holds no session.", where=where, next="Generate or import some first.")
    if strange := [kind for kind in get_args(Kind) if tally.left_out[kind]]:
        fitting = [name for name, form in FORMATS.items() if strange[0] in form.kinds]
        return InputError(
            f"The run holds sessions of the kind {strange[0]!r}, which {wish.format.name} cannot hold.",
            where=where,
            next=f"Formats for them: {', '.join(fitting)}.",
        )
    if wish.format.needs and tally.left_out[_nothing_in_it(wish)]:
        return InputError(f"The run holds no {wish.format.needs}.", where=where, next=_INSTEAD)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.left_out.items()))
    hint = "Loosen the filters."
    if tally.left_out["unfinished"]:
        hint = "Finish the run, or take unfinished sessions with --unfinished."
    return InputError(f"No session is left to write: {reasons}.", where=where, next=hint)


def _nothing_in_it(wish: ExportOptions) -> str:
    return f"nothing for {wish.format.name} in it"


_INSTEAD = "Use another format, or a run that was made with a critic."


def _described(wish: ExportOptions, frame: ExportContext, recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """The wish and the run, for the manifest."""
    plan: Mapping[str, Any] = recipe or {}
    made_from: Mapping[str, Any] = plan.get("recipe", {})
    return {
        "format": wish.format.name,
        **({"side": wish.side} if wish.format.sides else {}),
        "run": {
            "name": frame.run,
            "recipe": made_from.get("name"),
            "seed": plan.get("seed"),
        },
        "license": wish.license or None,
        "filters": wish.filters.described(),
        "split": {"by": "pair of roles", **wish.split.shares} if wish.split.shares else None,
        "redacted": wish.redact,
        "notes": dict(sorted((note, count) for note, count in frame.notes.items() if count)),
    }


def _configure(wish: ExportOptions, stage: Path) -> None:
    """Write the training tool's configuration, beside a file or inside a folder."""
    if wish.tool is None:
        return
    target = stage / wish.out.name
    folder = target if target.is_dir() else stage
    parts = wish.split.names
    divided = len(parts) > 1
    parts_of_it = [
        DataFile(part, wish.format.place(target, part, divided=divided).relative_to(folder).as_posix())
        for part in parts
    ]
    name, text = write_entry(
        wish.tool,
        wish.format.name,
        wish.out.name.split(".")[0],
        parts_of_it,
        wish.out.absolute().parent / DATASET_INFO,
    )
    (folder / name).write_text(text, "utf-8")
