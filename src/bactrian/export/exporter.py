"""Exports a run to files: its sessions in one loop, or its lists.

:func:`export_run` checks the options, writes every matching session to a folder beside the target, describes the result
in a manifest, and moves all files to the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bactrian.errors import InputError, explain_own_errors
from bactrian.export import manifest
from bactrian.export.format import Add, ExportContext, Format, Sample, SystemPrompts
from bactrian.export.formats import FORMATS, LISTS
from bactrian.export.redact import Redactor
from bactrian.export.session_filters import Filters, SessionFilter, Split, locate_group, name_group
from bactrian.files.atomic import MANIFEST, name_companion, write_atomically
from bactrian.protocol.pack import Pack
from bactrian.records.run import Finding
from bactrian.records.session import DUPLICATE, Kind, Session, find_kind
from bactrian.records.text import to_path_part
from bactrian.records.turn import Preference, Speaker
from bactrian.store import RunStore
from bactrian.store.locations import list_run_files


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The format, filters and target of an export."""

    format: Format
    """A built-in one (:func:`~bactrian.export.formats.find_format`), or one of your own."""
    out: Path
    filters: Filters = field(default_factory=Filters)
    split: Split = field(default_factory=Split)
    side: Speaker = "assistant"
    findings: Callable[[Session], Sequence[Finding]] | None = None
    """Finds the behaviours of a session, for a format that needs them; None finds none."""
    choices: Callable[[Session], Sequence[Preference]] | None = None
    """Finds the choices of a session, for a format that needs them; None means those stored in the run."""
    tool: manifest.Tool | None = None
    """The training tool to write a configuration for."""
    redact: bool = False
    thoughts: bool = False
    """True to include thoughts of reasoning models."""
    plain: bool = False
    """True to leave out system prompts and the words of the protocol."""
    overwrite: bool = False
    license: str = ""
    """SPDX name of the data's licence; empty if not given."""
    ids: Sequence[str] | None = None
    """Only these sessions are read; None for all."""
    asked: frozenset[str] | None = None
    """The sessions that the last command asked for: others are noted; None if it does not matter."""
    pack: Pack | None = None
    """A user's prompt pack that sessions of the run were made with."""


# Receives how many sessions are done, and of how many.
OnProgress = Callable[[int, int | None], None]


