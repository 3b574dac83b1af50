"""``alpaca``: a JSON array of instructions, their inputs and the outputs, one for each round."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import list_rounds
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.json_lines import open_json_array
from bactrian.records.session import Session, find_kind
from bactrian.records.turn import Instruction, Solution
from bactrian.tables.lineage import add_extra, trace_source


def list_triples(session: Session) -> Iterator[tuple[int, str, str, str]]:
    """Number of its turn, instruction, input and output of each round in which both keep to the protocol.

    A question and its answer are one round.
    """
    for asked, answered in list_rounds(session):
        if isinstance(asked.said, Instruction) and isinstance(answered.said, Solution):
            yield asked.number, asked.said.instruction, asked.said.input or "", answered.said.solution
        elif find_kind(session) == "answer":
            yield asked.number, asked.text, "", answered.text


@contextmanager
def open_alpaca(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one array."""
    with open_json_array(path) as write:

        def add(sample: Sample) -> int:
            session = sample.session
            rows = 0
            for turn, instruction, given, output in list_triples(session):
                row = {"instruction": str(instruction), "input": given, "output": str(output), "turn": turn}
                row |= {"original_task": session.task.original}
                row |= {"specified_task": session.task.specified or session.task.original}
                row |= trace_source(session, context.run)
                write(add_extra(add_extra(row, session, turn), session))
                rows += 1
            return rows

        yield add


FORMAT = Format("alpaca", open_alpaca, ".json", frozenset(("role-play", "translation", "answer")))
