"""Divides conversations into those that a model is trained on and those that are held out, without a leak.

A held-out conversation shares nothing with the training data of any stage: neither its id, nor its group (a pair of
roles), nor 13 consecutive words of what is said.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.export.session_filters import GRAM, list_grams, locate_group
from bactrian.files.json_text import read_lines
from bactrian.train.training_data import ChatMessage, Conversation, ReadCounts, hash_messages, read_source
from bactrian.train.training_folder import StageFolder, list_stage_folders
from bactrian.train.training_recipe import Stage, TrainRecipe, modify_data_paths

MOST_HELD_OUT = 500
"""Conversations; more would not make the loss on them more certain, and cost time."""
_NOT_SAID = frozenset(("id", "question_id", "role", "category"))
"""Keys whose values are not texts."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Division:
    """The conversations of a stage."""

    train: Sequence[Conversation]
    held_out: Sequence[Conversation]
    leaks: int
    """Conversations of held-out groups that quote training data, and are in neither part."""


def divide(stages: Sequence[Sequence[Conversation]], share: float) -> list[Division]:
    """Divide the conversations of all stages; a group is held out in all stages or in none.

    A held-out conversation that quotes training data is left out of both parts.
    """
    share = min(share, MOST_HELD_OUT / max(1, sum(map(len, stages))))
    parts: list[tuple[list[Conversation], list[Conversation]]] = []
    owners: defaultdict[str, list[int]] = defaultdict(list)
    for stage in stages:
        train = [conversation for conversation in stage if locate_group(conversation.group) >= share]
        held = [conversation for conversation in stage if locate_group(conversation.group) < share]
        parts.append((train, held))
        for conversation in held:
            for mark in _list_marks(conversation):
                owners[mark].append(id(conversation))
    leaking: set[int] = set()
    for conversation in (of for train, _ in parts for of in train if owners):
        for mark in _list_marks(conversation):
            leaking.update(owners.get(mark, ()))
    return [
        Division(
            train,
            [conversation for conversation in held if id(conversation) not in leaking],
            sum(id(conversation) in leaking for conversation in held),
        )
        for train, held in parts
    ]


def _list_marks(conversation: Conversation) -> Iterable[str]:
    """Return what must not occur in both parts."""
    spoken = [message for message in conversation.messages if message["role"] != "system"]
    yield f"id\0{conversation.id}"
    yield f"hash\0{hash_messages(spoken)}"
    for text in conversation.list_texts():
        yield from list_grams(text)


@dataclass(frozen=True, slots=True)
class ForbiddenTexts:
    """Texts that a model must not be trained on, such as the questions of an evaluation."""

    whole: frozenset[str]
    """Texts as words in lower case, for those too short to have 13 words."""
    grams: frozenset[str]

    def is_said_in(self, messages: Sequence[ChatMessage]) -> bool:
        """Return True if a message is one of the texts, or shares 13 consecutive words with one."""
        return any(
            _to_words(message["content"]) in self.whole
            or any(gram in self.grams for gram in list_grams(message["content"]))
            for message in messages
        )


def make_forbidden(texts: Iterable[str]) -> ForbiddenTexts:
    """Return these texts as words."""
    whole: set[str] = set()
    grams: set[str] = set()
    for text in texts:
        words = _to_words(text)
        whole.add(words)
        if words.count(" ") + 1 >= GRAM:
            grams.update(list_grams(text))
    return ForbiddenTexts(frozenset(whole - {""}), frozenset(grams))


def read_forbidden(paths: Iterable[Path]) -> ForbiddenTexts:
    """Read files of texts: JSON lines, of which every string counts, or one text a line.

    Raises:
        InputError: a file cannot be read.
    """
    texts: list[str] = []
    for path in paths:
        for _, line in read_lines(path):
            texts += _list_strings(line)
    return make_forbidden(texts)


def _list_strings(line: str) -> list[str]:
    """Return the texts of a line: all strings of a JSON value that are said, or the line itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    texts: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            stack += [inner for key, inner in cast("dict[str, Any]", item).items() if key not in _NOT_SAID]
        elif isinstance(item, list):
            stack += cast("list[Any]", item)
    return texts


def _to_words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


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
        folder.data.mkdir(parents=True, exist_ok=True)
        described.append(
            {
                "stage": stage.name,
                "sources": sources,
                "train": _write_lines(folder.data / "train.jsonl", division.train),
                "held_out": _write_lines(folder.data / "held-out.jsonl", division.held_out),
                "leaks": division.leaks,
            }
        )
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
    conversations: dict[str, Conversation] = {}
    sources: list[dict[str, Any]] = []
    for source in stage.data:
        source = source if stage.side is None else source.model_copy(update={"side": stage.side})  # noqa: PLW2901
        counts = ReadCounts()
        async for conversation in read_source(source, counts):
            if forbidden.is_said_in(conversation.messages):
                counts.left_out["says a held-out text"] += 1
            elif conversation.id in conversations:
                counts.left_out["the same id"] += 1
            else:
                conversations[conversation.id] = conversation
        about = source.model_dump(mode="json", exclude_defaults=True)
        about |= {"side": source.side, "conversations": counts.used, "left_out": dict(counts.left_out)}
        sources.append(about)
    if not conversations:
        reasons = ", ".join(
            f"{count:,} {why}" for source in sources for why, count in source["left_out"].items()
        )
        raise InputError(
            f"The stage {stage.name} has no conversation{f': {reasons}' if reasons else ''}.",
            where=", ".join(source.path for source in stage.data),
            next="Relax the filters, or generate more.",
        )
    return list(conversations.values()), sources


def _write_lines(path: Path, conversations: Sequence[Conversation]) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for conversation in conversations:
            line = conversation.to_json().encode()
            digest.update(line)
            file.write(line)
    return {"conversations": len(conversations), "sha256": digest.hexdigest()}


_PARTS = ("train", "held_out")


def strip_places(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe whose paths are names of files only."""
    base = {
        key: _take_name(value) if key in ("model", "template") and value is not None else value
        for key, value in content["base"].items()
    }
    return {**modify_data_paths(content, _take_name), "base": base}


def find_base_place(content: Mapping[str, Any]) -> tuple[object, object]:
    """Return where a recipe finds its base model, and the template."""
    return content["base"].get("model"), content["base"].get("template")


def find_data_places(content: Mapping[str, Any]) -> list[str]:
    """Return where a recipe finds its data."""
    data = [source["path"] for stage in content["stages"] for source in stage["data"]]
    return [*data, *content.get("held_out_files", ())]


async def check_moved_data(recipe: TrainRecipe, before: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Check that the data of ``recipe``, at its new place, is that which the plan of ``out`` describes.

    Raises:
        InputError: it is other data, or cannot be read.
    """
    with tempfile.TemporaryDirectory(dir=out, prefix=".moved-") as aside:
        folders = list_stage_folders(Path(aside), [stage.name for stage in recipe.stages])
        now = await prepare_data(recipe, folders[1:])
    for old, new in zip(before, now, strict=True):
        if any(old[part]["sha256"] != new[part]["sha256"] for part in _PARTS):
            raise InputError(
                f"The data of the stage {new['stage']} is not that which this training was begun with.",
                where=", ".join(source["path"] for source in new["sources"]),
                next="Use another --out, or the data that it was begun with.",
            )


def _take_name(path: str) -> str:
    return Path(path).name