async def export_run(
    store: RunStore, options: ExportOptions, on_progress: OnProgress | None = None
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
    form = options.format
    what = f"The format {form.name!r} failed"
    own = nullcontext() if form in FORMATS.values() else explain_own_errors(what, form.name, "Fix its code.")
    async with store.snapshot() as run:
        with own:
            return await _export(run, options, on_progress)


async def _export(store: RunStore, options: ExportOptions, on_progress: OnProgress | None) -> dict[str, Any]:
    recipe = await store.recipe()
    context = ExportContext(
        store.path.stem, SystemPrompts(recipe, options.pack), options.side, options.thoughts, options.plain
    )
    with write_atomically(
        options.out,
        overwrite=options.overwrite,
        listed=True,
        shared=frozenset((manifest.DATASET_INFO,)),
        protect=list_run_files(store.path),
    ) as stage:
        target = stage / options.out.name
        counts = await _write_sessions(store, options, context, target, on_progress)
        made = manifest.build_manifest(_describe_export(options, context, recipe), counts)
        if options.format.finish is not None:
            options.format.finish(target, made)
        _write_tool_config(options, stage)
        if target.is_symlink() or not target.exists():
            raise ValueError("it wrote no file or folder of the name that it was given")
        inside = target.is_dir() and options.format.manifest_inside
        path = target / MANIFEST if inside else stage / name_companion(target)
        manifest.write_manifest(made, stage, path)
    return made


# Suffixes of data files, which no folder should have.
_FILES = frozenset((".jsonl", ".json", ".csv", ".parquet"))
# Suffixes of formats that write a folder, unless the target's own suffix asks for an archive.
_FOLDERS = frozenset(("", ".zip"))


def _check_options(options: ExportOptions) -> None:
    form, divided = options.format, len(options.split.names) > 1
    if options.out.suffix in _FILES and (divided or form.layout or form.suffix in _FOLDERS):
        raise InputError(
            f"{'A split' if divided else form.name} is a folder and not one file.",
            where=str(options.out),
            next=f"Name a folder: out={options.out.with_suffix('')}",
        )
    if options.tool:
        manifest.check_tool(options.tool, form.name)
    for name, what, more in (
        ("thoughts", "does not support thoughts", ""),
        ("plain", "cannot be plain", " alpaca is without the protocol's words in any case."),
    ):
        if getattr(options, name) and not getattr(form, name):
            fitting = ", ".join(other.name for other in FORMATS.values() if getattr(other, name))
            raise InputError(
                f"{form.name} {what}.", where=f"--{name}", next=f"Formats that can: {fitting}.{more}"
            )
    if options.side != "assistant" and not form.sides:
        fitting = ", ".join(other.name for other in FORMATS.values() if other.sides)
        raise InputError(
            f"{form.name} is not written from one side.",
            where=f"side={options.side}",
            next=f"Formats that are: {fitting}.",
        )


async def _write_sessions(
    store: RunStore,
    options: ExportOptions,
    context: ExportContext,
    target: Path,
    on_progress: OnProgress | None,
) -> manifest.ExportCounts:
    """Write every matching session to its part of the data."""
    counts = manifest.ExportCounts()
    fits = SessionFilter(options.filters)
    redactor = Redactor() if options.redact else None
    form = options.format
    places: set[float] = set()
    written: dict[bytes, str] = {}
    ids = await _list_ids(store, options.ids)
    with ExitStack() as stack:
        add: dict[str, Add] = {}
        for part, path in _locate_parts(options, target).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            add[part] = stack.enter_context(form.open(path, context))
        async for session in _read_sessions(store, ids):
            if on_progress is not None:
                on_progress(counts.seen, len(ids))
            counts.seen += 1
            kind = find_kind(session)
            if reason := fits.find_reason(session) if kind in form.kinds else kind:
                counts.left_out[reason] += 1
                continue
            part = options.split.find_part(session)
            places.add(locate_group(name_group(session)))
            sample = await _build_sample(store, session, options, redactor)
            if options.filters.dedup:
                first = written.setdefault(_identify(sample, options, context), session.id)
                if first != session.id:
                    counts.left_out["duplicate"] += 1
                    counts.duplicates[session.id] = first
                    continue
            rows = add[part](sample)
            if not rows:
                counts.left_out[f"nothing for {form.name} in it"] += 1
                continue
            if not form.tools and any(turn.uses for turn in session.turns):
                context.notes[_WITHOUT_TOOLS] += 1
            if options.asked is not None and session.id not in options.asked:
                context.notes[_BESIDE] += 1
            counts.count(sample.session, part, rows)
        if redactor is not None:
            counts.redacted.update(redactor.passages)
        if not counts.written:
            raise _explain_nothing(counts, options, str(store.path))
        options.split.check(counts.rows, places)
    whole = len(counts.written) == counts.seen and options.ids is None
    spent = await store.list_spent(None if whole else counts.written, each=False)
    counts.attended = len(await store.list_attended(counts.written))
    # Nobody knows what another program took.
    unknown = (await store.list_imported()).issuperset(counts.written)
    counts.tokens = sum(part.usage.total for part in spent) or (None if unknown else 0)
    if not whole:
        counts.tokens_of = "the exported conversations"
    return counts


async def _list_ids(store: RunStore, chosen: Sequence[str] | None) -> list[str]:
    """Return the ids of sessions in the order of the jobs, and where there are none, in that of their beginning.

    Jobs begin in the order in which a model writes their lists, which is another one each time.
    """
    has_jobs = await store.recipe() is not None
    ids = [each.id async for each in store.progress()] if has_jobs else await store.list_created()
    only = None if chosen is None else frozenset(chosen)
    return [each for each in ids if only is None or each in only]


async def _read_sessions(store: RunStore, ids: Sequence[str]) -> AsyncIterator[Session]:
    if ids == list(await store.list_created()):
        async for session in store.sessions():  # many at a time
            yield session
        return
    for session_id in ids:
        if (session := await store.session(session_id)) is not None:
            yield session


def _identify(sample: Sample, options: ExportOptions, context: ExportContext) -> bytes:
    """Return a hash of all that a reader of the format sees of a sample, but for where it comes from."""
    form, session = options.format, sample.session
    turns = [
        (
            turn.speaker,
            turn.role,
            turn.text,
            turn.thought if options.thoughts else "",
            turn.uses if form.tools else (),
        )
        for turn in session.turns
    ]
    has_prompts = (form.sides or "choices" in form.needs) and not options.plain
    content = (
        (session.assistant, session.user, session.task, session.mark),
        sorted((key, value) for key, value in session.values.items() if key != DUPLICATE),
        session.ending and session.ending.code,
        turns,
        context.prompts.render(session) if has_prompts else None,
        [(choice.number, choice.texts, choice.index) for choice in sample.choices],
    )
    return hashlib.blake2b(repr(content).encode(), digest_size=16).digest()


_BESIDE = "sessions are not of the jobs that the last command asked for: the filter `asked` leaves them out"
_WITHOUT_TOOLS = "sessions are without what their agents called: only messages, csv and parquet contain it"


def _locate_parts(options: ExportOptions, target: Path) -> dict[str, Path]:
    """Return where each part of the data is written."""
    names = options.split.names
    return {name: options.format.locate(target, name, divided=len(names) > 1) for name in names}


async def _build_sample(
    store: RunStore, session: Session, options: ExportOptions, redactor: Redactor | None
) -> Sample:
    """Collect what the format needs of ``session``, redacted if requested."""
    choices: Sequence[Preference] = ()
    if "choices" in options.format.needs:
        find = options.choices
        choices = find(session) if find else tuple((await store.deliberation(session.id)).choices())
    if redactor is not None:
        session = redactor.redact_session(session)
        choices = [redactor.redact_choice(choice) for choice in choices]
    find_findings = options.findings if "findings" in options.format.needs else None
    return Sample(session, choices, find_findings(session) if find_findings else None)


def _explain_nothing(counts: manifest.ExportCounts, options: ExportOptions, where: str) -> InputError:
    """Return the error that explains why no session was written."""
    form = options.format
    if not counts.seen:
        return InputError("The run has no session.", where=where, next="Generate or import some first.")
    if strange := [kind for kind in get_args(Kind) if counts.left_out[kind]]:
        fitting = [
            name
            for name, other in FORMATS.items()
            if strange[0] in other.kinds and "choices" not in other.needs
        ]
        return InputError(
            f"The run has sessions of the kind {strange[0]!r}, which {form.name} cannot contain.",
            where=where,
            next=f"Formats for them: {', '.join(fitting)}.",
        )
    if "choices" in form.needs and counts.left_out[f"nothing for {form.name} in it"]:
        return InputError(
            "The run has no choices of a critic, a person or a judge.",
            where=where,
            next="Use another format, or a run that was made with a critic.",
        )
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.left_out.items()))
    hint = "Relax the filters."
    if counts.left_out["unfinished"]:
        hint = "Finish the run, or include unfinished sessions with unfinished=True."
    return InputError(f"No session is left to write: {reasons}.", where=where, next=hint)


