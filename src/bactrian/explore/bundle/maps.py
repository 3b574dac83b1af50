"""Which maps a static copy contains."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from bactrian.explore.filters import ListFilter
from bactrian.explore.index.side import read_side_file
from bactrian.explore.library import Library


def list_maps(library: Library, list_filter: ListFilter) -> Iterator[tuple[str, str]]:
    """Yield names and addresses of the maps that are drawn.

    A data set with conversations that were made to study misuse has none: topics are named by words of all texts.
    """
    for name, path in library.list_sides(list_filter.data).items():
        with read_side_file(path) as side:
            marked = side.execute("SELECT EXISTS (SELECT 1 FROM facts WHERE mark IS NOT NULL)").fetchone()[0]
            drawn = side.execute(
                "SELECT what FROM maps WHERE topics IS NOT NULL ORDER BY what DESC"
            ).fetchall()
        for (what,) in () if marked else drawn:
            of = f" of {name}" if len(library.sets) > 1 else ""
            title = "Map of tasks" if what == "task" else "Map of first instructions"
            yield f"{title}{of}", f"/map?{urlencode({'data': name, 'what': what})}"
