"""The labelled conversations of ``tests/data/behaviours``: the corpus by blind authors, and the older cases.

The authors wrote from the definitions of the behaviours and nothing else. The older cases were written by people who
knew the detectors of their time: they are used for training only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from bactrian.detect.fit import LabelledConversation
from bactrian.records.session import Session
from benchmarks.labelled import FOLDER, make_session, read_cases

BEHAVIOURS = ("role_flip", "repeats_instruction", "flake_reply", "infinite_loop")
DISGUISED = frozenset(f"a{number:02}" for number in range(1, 13))
"""Authors who were asked for disguised cases; the others wrote failures as they look in transcripts."""

_IDEA_PARTS = 4


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with the behaviours of each turn."""

    session: Session
    author: str
    language: str
    register: str
    labels: tuple[frozenset[str], ...]
    """By turn, as its author labelled it."""
    second: tuple[frozenset[str], ...] | None
    """By turn, as the second reader did, from the text alone; None if no second reader read it."""

    @property
    def style(self) -> str:
        """How its author was asked to write; ``real`` if it was not written."""
        if self.author.startswith("real"):
            return "real"
        return "disguised" if self.author in DISGUISED else "natural"

    def to_labelled(self) -> LabelledConversation:
        """Return it as training needs it. Turns on which the two readers differ are left unlabelled."""
        return LabelledConversation(
            id=self.session.id,
            group=self.author,
            language=self.language,
            texts=_list_said(self.session),
            labels=tuple(
                {
                    behaviour: behaviour in first
                    for behaviour in BEHAVIOURS
                    if (behaviour in first) == (behaviour in second)
                }
                for first, second in zip(self.labels, self.second or self.labels, strict=True)
            ),
            is_ordinary=self.style == "natural",
        )


def read_corpus() -> Iterator[Conversation]:
    """Read every conversation, author by author."""
    for file in sorted((FOLDER / "corpus").glob("*.jsonl")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if line.strip():
                yield _read_conversation(json.loads(line), file.stem, number)


def read_real() -> list[Conversation]:
    """Read conversations that the built-in model had, labelled by two readers.

    Their author is the part of the ideas that they were played with, so that no idea is trained on and measured on.
    Conversations that no longer show their idea are one part.
    """
    rows = [json.loads(line) for line in (FOLDER / "real.jsonl").read_text("utf-8").splitlines()]
    ideas = sorted({row["idea"] for row in rows} - {None})
    return [
        _read_conversation(
            {**row, "author": f"real-{ideas.index(row['idea']) % _IDEA_PARTS if row['idea'] else 'drifted'}"},
            "real",
            number,
        )
        for number, row in enumerate(rows, 1)
    ]


def read_transcripts() -> list[LabelledConversation]:
    """Read conversations in the style of chat models, by an author who knew the detectors: for training only."""
    lines = (FOLDER / "transcripts.jsonl").read_text("utf-8").splitlines()
    rows = (_read_conversation(json.loads(line), "b", number) for number, line in enumerate(lines, 1))
    return [replace(row.to_labelled(), is_ordinary=True) for row in rows]


def read_older_cases() -> list[LabelledConversation]:
    """Read the older cases: one labelled turn each."""
    older: list[LabelledConversation] = []
    for behaviour in BEHAVIOURS:
        for case in read_cases(behaviour):
            turns = case.session.turns
            labels = tuple({behaviour: case.label} if turn.number == case.turn else {} for turn in turns)
            if case.turn <= len(turns):
                older.append(
                    LabelledConversation(
                        f"{behaviour}/{case.id}",
                        "older",
                        "en",
                        _list_said(case.session),
                        labels,
                        is_ordinary=False,
                    )
                )
    return older


def _list_said(session: Session) -> tuple[tuple[bool, str], ...]:
    return tuple((turn.speaker == "user", turn.text) for turn in session.turns)


def _read_conversation(row: dict[str, Any], author: str, number: int) -> Conversation:
    second = [turn.get("second") for turn in row["turns"]]
    session = make_session(
        [(turn["speaker"], turn["text"]) for turn in row["turns"]], session_id=f"{author}-{number:03}"
    )
    return Conversation(
        session=session,
        author=row.get("author", author),
        language=row["language"],
        register=row["register"],
        labels=tuple(frozenset(turn["labels"]) for turn in row["turns"]),
        second=None if None in second else tuple(frozenset(labels) for labels in second),
    )
