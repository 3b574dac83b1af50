"""Exports a run to files, in one loop over its sessions.

:func:`export_run` checks the options, writes every matching session to a folder beside the target, describes the result
in a manifest, and moves all files to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bactrian.errors import InputError
from bactrian.export.counts import ExportCounts
from bactrian.export.filters import Filters, SessionFilter
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.manifest import build_manifest, describe_files, list_written
from bactrian.export.redact import Redactor
from bactrian.export.registry import FORMATS
from bactrian.export.split import Split, locate_group, name_group
from bactrian.export.system_prompts import SystemPrompts
from bactrian.export.training_configs import DATASET_INFO, DataFile, Tool, check_tool, write_entry
from bactrian.files.atomic import MANIFEST, name_companion, write_atomically
from bactrian.prompts.pack import Pack
from bactrian.records.candidate import Preference
from bactrian.records.finding import Finding
from bactrian.records.session import Kind, Session, find_kind
from bactrian.records.turn import Speaker
from bactrian.store import RunReader, list_run_files


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The format, filters and target of an export."""

    format: Format
    """A built-in one (:func:`~bactrian.export.registry.find_format`), or one of your own."""
    out: Path
    filters: Filters = field(default_factory=Filters)
    split: Split = field(default_factory=Split)
    side: Speaker = "assistant"
    findings: Callable[[Session], Sequence[Finding]] | None = None
    """Finds the behaviours of a session, for a format that needs them; None finds none."""
    choices: Callable[[Session], Sequence[Preference]] | None = None
    """Finds the choices of a session, for a format that needs them; None means those stored in the run."""
    tool: Tool | None = None
    """The training tool to write a configuration for."""
    redact: bool = False
    thoughts: bool = False
    """True to include thoughts of reasoning models."""
    plain: bool = False
    """True to leave out system prompts and the words of the protocol."""
    overwrite: bool = False
    license: str = ""
    """SPDX name of the data's licence; empty if not given."""
    pack: Pack | None = None
    """A user's prompt pack that sessions of the run were made with."""


OnProgress = Callable[[int, int | None], None]
"""Receives how many sessions are done, and of how many."""


