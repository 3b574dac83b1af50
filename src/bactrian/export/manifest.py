"""What an export writes beside the data: the manifest, the card, and configurations of training tools."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bactrian._version import __version__
from bactrian.amounts import write_percent
from bactrian.blocks import to_code_span, to_markdown
from bactrian.errors import InputError
from bactrian.files.atomic import list_files
from bactrian.files.json_text import parse_json
from bactrian.records.session import HUMAN, SOURCE, UNFINISHED, Session, name_models
from bactrian.records.text import to_json, to_line
from bactrian.stats.intervals import Proportion, are_independent
from bactrian.store.database import SCHEMA as RUN_SCHEMA
from bactrian.tables.tables import list_set, to_compact_json

# Of the manifest itself.
SCHEMA = 1
# Most distinct sampling parameters that are listed.
_MOST = 50


@dataclass(slots=True)
class ExportCounts:
    """Numbers of an export: sessions written and left out."""

    seen: int = 0
    # Sessions left out, by reason.
    left_out: Counter[str] = field(default_factory=Counter[str])
    # By part.
    rows: Counter[str] = field(default_factory=Counter[str])
    # That were written.
    written: list[str] = field(default_factory=list[str])
    # Of the sessions that were written.
    messages: int = 0
    # All that was paid for them; for a whole run, with its lists.
    tokens: int | None = 0
    # Messages that people wrote, and sessions in which a person wrote or chose one.
    by_people: int = 0
    attended: int = 0
    tokens_of: str = "the whole run, with its lists"
    endings: Counter[str] = field(default_factory=Counter[str])
    # Hashes of the role pairs, and of the tasks before a specifier changed them.
    pairs: set[int] = field(default_factory=set[int])
    tasks: set[int] = field(default_factory=set[int])
    # Agent and model.
    models: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    # Name and hash of the packs.
    prompts: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    # Agent, and its parameters as JSON; without the seed.
    sampling: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    languages: set[str] = field(default_factory=set[str])
    marks: set[str] = field(default_factory=set[str])
    # The data sets that sessions were imported from: name, revision and licence as JSON.
    sources: set[str] = field(default_factory=set[str])
    # For each session that was left out as a duplicate, the one that was written.
    duplicates: dict[str, str] = field(default_factory=dict[str, str])
    # Passages by kind.
    redacted: Counter[str] = field(default_factory=Counter[str])

    def count(self, session: Session, part: str, rows: int) -> None:
        """Count a session that was written as ``rows`` rows."""
        self.written.append(session.id)
        if type(rows) is not int or rows < 0:  # A format of a package returned it.
            raise ValueError(f"{rows!r:.200} is no number of rows")
        self.rows[part] += rows
        self.messages += len(session.turns)
        self.by_people += sum(turn.model == HUMAN for turn in session.turns)
        self.endings[session.ending.code if session.ending else UNFINISHED] += 1
        self.pairs.add(hash((session.assistant.name, session.user.name)))
        self.tasks.add(hash(session.task.original))
        origin = session.provenance
        self.models.update(name_models(session).items())
        self.prompts.add((origin.prompts, origin.prompts_hash))
        self.languages.add(session.values.get("language") or origin.language or "")
        if source := origin.extra.get(SOURCE):
            self.sources.add(to_compact_json(dict(source)))
        if session.mark:
            self.marks.add(session.mark)
        if len(self.sampling) < _MOST:
            for agent, values in origin.sampling.items():
                chosen = {name: value for name, value in list_set(values).items() if name != "seed"}
                self.sampling.add((agent, to_compact_json(chosen)))


def build_manifest(options: Mapping[str, Any], counts: ExportCounts) -> dict[str, Any]:
    """Build the manifest without its list of files, from what the export was asked for and its ``counts``."""
    return {
        "schema": {"manifest": SCHEMA, "run": RUN_SCHEMA},
        "bactrian": __version__,
        **options,
        # As SPDX writes it if several apply.
        "license": " AND ".join(_list_licenses(options.get("license"), counts)) or None,
        "counts": {
            "sessions_in_run": counts.seen,
            "sessions": len(counts.written),
            "rows": dict(sorted(counts.rows.items())),
            "messages": counts.messages,
            "messages_by_people": counts.by_people,
            "sessions_with_people": counts.attended,
            "tokens": counts.tokens,
            "tokens_of": counts.tokens_of,
            "pairs": len(counts.pairs),
            "tasks": len(counts.tasks),
            "left_out": dict(sorted(counts.left_out.items())),
            "redacted": dict(sorted(counts.redacted.items())),
        },
        "endings": dict(sorted(counts.endings.items())),
        "models": [{"agent": agent, "model": model} for agent, model in sorted(counts.models)],
        "prompts": [{"name": name, "sha256": digest} for name, digest in sorted(counts.prompts)],
        "sampling": [{"agent": agent, **json.loads(values)} for agent, values in sorted(counts.sampling)],
        "languages": sorted(filter(None, counts.languages)),
        "marks": sorted(counts.marks),
        "sources": _list_sources(counts),
        **({"duplicates": counts.duplicates} if counts.duplicates else {}),
    }


def _list_licenses(named: str | None, counts: ExportCounts) -> list[str]:
    """Return the licence that was ``named`` and those of the sources, each once."""
    of_sources = [source["license"] for source in _list_sources(counts) if "license" in source]
    return list({name.lower(): name for name in (*([named] if named else []), *of_sources)}.values())


def _list_sources(counts: ExportCounts) -> list[dict[str, str]]:
    return [json.loads(source) for source in sorted(counts.sources)]


def write_manifest(manifest: dict[str, Any], folder: Path, path: Path) -> None:
    """Add name, size in bytes and SHA-256 of every file in ``folder`` to the manifest, and write it to ``path``."""
    manifest["files"] = list_files(folder)
    path.write_text(format_manifest(manifest), "utf-8")


def format_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the manifest as text."""
    return to_json(manifest, indent=2) + "\n"


