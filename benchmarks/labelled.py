"""The labelled cases of tests/data/behaviours, as sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bactrian.protocol.markers import read_instruction, read_solution
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Finish, Turn, Usage

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "behaviours"

Split = Literal["tune", "held_out"]


@dataclass(frozen=True, slots=True)
class Case:
    """A turn and what led to it, with the judgement of a person."""

    id: str
    session: Session
    turn: int
    """1-based number of the turn that is judged."""
    label: bool
    """True if the turn shows the behaviour."""
    split: Split
    """Detectors are tuned on ``tune`` and measured on ``held_out``."""
    source: str
    """``written`` for this project, or ``model``: said by the built-in model."""
    note: str


def read_cases(behaviour: str) -> list[Case]:
    """The labelled cases of one behaviour."""
    return [
        _case(json.loads(line)) for line in (FOLDER / f"{behaviour}.jsonl").read_text("utf-8").splitlines()
    ]


def conversation(
    *texts: str,
    user_first: bool = True,
    assistant: str = "Python Programmer",
    user: str = "Stock Trader",
    finish: Finish = "stop",
    provenance: Provenance | None = None,
) -> Session:
    """A session in which the agents say ``texts`` in turn."""
    speakers = ("user", "assistant") if user_first else ("assistant", "user")
    return make_session(
        [(speakers[i % 2], text) for i, text in enumerate(texts)], assistant, user, finish, provenance
    )


def _case(row: dict[str, Any]) -> Case:
    roles = row.get("roles", {})
    session = make_session(
        [(turn["speaker"], turn["text"]) for turn in row["turns"]],
        roles.get("assistant", "Python Programmer"),
        roles.get("user", "Stock Trader"),
    )
    return Case(row["id"], session, row["turn"], row["label"], row["split"], row["source"], row["note"])


def make_session(
    said: list[tuple[Any, str]],
    assistant: str = "Python Programmer",
    user: str = "Stock Trader",
    finish: Finish = "stop",
    provenance: Provenance | None = None,
    session_id: str = "001_001_001",
) -> Session:
    """A session in which ``said`` was said: speaker and text of each turn."""
    return Session(
        id=session_id,
        assistant=Role(assistant),
        user=Role(user),
        task=Task("Work on a project together"),
        provenance=provenance or Provenance(prompts="ai-society", prompts_hash="", protocol="free"),
        turns=tuple(
            Turn(
                number=number,
                speaker=speaker,
                role=user if speaker == "user" else assistant,
                text=Text(text),
                said=(read_instruction if speaker == "user" else read_solution)(text),
                usage=Usage(),
                seconds=0.0,
                first_token=None,
                model="",
                finish=finish,
            )
            for number, (speaker, text) in enumerate(said, start=1)
        ),
    )
