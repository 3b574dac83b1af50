"""Labelled conversations, from which detectors learn, and their files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.detect.turns import ReadTurn, read_turn
from bactrian.errors import InputError
from bactrian.files.json_text import parse_json, read_lines


@dataclass(frozen=True)
class LabelledConversation:
    """A conversation whose turns are labelled."""

    id: str
    group: str
    """Author, or another part of the data that cross-validation holds out as a whole."""
    language: str
    said: tuple[tuple[bool, str], ...]
    """For each turn, whether the user says it, and its text."""
    labels: tuple[Mapping[str, bool], ...]
    """For each turn, whether it shows a behaviour; a behaviour that is missing is not labelled."""
    is_ordinary: bool = True
    """False if it was made to be hard; confidences are calibrated on ordinary conversations."""

    @cached_property
    def turns(self) -> tuple[ReadTurn, ...]:
        """The turns, read when they are needed first: that takes most of the time."""
        return tuple(read_turn(text, by_user=by_user) for by_user, text in self.said)

    def list_targets(self, behaviour: str) -> list[bool | None]:
        """Return what a head learns of each turn; None if unknown.

        A loop is labelled from its fourth turn on, but the three before it go round already.
        """
        labels = [label.get(behaviour) for label in self.labels]
        if behaviour == LOOP:
            for place in [place for place, label in enumerate(labels) if label]:
                for before in range(max(0, place - SHORTEST_LOOP + 1), place):
                    labels[before] = True
        return labels


def read_labelled(path: Path) -> list[LabelledConversation]:
    """Read labelled conversations from JSON lines.

    A line is ``{"turns": [{"speaker": "user" | "assistant", "text": …, "labels": [codes]}, …]}``, and may have ``id``,
    ``author`` and ``language``. A turn without ``labels`` is not labelled.

    Raises:
        InputError: the file cannot be read, or a line is something else.
    """
    rows = [(number, _read_row(line, f"{path}:{number}")) for number, line in read_lines(path)]
    codes = sorted({code for _, row in rows for turn in row["turns"] for code in turn.get("labels") or ()})
    return [
        LabelledConversation(
            id=f"{number} {row.get('id', '')}",
            group=str(row.get("author", "")),
            language=str(row.get("language", "")),
            said=tuple((turn["speaker"] == "user", turn["text"]) for turn in row["turns"]),
            labels=tuple(
                {code: code in turn["labels"] for code in codes} if "labels" in turn else {}
                for turn in row["turns"]
            ),
        )
        for number, row in rows
    ]


def list_codes(conversations: Sequence[LabelledConversation]) -> list[str]:
    """Return the behaviours that some turn shows."""
    return sorted(
        {code for one in conversations for labels in one.labels for code, shown in labels.items() if shown}
    )


def hash_conversations(conversations: Sequence[LabelledConversation]) -> str:
    """Return a hash of texts and labels, which a model keeps of its data."""
    digest = hashlib.sha256()
    for one in conversations:
        for (by_user, text), labels in zip(one.said, one.labels, strict=True):
            digest.update(f"{one.id}\0{by_user}\0{text}\0{sorted(labels.items())}\n".encode())
    return digest.hexdigest()


def _read_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = cast("dict[str, Any]", parse_json(line))
        good = all(
            turn["speaker"] in ("user", "assistant")
            and isinstance(turn["text"], str)
            and all(isinstance(code, str) for code in turn.get("labels", []))
            for turn in row["turns"]
        )
    except (ValueError, KeyError, TypeError):
        good = False
        row = {}
    if not good:
        raise InputError(
            "The line is not a labelled conversation.",
            where=where,
            next='Write {"turns": [{"speaker": "user", "text": "…", "labels": []}, …]}.',
        )
    return row
