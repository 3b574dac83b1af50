"""``alpaca``: a JSON array of instructions, their inputs and the outputs, one for each round."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import rounds
from bactrian.export.format import Add, Format, Frame
from bactrian.export.writers.json_lines import json_array
from bactrian.records.kinds import kind_of
from bactrian.records.session import Session
from bactrian.records.turn import Instruction, Solution
from bactrian.tables.lineage import trace


def triples(session: Session) -> Iterator[tuple[int, str, str, str]]:
    """Number of its turn, instruction, input and output of each round in which both keep to the protocol.

    A question and its answer are one round.
    """
    for asked, answered in rounds(session):
        if kind_of(session) == "answer":
            yield asked.number, asked.text, "", answered.text
        elif isinstance(asked.said, Instruction) and isinstance(answered.said, Solution):
            yield asked.number, asked.said.instruction, asked.said.input or "", answered.said.solution


@contextmanager
def opened(path: Path, frame: Frame) -> Generator[Add]:
    """Open ``path`` for one array."""
    with json_array(path) as write:

        def add(session: Session) -> int:
            rows = 0
            for turn, instruction, given, output in triples(session):
                row = {"instruction": str(instruction), "input": given, "output": str(output), "turn": turn}
                write(row | trace(session, frame.run))
                rows += 1
            return rows

        yield add


FORMAT = Format("alpaca", opened, ".json", frozenset(("role-play", "translation", "answer")))