def _describe_export(
    options: ExportOptions, context: ExportContext, recipe: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the options and the origin of the data, for the manifest."""
    return {
        "format": options.format.name,
        **({"side": options.side} if options.format.sides else {}),
        **({"thoughts": True} if options.thoughts else {}),
        **({"plain": True} if options.plain else {}),
        "run": _describe_run(context.run, recipe),
        "license": options.license or None,
        "filters": {
            **({} if options.ids is None else {"sessions": len(options.ids)}),
            **options.filters.describe(),
        },
        "split": {"by": "pair of roles", **options.split.shares} if options.split.shares else None,
        "redacted": options.redact,
        "notes": dict(sorted((note, count) for note, count in context.notes.items() if count)),
    }


def _describe_run(name: str, recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    plan: Mapping[str, Any] = recipe or {}
    made_from: Mapping[str, Any] = plan.get("recipe", {})
    return {"name": name, "recipe": made_from.get("name"), "seed": plan.get("seed")}


def _write_tool_config(options: ExportOptions, stage: Path) -> None:
    """Write the training tool's configuration, beside a file or inside a folder."""
    if options.tool is None:
        return
    target = stage / options.out.name
    folder = target if target.is_dir() else stage
    parts = {
        part: path.relative_to(folder).as_posix() for part, path in _locate_parts(options, target).items()
    }
    present = options.out.absolute().parent / manifest.DATASET_INFO
    stem = options.out.name.split(".")[0]
    name, text = manifest.write_entry(options.tool, options.format.name, stem, parts, present)
    (folder / name).write_text(text, "utf-8")


# ``camel-lists``: the lists of a run (roles, tasks, topics) in the layout of CAMEL's own list files.
#
# An axis is one file, ``assistant_roles.txt``; a list for each combination is a file of its own,
# ``tasks/Accountant_Actor.txt``. A line is ``N. Item``.


# Names of CAMEL's files that are not the axis with an s.
_PLURALS = {"programming_language": "languages"}

# The items of each list, by its id: the axis, and after ``@`` the positions of the items it depends on.
Items = Mapping[str, Sequence[str]]


async def export_lists(store: RunStore, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the lists of a run to the folder ``out``, and return the manifest.

    Raises:
        InputError: the target exists or cannot be written, the run was not made from a recipe, or two lists would
            have the same file.
        StoreError: the run cannot be read.
    """
    async with store.snapshot() as run:
        recipe = await run.recipe()
        if recipe is None or "recipe" not in recipe:
            raise InputError(
                "This run was not made from a recipe, so it has no lists.",
                where=str(store.path),
                next="Export a run of `generate`.",
            )
        axes: Sequence[Mapping[str, Any]] = recipe["recipe"]["axes"]
        lists = {stored.id: stored.items async for stored in run.item_lists()}
    lists |= {f"{axis['name']}@": axis["given"][: axis["count"]] for axis in axes if _is_complete(axis)}
    protect = list_run_files(store.path)
    with write_atomically(out, overwrite=overwrite, listed=True, protect=protect) as stage:
        target = stage / out.name
        target.mkdir()
        counts = manifest.ExportCounts()
        for list_id, items in lists.items():
            path = target / _find_path(list_id, axes, lists)
            if path.exists():
                raise InputError(
                    f"Two lists of the run would be the file {path.name!r}.",
                    where=str(out),
                    next="Rename an item that contains an underscore.",
                )
            path.parent.mkdir(exist_ok=True)
            lines = (f"{number}. {' '.join(item.split())}\n" for number, item in enumerate(items, start=1))
            path.write_text("".join(lines), "utf-8")
            counts.rows[path.relative_to(target).parts[0].removesuffix(".txt")] += len(items)
        options = {"format": LISTS, "run": _describe_run(store.path.stem, recipe), "notes": {}}
        made = manifest.build_manifest(options, counts)
        manifest.write_manifest(made, stage, stage / name_companion(target))
    return made


def _is_complete(axis: Mapping[str, Any]) -> bool:
    """Return True if all items of an axis are given, so that the run stores no list for it."""
    enough = len(axis.get("given") or ()) >= axis["count"]
    return enough and not axis.get("fresh") and not axis.get("columns")


def _find_path(list_id: str, axes: Sequence[Mapping[str, Any]], lists: Items) -> str:
    """Return the path of a list: the axis in the plural, and the items that the list depends on."""
    name, _, positions = list_id.partition("@")
    plural = _PLURALS.get(name, f"{name}s")
    per: Sequence[str] = _find_axis(name, axes).get("per") or ()
    places: dict[str, int] = dict(zip(per, map(int, filter(None, positions.split("_"))), strict=False))
    if not places:
        return f"{plural}.txt"
    return f"{plural}/{'_'.join(to_path_part(_find_item(axis, places, axes, lists)) for axis in per)}.txt"


def _find_item(name: str, places: Mapping[str, int], axes: Sequence[Mapping[str, Any]], lists: Items) -> str:
    """Return the item of the axis ``name`` at its place; its number if the list that contains it is not determined."""
    per: Sequence[str] = _find_axis(name, axes).get("per") or ()
    if not set(per) <= places.keys():
        return str(places[name])
    widths = {axis: max(3, len(str(_find_axis(axis, axes)["count"]))) for axis in per}
    numbers = (f"{places[axis]:0{widths[axis]}}" for axis in per)
    items = lists.get(f"{name}@{'_'.join(numbers)}", ())
    return items[places[name] - 1] if places[name] <= len(items) else str(places[name])


def _find_axis(name: str, axes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((axis for axis in axes if axis["name"] == name), {"count": 0})
