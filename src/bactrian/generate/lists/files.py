"""Reads lists from files: one per combination of the axes that the list depends on, like CAMEL's task lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.template import compile_template
from bactrian.generate.lists.dedup import remove_duplicates
from bactrian.generate.lists.parse import read_list
from bactrian.generate.lists.source import ListProgress, ListRequest, ListSource
from bactrian.language.escape import to_path_part
from bactrian.records.text import clean_text
from bactrian.records.usage import Usage

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Reads the list of each combination from its own file."""

    path: str
    """Template over the axes in ``per``: ``tasks/{{ assistant_role }}_{{ user_role }}.txt``."""
    folder: str = ""
    """The folder to which the path is relative; empty for the current folder."""
    rest: ListSource | None = None
    """Provides the items that a file lacks; with None, the list stays short."""

    async def list_items(
        self, request: ListRequest, begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Yield the items of the file for ``request``, and then those of :attr:`rest`.

        Raises:
            InputError: the file cannot be read.
        """
        if begun is None:
            path = self._find(request.values)
            text = await asyncio.to_thread(_read, path, request)
            items = tuple(remove_duplicates(map(clean_text, read_list(text)), ()))[: request.count]
            whole = len(items) >= request.count
            why = "" if whole else f"The list {str(path)!r} has no more."
            begun = ListProgress(items, finished=whole or self.rest is None, usage=Usage(), calls=0, why=why)
            yield begun
        if self.rest is not None and len(begun.items) < request.enough:
            async for longer in self.rest.list_items(request, begun):
                yield longer

    def _find(self, values: Mapping[str, str]) -> Path:
        parts = {axis: to_path_part(item) for axis, item in values.items()}
        return Path(self.folder) / compile_template(self.path, may=frozenset(values)).render(parts)


def _read(path: Path, request: ListRequest) -> str:
    problem = "it is not a file" if path.exists() and not path.is_file() else ""
    try:
        if not problem and path.stat().st_size <= _LARGEST:
            return path.read_text("utf-8-sig")
        problem = problem or f"it has more than {_LARGEST:,} bytes"
    except (OSError, ValueError) as error:
        problem = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    raise InputError(
        f"The list {str(path)!r} cannot be read: {problem}.",
        where=request.id,
        next="Give a UTF-8 text file for each combination of the axes in `per`.",
    )
