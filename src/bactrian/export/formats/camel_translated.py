"""``camel-translated``: CAMEL's chats in other languages, an archive for each language.

A file has the name of the translated chat. Only the messages are translated; characters are not escaped. A target that
is itself an archive gets a folder for each language.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats.camel_chat import (
    CLOSED,
    RENAMED,
    DistinctTasks,
    build_chat,
    is_cut_at_done,
    make_file_name,
)
from bactrian.export.writers.archive import Put, is_archive, open_archive
from bactrian.language.escape import to_file_name


@contextmanager
def open_camel_translated(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder for one ``RUN_chat_LANGUAGE.zip`` per language, or an archive, by the suffix of ``path``."""
    distinct: defaultdict[str, DistinctTasks] = defaultdict(DistinctTasks)
    packs: dict[str, Put] = {}
    with ExitStack() as stack:
        whole = stack.enter_context(open_archive(path)) if is_archive(path) else None
        if whole is None:
            path.mkdir()

        def add(sample: Sample) -> int:
            session = sample.session
            language = session.values.get("language", "unknown")
            own = replace(session, id=session.values.get("source", session.id))
            task = distinct[language](own)
            context.notes[RENAMED] += task != own.task.original
            context.notes[CLOSED] += is_cut_at_done(own)
            content = json.dumps(build_chat(own, task), ensure_ascii=False, indent=4).encode()
            if whole is not None:
                whole(f"{to_file_name(language)}/{make_file_name(own.id)}", content)
                return 1
            if language not in packs:
                name = f"{to_file_name(context.run)}_chat_{to_file_name(language)}.zip"
                packs[language] = stack.enter_context(open_archive(path / name))
            packs[language](make_file_name(own.id), content)
            return 1

        yield add


FORMAT = Format(
    "camel-translated", open_camel_translated, "", frozenset(("translation",)), manifest_inside=False
)
