"""``bactrian export``: write a run in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from bactrian.api.export import ExportChoices, export_session_data
from bactrian.cli.options import RunArgument, declare_option, flatten_groups
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import Tell, show_bar
from bactrian.cli.terminal.console import open_output, open_progress, to_printable
from bactrian.export.manifest import list_written
from bactrian.export.registry import list_formats
from bactrian.export.split import read_split
from bactrian.language.escape import to_line
from bactrian.records.text import write_count


class ExportSide(StrEnum):
    """The agent whose messages a model is to learn."""

    assistant = "assistant"
    user = "user"


class TrainingTool(StrEnum):
    """A training tool that ``--for`` writes a configuration for."""

    trl = "trl"
    axolotl = "axolotl"
    llama_factory = "llama-factory"


@dataclass(frozen=True, slots=True)
class SelectionFlags:
    """The sessions to export."""

    only: Annotated[
        list[str] | None,
        declare_option(
            "--only",
            "Only sessions with ending=CODE or finding=CODE; `runs`: whose code runs in the sandbox. Can be repeated.",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        declare_option(
            "--drop", "Leave out sessions with finding=CODE, ending=CODE or mark=NAME. Can be repeated."
        ),
    ] = None
    ids: Annotated[
        list[str] | None,
        declare_option("--id", "Only sessions with this id; * stands for any characters. Can be repeated."),
    ] = None
    role: Annotated[
        list[str] | None, declare_option("--role", "Only sessions with this role. Can be repeated.")
    ] = None
    pair: Annotated[
        list[str] | None,
        declare_option("--pair", "Only this pair of roles: 'ASSISTANT x USER'. Can be repeated."),
    ] = None
    task: Annotated[
        list[str] | None, declare_option("--task", "Only tasks with these words. Can be repeated.")
    ] = None
    mark: Annotated[
        list[str] | None, declare_option("--mark", "Only sessions with this mark. Can be repeated.")
    ] = None
    min_rounds: Annotated[int, declare_option("--min-rounds", "Minimum rounds of a session.", min=0)] = 0
    unfinished: Annotated[bool, declare_option("--unfinished", "Include unfinished sessions.")] = False
    dedup: Annotated[bool, declare_option("--dedup", "Keep only the first of identical sessions.")] = False
    decontaminate: Annotated[
        Path | None,
        declare_option(
            "--decontaminate", "Leave out sessions that quote this benchmark file (HumanEval's format)."
        ),
    ] = None


@flatten_groups
def export(
    run_file: RunArgument,
    form: Annotated[
        str,
        declare_option(
            "--format", f"Format of the data: {', '.join(list_formats())}, or one of another package."
        ),
    ],
    out: Annotated[Path, declare_option("--out", "File or folder to write.")],
    *,
    selection: SelectionFlags,
    side: Annotated[
        ExportSide, declare_option("--side", "Agent whose messages a model learns to write.")
    ] = ExportSide.assistant,
    redact: Annotated[
        bool,
        declare_option("--redact", "Remove secrets, e-mail addresses, telephone, card and account numbers."),
    ] = False,
    thoughts: Annotated[
        bool,
        declare_option("--thoughts", "Include thoughts of reasoning models, if the format supports it."),
    ] = False,
    plain: Annotated[
        bool,
        declare_option("--plain", "Leave out the system prompts and the words of the protocol."),
    ] = False,
    split: Annotated[
        list[str] | None,
        declare_option(
            "--split",
            "Fraction of the role pairs to put into another split: validation=0.05. Can be repeated.",
        ),
    ] = None,
    tool: Annotated[
        TrainingTool | None, declare_option("--for", "Also write this tool's configuration.")
    ] = None,
    license_name: Annotated[str, declare_option("--license", "Licence of the data, for its card.")] = "",
    prompts: Annotated[
        str | None, declare_option("--prompts", "Prompt pack of the run, if it is your own.")
    ] = None,
    overwrite: Annotated[bool, declare_option("--overwrite", "Replace an existing export.")] = False,
    json: Annotated[bool, declare_option("--json", "Write the manifest.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Show no progress, and only errors.")] = False,
) -> None:
    """Export a run in a format that other tools read."""
    more = ExportChoices(
        side=side.value,
        min_rounds=selection.min_rounds,
        unfinished=selection.unfinished,
        dedup=selection.dedup,
        decontaminate=selection.decontaminate,
        redact=redact,
        thoughts=thoughts,
        plain=plain,
        split=split or [],
        tool=tool.value if tool else None,
        license=license_name,
        prompts=prompts,
        id=selection.ids or (),
        role=selection.role or (),
        pair=selection.pair or (),
        task=selection.task or (),
        mark=selection.mark or (),
    )
    parts = read_split(split or []).names

    def work(tell: Tell) -> Coroutine[Any, Any, dict[str, Any]]:
        return export_session_data(
            run_file,
            form,
            out,
            only=selection.only or (),
            drop=selection.drop or (),
            overwrite=overwrite,
            more=more,
            on_progress=tell,
        )

    run_async(_export(work, out, parts, json=json, quiet=quiet), resume="Nothing was written.")


async def _export(
    work: Callable[[Tell], Coroutine[Any, Any, dict[str, Any]]],
    out: Path,
    parts: tuple[str, ...],
    *,
    json: bool,
    quiet: bool,
) -> int:
    """Write the data and print a summary."""
    with show_bar("Exporting", "sessions", quiet=quiet) as tell:
        made = await work(tell)
    if json:
        print(list_written(made), end="")
    if quiet:
        return 0
    said = open_progress() if json else open_output()
    counts = made["counts"]
    if not counts["sessions"]:  # Lists.
        files, items = len(made["files"]), sum(counts["rows"].values())
        said.say(to_printable(f"{out}: {made['format']}, {items:,} items in {files:,} files"))
        return 0
    said.say(
        to_printable(
            f"{out}: {made['format']}, {write_count(sum(counts['rows'].values()), 'row')}"
            f" from {write_count(counts['sessions'], 'session')}"
            f" with {write_count(counts['messages'], 'message')}"
        )
    )
    for name, rows in counts["rows"].items():
        if len(parts) > 1:
            said.say(f"  {name}: {write_count(rows, 'row')}")
    for reason, count in counts["left_out"].items():
        open_progress().say(to_line(f"Left out: {count:,} × {reason}"))
    if counts["left_out"].get("unfinished"):
        open_progress().say(
            "The run is incomplete: only sessions that had ended were exported. --unfinished includes the others."
        )
    for note, count in made["notes"].items():
        open_progress().say(f"{count:,} × {note}")
    for kind, count in counts["redacted"].items():
        open_progress().say(f"Removed: {count:,} × {kind}")
    for mark in made["marks"]:
        open_progress().say(to_line(f"Marked: {mark}"))
    return 0
