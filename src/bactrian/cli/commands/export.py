"""``bactrian export``: hand a run over to other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async

if TYPE_CHECKING:
    from bactrian.export.exporter import ExportOptions
    from bactrian.export.filters import Predicate


class ExportSide(StrEnum):
    """Whose words a model is to learn."""

    assistant = "assistant"
    user = "user"


class TrainingTool(StrEnum):
    """A training tool to write a configuration for."""

    trl = "trl"
    axolotl = "axolotl"
    llama_factory = "llama-factory"


def export(
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="The run.")],
    form: Annotated[str, declare_option("--format", "What to write; a wrong name lists them all.")],
    out: Annotated[Path, declare_option("--out", "File or folder to write.")],
    side: Annotated[
        ExportSide, declare_option("--side", "Whose words a model is to learn.")
    ] = ExportSide.assistant,
    only: Annotated[
        list[str] | None, declare_option("--only", "Only sessions with ending=CODE. Can be given often.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        declare_option("--drop", "No sessions with finding=CODE or ending=CODE. Can be given often."),
    ] = None,
    min_rounds: Annotated[
        int, declare_option("--min-rounds", "Rounds that a session has at least.", min=0)
    ] = 0,
    unfinished: Annotated[bool, declare_option("--unfinished", "Sessions that have not ended, too.")] = False,
    dedup: Annotated[
        bool, declare_option("--dedup", "Only the first of sessions that say the same.")
    ] = False,
    decontaminate: Annotated[
        Path | None,
        declare_option("--decontaminate", "No sessions that quote this benchmark file (HumanEval's form)."),
    ] = None,
    redact: Annotated[
        bool,
        declare_option(
            "--redact", "Take out secrets, e-mail addresses, telephone, card and account numbers."
        ),
    ] = False,
    thoughts: Annotated[
        bool,
        declare_option("--thoughts", "What reasoning models thought, too, where the format can hold it."),
    ] = False,
    split: Annotated[
        list[str] | None, declare_option("--split", "Part of the role pairs to set aside: validation=0.05.")
    ] = None,
    tool: Annotated[
        TrainingTool | None, declare_option("--for", "Write this tool's configuration, too.")
    ] = None,
    license_name: Annotated[str, declare_option("--license", "Licence of the data, for its card.")] = "",
    prompts: Annotated[
        str | None, declare_option("--prompts", "Your own prompt pack that the run was made with.")
    ] = None,
    overwrite: Annotated[bool, declare_option("--overwrite", "Replace an export that is there.")] = False,
    json: Annotated[bool, declare_option("--json", "Write the manifest.")] = False,
) -> None:
    """Write a run in a format that other tools read, whole or not at all."""
    from bactrian.analyze.behaviours.catalogue import find_behaviours
    from bactrian.export.decontaminate import read_benchmark
    from bactrian.export.exporter import ExportOptions
    from bactrian.export.filters import Filters
    from bactrian.export.registry import find_format
    from bactrian.export.split import read_split
    from bactrian.prompts.pack import load_pack

    chosen = find_format(form)
    options = ExportOptions(
        format=chosen,
        out=out,
        filters=Filters(
            endings=frozenset(_endings(only or [])),
            reject=_rejected(drop or []),
            min_rounds=min_rounds,
            unfinished=unfinished,
            dedup=dedup,
            benchmark=read_benchmark(decontaminate) if decontaminate else None,
        ),
        split=read_split(split or []),
        side=side.value,
        findings=find_behaviours if "findings" in chosen.needs else None,
        tool=tool.value if tool else None,
        redact=redact,
        thoughts=thoughts,
        overwrite=overwrite,
        license=license_name,
        pack=load_pack(prompts) if prompts else None,
    )
    run_async(_export(run_file, options, json=json), resume="Nothing was written.")


def _endings(only: list[str]) -> list[str]:
    return [_code(text, "--only", ("ending",))[1] for text in only]


def _rejected(drop: list[str]) -> dict[str, Predicate]:
    """What is to be left out, by the words of the command."""
    return {text: _predicate(*_code(text, "--drop", ("finding", "ending"))) for text in drop}


def _predicate(kind: str, code: str) -> Predicate:
    if kind == "ending":
        return lambda session: session.ending is not None and session.ending.code == code
    from bactrian.analyze.behaviours.catalogue import find_behaviours

    return lambda session: any(found.behaviour == code for found in find_behaviours(session))


def _code(text: str, flag: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    """The two sides of ``ending=task_done``."""
    from bactrian.errors import InputError
    from bactrian.files.toml import suggest_name
    from bactrian.records.ending import ENDING_CODES
    from bactrian.records.finding import BEHAVIOURS

    kind, _, code = text.partition("=")
    if kind not in kinds or not code:
        raise InputError(
            f"{text!r} is not a valid filter.",
            where=flag,
            next=f"Write {' or '.join(f'{one}=CODE' for one in kinds)}.",
        )
    codes = ENDING_CODES if kind == "ending" else BEHAVIOURS
    if code not in codes:
        raise InputError(
            f"There is no {kind} {code!r}.{suggest_name(code, codes)}",
            where=flag,
            next=f"There are {', '.join(codes)}.",
        )
    return kind, code


async def _export(run_file: Path, options: ExportOptions, *, json: bool) -> int:
    """Write the data and say what was written."""
    from bactrian.cli.terminal.console import open_output, open_progress, to_printable
    from bactrian.export.exporter import export_run
    from bactrian.export.manifest import list_written
    from bactrian.store import open_store

    async with open_store(run_file, read_only=True) as store:
        made = await export_run(store, options)
    if json:
        print(list_written(made), end="")
    said = open_progress() if json else open_output()
    counts = made["counts"]
    said.print(
        to_printable(
            f"{options.out}: {options.format.name}, {sum(counts['rows'].values()):,} rows"
            f" from {counts['sessions']:,} sessions with {counts['messages']:,} messages"
        )
    )
    for name, rows in counts["rows"].items():
        if len(options.split.names) > 1:
            said.print(f"  {name}: {rows:,} rows")
    for name in options.split.names:
        if name not in counts["rows"]:
            open_progress().print(f"{name} is empty: no pair of the run's {counts['pairs']:,} falls into it.")
    for reason, count in counts["left_out"].items():
        open_progress().print(to_printable(f"Left out: {count:,} × {reason}"))
    if counts["left_out"].get("unfinished"):
        open_progress().print(
            "The run is still being written, or was interrupted: this is what had ended. --unfinished takes the rest."
        )
    for note, count in made["notes"].items():
        open_progress().print(f"{count:,} × {note}")
    for kind, count in counts["redacted"].items():
        open_progress().print(f"Taken out: {count:,} × {kind}")
    for mark in made["marks"]:
        open_progress().print(to_printable(f"Marked: {mark}"))
    return 0
