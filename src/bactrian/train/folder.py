"""The folder of a training: one folder for each stage, with a manifest that is written last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json
from bactrian.language.escape import to_json

FORMAT = 1
"""Version of the manifests."""
PLAN = "plan.json"
MANIFEST = "manifest.json"
BASE = "base"
COMPLETE = "complete"
"""File that marks a whole checkpoint; it is written last."""


@dataclass(frozen=True, slots=True)
class StageFolder:
    """Where a stage keeps what it makes; number 0 is the base model."""

    root: Path
    number: int
    name: str

    @property
    def path(self) -> Path:
        """The folder of the stage."""
        return self.root / f"{self.number:02}-{self.name}"

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.root / "data" / f"{self.number:02}-{self.name}"

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints, while it is trained."""
        return self.path / "checkpoints"

    @property
    def log(self) -> Path:
        """The events of its training, as JSON lines."""
        return self.path / "log.jsonl"

    @property
    def is_complete(self) -> bool:
        """True if the stage is finished."""
        return (self.path / MANIFEST).exists()

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest of a finished stage. Raises InputError if it cannot be read."""
        return read_json(self.path / MANIFEST)


@dataclass(frozen=True, slots=True)
class TrainedStage:
    """A finished stage."""

    number: int
    name: str
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def model(self) -> Path:
        """The model as a folder of transformers."""
        return self.folder / str(self.manifest["model"])

    @property
    def gguf(self) -> Path | None:
        """The model as ``play`` reads it; None if its architecture has no GGUF here."""
        name = self.manifest.get("gguf")
        return self.folder / str(name) if name else None

    @property
    def play_option(self) -> str:
        """The option of ``play`` that takes the model."""
        return find_play_option(self.manifest)


@dataclass(frozen=True, slots=True)
class TrainedModels:
    """The finished stages of a training, the base model first."""

    folder: Path
    plan: Mapping[str, Any]
    stages: tuple[TrainedStage, ...]


def find_play_option(manifest: Mapping[str, Any]) -> str:
    """Return the option of ``play`` for the model of a stage: a model of the user's side alone simulates users."""
    sides = {source["side"] for stage in manifest["data"] for source in stage["sources"]}
    return "--user-model" if sides == {"user"} else "--model"


def hash_weights(folder: Path) -> str:
    """Return one SHA-256 over all files of weights in a folder of transformers."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def name_gguf(kind: str) -> str:
    """Return the name of a stage's GGUF file of this kind."""
    return "model.gguf" if kind == "f16" else f"model-{kind}.gguf"


def list_stage_folders(root: Path, names: list[str]) -> list[StageFolder]:
    """Return the folders of the base and of all stages."""
    return [StageFolder(root, number, name) for number, name in enumerate([BASE, *names])]


def read_training(root: Path) -> TrainedModels:
    """Read the folder of a training, whether or not all of its stages are finished.

    Raises:
        InputError: it is not such a folder, or another version wrote it.
    """
    plan = read_plan(root)
    names = [str(stage["name"]) for stage in plan["recipe"]["stages"]]
    done = [one for one in list_stage_folders(root, names) if one.is_complete]
    stages = [TrainedStage(one.number, one.name, one.path, one.read_manifest()) for one in done]
    return TrainedModels(root, plan, tuple(stages))


def read_plan(root: Path) -> dict[str, Any]:
    """Return the plan of a training. Raises InputError if there is none, or if another version wrote it."""
    path = root / PLAN
    if not path.exists():
        raise InputError(
            "This folder contains no training.",
            where=str(root),
            next="Give the folder that `bactrian train` wrote.",
        )
    return read_json(path)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of this format. Raises InputError if it is damaged, or of another version."""
    try:
        values = parse_json(path.read_bytes())
        version = values["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "This file of a training is damaged.", where=str(path), next="Train again with another --out."
        ) from error
    if version != FORMAT:
        raise InputError(
            f"This training was written in format {version}, and this version reads format {FORMAT}.",
            where=str(path),
            next="Use the version of bactrian that wrote it, or train again with another --out.",
        )
    return values


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of this format, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(to_json({"format": FORMAT, **values}, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
