"""``camel-science``: CAMEL's problems and solutions, one JSON file for each.

The topic is written twice: as ``topic``, and as ``topic;``, the key in CAMEL's own files.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.dialogue import list_rounds
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats.camel_chat import make_file_name
from bactrian.export.writers.archive import open_archive
from bactrian.records.session import Session
from bactrian.tables.lineage import add_extra


@contextmanager
def open_camel_science(path: Path, _: ExportContext) -> Generator[Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per problem."""
    with open_archive(path) as put:

        def add(sample: Sample) -> int:
            session = sample.session
            for asked, answered in list_rounds(session)[:1]:
                row = _row(session, asked.text, answered.text)
                put(make_file_name(session.id), json.dumps(row).encode())
                return 1
            return 0

        yield add


def _row(session: Session, problem: str, solution: str) -> dict[str, Any]:
    topic = session.values.get("topic", "")
    row: dict[str, Any] = {
        "role_1": f"{session.assistant.name}_RoleType.ASSISTANT",
        "topic": topic,
        "topic;": topic,
        "sub_topic": session.values.get("sub_topic", ""),
        "message_1": problem,
        "message_2": solution,
    }
    row |= {"mark": session.mark} if session.mark else {}
    return add_extra(row, session)


FORMAT = Format("camel-science", open_camel_science, ".zip", frozenset(("answer",)), manifest_inside=False)
