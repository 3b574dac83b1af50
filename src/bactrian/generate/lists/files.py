"""Lists in files: one for each combination of the axes that it depends on, as CAMEL's task lists are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.template import compile_template
from bactrian.generate.lists.parse import read_list
from bactrian.generate.lists.source import ListRequest

PREFIX = "file:"
"""What the name of such a source begins with; the path's template follows."""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Reads the list of each combination from a file of its own."""

    path: str
    """Template over the axes in ``per``: ``tasks/{{ assistant_role }}_{{ user_role }}.txt``."""

    async def __call__(self, request: ListRequest) -> list[str]:
        """Return the items of the file for ``request``.

        Raises:
            InputError: the file cannot be read, or an item cannot be part of a file's name.
        """
        path = self._find(request.values)
        try:
            text = await asyncio.to_thread(path.read_text, "utf-8-sig")
        except (OSError, ValueError) as error:
            raise InputError(
                f"The list {str(path)!r} cannot be read: {error}.",
                where=request.id,
                next="Give a UTF-8 text file for each combination of the axes in `per`.",
            ) from error
        return read_list(text)

    def _find(self, values: Mapping[str, str]) -> Path:
        for axis, item in values.items():
            if any(letter in item for letter in "/\\\0"):
                raise InputError(
                    f"The item {item!r} of the axis {axis!r} cannot be part of a file's name.",
                    where="file",
                    next="Use items without / and \\.",
                )
        return Path(compile_template(self.path, may=frozenset(values)).render(values))