# The card of a data set: content, origin and purpose, with the run's own numbers.


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(manifest: Mapping[str, Any]) -> str:
    """Return the card of the data that this manifest describes: a YAML header and text."""
    counts, ended = manifest["counts"], dict(manifest["endings"])
    unfinished = ended.pop(UNFINISHED, 0)
    rows = sum(counts["rows"].values())
    independent = are_independent(counts["sessions"], counts["pairs"], counts["tasks"])
    return render_card(
        _read_resource("card.md.j2"),
        manifest,
        size=next((name for limit, name in _SIZES if rows < limit), "n>1M"),
        licenses=[name.lower() for name in (manifest["license"] or "").split(" AND ") if name],
        tags=["synthetic", "role-play", "multi-agent", *map(to_line, manifest["marks"])],
        codes=[code for code in manifest["languages"] if re.fullmatch(r"[a-z]{2,3}", code)] or ["en"],
        parts=sorted(counts["rows"], key=lambda part: (part != "train", part)),
        endings=[
            (code, Proportion(count, sum(ended.values()), independent)) for code, count in ended.items()
        ],
        unfinished=unfinished,
    )


def render_card(template: str, values: Mapping[str, Any], **more: Any) -> str:
    """Return a card: Markdown, which the template's own filters escape, after a header in YAML."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(  # noqa: S701
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(
        line=to_line,
        markdown=to_markdown,
        code=to_code_span,
        json=_dump_json,
        form=format,
        percent=write_percent,
    )
    return environment.from_string(template).render(values, **more)


def _dump_json(value: object, ensure_ascii: bool = False) -> str:
    return json.dumps(value) if ensure_ascii else to_json(value)


# Configuration entries of training tools for the exported data.


Tool = Literal["trl", "axolotl", "llama-factory"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
# LLaMA-Factory's list of data sets; other entries in it are kept.
DATASET_INFO = "dataset_info.json"


@cache
def _load_settings() -> dict[Tool, dict[str, Any]]:
    """Return what each tool needs to know of each format that it reads; for TRL, the columns that it may see."""
    return json.loads(_read_resource("training_tools.json"))


def _read_resource(name: str) -> str:
    return resources.files("bactrian.export").joinpath(name).read_text("utf-8")


def check_tool(tool: Tool, format_name: str) -> None:
    """Raise InputError if ``tool`` does not read the format."""
    formats = _load_settings()[tool]
    if format_name not in formats:
        raise InputError(
            f"{tool} does not read {format_name}.",
            option="tool",
            next=f"Formats it reads: {', '.join(formats)}.",
        )


def write_entry(
    tool: Tool, format_name: str, name: str, parts: Mapping[str, str], present: Path
) -> tuple[str, str]:
    """Return name and text of the configuration file of ``tool``; the content of an existing file ``present`` is kept.

    ``parts`` are the parts of the data, with their paths relative to the configuration.

    Raises:
        InputError: the existing file cannot be read.
    """
    settings = _load_settings()[tool][format_name]
    if tool == "llama-factory":
        entries = _read_entries(present)
        for part, path in parts.items():
            entries[name if part == "train" else f"{name}_{part}"] = {"file_name": path, **settings}
        return DATASET_INFO, json.dumps(entries, ensure_ascii=False, indent=2) + "\n"
    if tool == "axolotl":
        items = {
            part: _write_item({"path": path, "ds_type": "json", "split": "train", **settings})
            for part, path in parts.items()
        }
        tests = "".join(item for part, item in items.items() if part != "train")
        text = f"datasets:\n{items['train']}" + (f"test_datasets:\n{tests}" if tests else "")
        return f"{name}.axolotl.yaml", text
    if format_name == "hf":
        text = f"dataset_name: {_dump_json(parts['train'])}\ndataset_train_split: train\n"
    else:
        text = "datasets:\n" + _write_item(
            {"path": "json", "data_files": parts["train"], "split": "train", "columns": settings}
        )
    return f"{name}.trl.yaml", text


def _read_entries(path: Path) -> dict[str, Any]:
    """Return the entries of an existing list of data sets."""
    try:
        entries: object = parse_json(path.read_bytes()) if path.exists() else {}
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise InputError(
            "This file is not LLaMA-Factory's list of data sets.",
            where=str(path),
            next="Fix it, or use another out=PATH.",
        )
    return cast("dict[str, Any]", entries)


def _write_item(values: Mapping[str, Any]) -> str:
    """Write one item of a YAML list. JSON is valid YAML, which solves quoting and nesting."""
    return "".join(
        f"{'    ' if number else '  - '}{key}: {_dump_json(value)}\n"
        for number, (key, value) in enumerate(values.items())
    )
