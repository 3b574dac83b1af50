"""Writes the data of all stages, divided into training and held-out parts, before anything is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.train.data.conversation import Conversation
from bactrian.train.data.hold_out import Division, ForbiddenTexts, divide, read_forbidden
from bactrian.train.data.read import ReadCounts, read_source
from bactrian.train.folder import StageFolder
from bactrian.train.recipe import DataSource, Stage, TrainRecipe


async def prepare_data(recipe: TrainRecipe, folders: Sequence[StageFolder]) -> list[dict[str, Any]]:
    """Write ``train.jsonl`` and ``held-out.jsonl`` of each stage, and return what the plan says of them.

    Raises:
        InputError: a stage has no data, or its data cannot be read.
    """
    forbidden = read_forbidden(map(Path, recipe.held_out_files))
    read = [await _read_stage(stage, recipe, forbidden) for stage in recipe.stages]
    divisions = divide([conversations for conversations, _ in read], recipe.training.held_out)
    described: list[dict[str, Any]] = []
    for stage, folder, division, (_, sources) in zip(recipe.stages, folders, divisions, read, strict=True):
        if not division.train:
            raise InputError(
                f"The stage {stage.name} has no conversation to train on: all are held out.",
                where=recipe.name,
                next="Lower held_out, or add data.",
            )
        described.append({"stage": stage.name, "sources": sources, **_write(folder.data, division)})
    return described


async def _read_stage(
    stage: Stage, recipe: TrainRecipe, forbidden: ForbiddenTexts
) -> tuple[list[Conversation], list[dict[str, Any]]]:
    """Return a stage's conversations, each once, and a description of its sources."""
    if not stage.data:
        raise InputError(
            f"The stage {stage.name} has no data.",
            where=recipe.name,
            next=f'Name a run or JSON lines: --run {stage.name}=PATH, or data = ["PATH"] in the recipe.',
        )
    found: dict[str, Conversation] = {}
    sources: list[dict[str, Any]] = []
    for source in stage.data:
        source = source if stage.side is None else source.model_copy(update={"side": stage.side})  # noqa: PLW2901
        counts = ReadCounts()
        async for one in read_source(source, counts):
            if forbidden.is_said_in(one.messages):
                counts.left_out["says a held-out text"] += 1
            elif one.id in found:
                counts.left_out["the same id"] += 1
            else:
                found[one.id] = one
        sources.append(_describe(source, counts))
    if not found:
        reasons = ", ".join(f"{count:,} {why}" for one in sources for why, count in one["left_out"].items())
        raise InputError(
            f"The stage {stage.name} has no conversation{f': {reasons}' if reasons else ''}.",
            where=", ".join(source.path for source in stage.data),
            next="Relax the filters, or generate more.",
        )
    return list(found.values()), sources


def _describe(source: DataSource, counts: ReadCounts) -> dict[str, Any]:
    return {
        **source.model_dump(mode="json", exclude_defaults=True),
        "side": source.side,
        "conversations": counts.used,
        "left_out": dict(counts.left_out),
    }


def _write(folder: Path, division: Division) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "train": _write_lines(folder / "train.jsonl", division.train),
        "held_out": _write_lines(folder / "held-out.jsonl", division.held_out),
        "leaks": division.leaks,
    }


def _write_lines(path: Path, conversations: Sequence[Conversation]) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for one in conversations:
            line = one.to_json().encode()
            digest.update(line)
            file.write(line)
    return {"conversations": len(conversations), "sha256": digest.hexdigest()}