async def export_run(
    store: RunReader, options: ExportOptions, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Export the current state of the run and return the manifest.

    ``on_progress`` is called with the number of sessions read, and of those in the run.

    Raises:
        InputError: the target exists or cannot be written, or no session fits the format.
        MissingExtra: the format, or redaction, needs an optional part.
        BactrianError: no space is left.
        StoreError: the run cannot be read.
    """
    _check_options(options)
    async with store.snapshot() as run:
        return await _export(run, options, on_progress)


async def _export(store: RunReader, options: ExportOptions, on_progress: OnProgress | None) -> dict[str, Any]:
    recipe = await store.recipe()
    context = ExportContext(
        store.path.stem, SystemPrompts(recipe, options.pack), options.side, options.thoughts, options.plain
    )
    with write_atomically(
        options.out,
        overwrite=options.overwrite,
        shared=frozenset((DATASET_INFO,)),
        protect=list_run_files(store.path),
    ) as stage:
        target = stage / options.out.name
        counts = await _write_sessions(store, options, context, target, on_progress)
        manifest = build_manifest(_describe_export(options, context, recipe), counts)
        if options.format.finish is not None:
            options.format.finish(target, manifest)
        _write_tool_config(options, stage)
        manifest["files"] = describe_files(stage)
        inside = target.is_dir() and options.format.manifest_inside
        path = target / MANIFEST if inside else stage / name_companion(target, MANIFEST)
        path.write_text(list_written(manifest), "utf-8")
    return manifest


_FILES = frozenset((".jsonl", ".json", ".csv", ".parquet"))
"""Suffixes of data files, which no folder should have."""
_FOLDERS = frozenset(("", ".zip"))
"""Suffixes of formats that write a folder, unless the target's own suffix asks for an archive."""


def _check_options(options: ExportOptions) -> None:
    divided = len(options.split.names) > 1
    if options.out.suffix in _FILES and (
        divided or options.format.layout or options.format.suffix in _FOLDERS
    ):
        raise InputError(
            f"{'A split' if divided else options.format.name} is a folder and not one file.",
            where=str(options.out),
            next=f"Name a folder: --out {options.out.with_suffix('')}",
        )
    if options.tool:
        check_tool(options.tool, options.format.name)
    if options.thoughts and not options.format.thoughts:
        fitting = [name for name, form in FORMATS.items() if form.thoughts]
        raise InputError(
            f"{options.format.name} does not support thoughts.",
            where="--thoughts",
            next=f"Formats that can: {', '.join(fitting)}.",
        )

    if options.plain and not options.format.plain:
        fitting = [name for name, form in FORMATS.items() if form.plain]
        raise InputError(
            f"{options.format.name} cannot be plain.",
            where="plain",
            next=f"Formats that can: {', '.join(fitting)}. alpaca is without the protocol's words in any case.",
        )


async def _write_sessions(
    store: RunReader,
    options: ExportOptions,
    context: ExportContext,
    target: Path,
    on_progress: OnProgress | None,
) -> ExportCounts:
    """Write every matching session to its part of the data."""
    counts = ExportCounts()
    fits = SessionFilter(options.filters)
    redactor = Redactor() if options.redact else None
    form = options.format
    places: set[float] = set()
    size = len([None async for _ in store.progress()]) if on_progress else 0
    with ExitStack() as stack:
        add = _open_parts(options, context, target, stack)
        async for session in store.sessions():
            if on_progress is not None:
                on_progress(counts.seen, size)
            counts.seen += 1
            if reason := _find_misfit(session, form) or fits.find_reason(session):
                counts.left_out[reason] += 1
                continue
            part = options.split.find_part(session)
            places.add(locate_group(name_group(session)))
            sample = await _build_sample(store, session, options, redactor)
            rows = add[part](sample)
            if not rows:
                counts.left_out[_name_empty(form)] += 1
                continue
            if not form.tools and any(turn.uses for turn in session.turns):
                context.notes[_WITHOUT_TOOLS] += 1
            counts.count(sample.session, part, rows)
        if redactor is not None:
            counts.redacted.update(redactor.found)
        if not counts.sessions:
            raise _explain_nothing(counts, options, str(store.path))
        options.split.check(counts.rows, places)
    return counts


_WITHOUT_TOOLS = "sessions are without what their agents called: only messages, csv and parquet contain it"


def _open_parts(
    options: ExportOptions, context: ExportContext, target: Path, stack: ExitStack
) -> Mapping[str, Add]:
    """Open the parts of the data. Return them by name."""
    parts = options.split.names
    add: dict[str, Add] = {}
    for part in parts:
        path = options.format.locate(target, part, divided=len(parts) > 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        add[part] = stack.enter_context(options.format.open(path, context))
    return add


async def _build_sample(
    store: RunReader, session: Session, options: ExportOptions, redactor: Redactor | None
) -> Sample:
    """Collect what the format needs of ``session``, redacted if requested."""
    choices: Sequence[Preference] = ()
    if "choices" in options.format.needs:
        find = options.choices
        choices = find(session) if find else tuple((await store.deliberation(session.id)).choices())
    if redactor is not None:
        session = redactor.redact_session(session)
        choices = [redactor.redact_choice(one) for one in choices]
    find_findings = options.findings if "findings" in options.format.needs else None
    return Sample(session, choices, find_findings(session) if find_findings else None)


def _find_misfit(session: Session, form: Format) -> Kind | None:
    """Return the kind of ``session`` if the format does not support it, else None."""
    kind = find_kind(session)
    return None if kind in form.kinds else kind


def _name_empty(form: Format) -> str:
    return f"nothing for {form.name} in it"


def _explain_nothing(counts: ExportCounts, options: ExportOptions, where: str) -> InputError:
    """Return the error that explains why no session was written."""
    form = options.format
    if not counts.seen:
        return InputError("The run has no session.", where=where, next="Generate or import some first.")
    if strange := [kind for kind in get_args(Kind) if counts.left_out[kind]]:
        fitting = [name for name, one in FORMATS.items() if strange[0] in one.kinds]
        return InputError(
            f"The run has sessions of the kind {strange[0]!r}, which {form.name} cannot contain.",
            where=where,
            next=f"Formats for them: {', '.join(fitting)}.",
        )
    if "choices" in form.needs and counts.left_out[_name_empty(form)]:
        return InputError(
            "The run has no choices of a critic, a person or a judge.",
            where=where,
            next="Use another format, or a run that was made with a critic.",
        )
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.left_out.items()))
    hint = "Relax the filters."
    if counts.left_out["unfinished"]:
        hint = "Finish the run, or include unfinished sessions with --unfinished."
    return InputError(f"No session is left to write: {reasons}.", where=where, next=hint)


def _describe_export(
    options: ExportOptions, context: ExportContext, recipe: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the options and the origin of the data, for the manifest."""
    plan: Mapping[str, Any] = recipe or {}
    made_from: Mapping[str, Any] = plan.get("recipe", {})
    return {
        "format": options.format.name,
        **({"side": options.side} if options.format.sides else {}),
        **({"thoughts": True} if options.thoughts else {}),
        **({"plain": True} if options.plain else {}),
        "run": {
            "name": context.run,
            "recipe": made_from.get("name"),
            "seed": plan.get("seed"),
        },
        "license": options.license or None,
        "filters": options.filters.describe(),
        "split": {"by": "pair of roles", **options.split.shares} if options.split.shares else None,
        "redacted": options.redact,
        "notes": dict(sorted((note, count) for note, count in context.notes.items() if count)),
    }


def _write_tool_config(options: ExportOptions, stage: Path) -> None:
    """Write the training tool's configuration, beside a file or inside a folder."""
    if options.tool is None:
        return
    target = stage / options.out.name
    folder = target if target.is_dir() else stage
    parts = options.split.names
    files = [
        DataFile(
            part,
            options.format.locate(target, part, divided=len(parts) > 1).relative_to(folder).as_posix(),
        )
        for part in parts
    ]
    name, text = write_entry(
        options.tool,
        options.format.name,
        options.out.name.split(".")[0],
        files,
        options.out.absolute().parent / DATASET_INFO,
    )
    (folder / name).write_text(text, "utf-8")
