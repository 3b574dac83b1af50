"""``camel-translated``: CAMEL's chats in other languages, a folder for each language.

A file has the name of the translated chat. Only the messages are translated; characters are not escaped.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats.camel_chat import RENAMED, DistinctTasks, build_chat, make_file_name
from bactrian.export.writers.archive import open_archive


@contextmanager
def open_camel_translated(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one folder per language."""
    distinct: defaultdict[str, DistinctTasks] = defaultdict(DistinctTasks)
    with open_archive(path) as put:

        def add(sample: Sample) -> int:
            session = sample.session
            language = session.values.get("language", "unknown")
            own = replace(session, id=session.values.get("source", session.id))
            task = distinct[language](own)
            context.notes[RENAMED] += task != own.task.original
            content = json.dumps(build_chat(own, task), ensure_ascii=False, indent=4)
            put(
                f"{make_file_name(language).removesuffix('.json')}/{make_file_name(own.id)}", content.encode()
            )
            return 1

        yield add


FORMAT = Format(
    "camel-translated", open_camel_translated, ".zip", frozenset(("translation",)), manifest_inside=False
)
