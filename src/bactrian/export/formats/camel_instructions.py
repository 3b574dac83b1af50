"""``camel-instructions``: CAMEL's instruction data, one JSON array with an entry for each round.

CAMEL's procedure was never published; these rules were derived from its rows. The AI user's text before the instruction
is ``role_1_response``; ``role_1_message_id`` is the number of the message with the instruction, as in
``message_1``; an instruction without input has the input ``None``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.dialogue import list_rounds
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.json_lines import open_json_array
from bactrian.records.session import Session
from bactrian.records.turn import Instruction, Solution
from bactrian.tables.camel import write_roles, write_termination
from bactrian.tables.lineage import add_extra


@contextmanager
def open_camel_instructions(path: Path, _: ExportContext) -> Generator[Add]:
    """Open ``path`` for one array."""
    with open_json_array(path) as write:

        def add(sample: Sample) -> int:
            session = sample.session
            rows = 0
            for asked, answered in list_rounds(session):
                ask, answer = asked.said, answered.said
                if isinstance(ask, Instruction) and isinstance(answer, Solution):
                    write(_row(session, asked.number, ask, answer))
                    rows += 1
            return rows

        yield add


def _row(session: Session, number: int, ask: Instruction, answer: Solution) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": session.id,
        **write_roles(session),
        "original_task": session.task.original,
        "specified_task": session.task.specified or session.task.original,
        "role_1_response": ask.preface,
        "role_1_message_id": number,
        "instruction": ask.instruction,
        "input": ask.input or "None",
        "output": answer.solution,
        "termination_reason": write_termination(session.ending),
    }
    row |= {"mark": session.mark} if session.mark else {}
    return add_extra(add_extra(row, session, number), session)


FORMAT = Format("camel-instructions", open_camel_instructions, ".json")
