"""Maps as files: a picture, or a page that works without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bactrian.api.map_texts import MAP_TEXTS, MapText, draw_topics, list_topics, make_map
from bactrian.blocks import make_visible
from bactrian.errors import InputError
from bactrian.explore.rendering import read_asset
from bactrian.figures.chart import list_group_colours
from bactrian.figures.text_map import TextMap
from bactrian.files.atomic import check_target, write_atomically
from bactrian.store.locations import list_run_files

# Characters of a text in a page.
_LONGEST = 300


async def write_map(
    runs: Sequence[Path],
    file: Path,
    what: str = "task",
    tell: Callable[[str], None] = lambda _: None,
    *,
    overwrite: bool = False,
) -> TextMap:
    """Write the map of all tasks or all instructions of ``runs``, and return it.

    Args:
        runs: The runs.
        file: A new file: ``.svg`` for a picture, ``.html`` for a page with all texts, except those that were made to
            study misuse.
        what: ``task`` or ``instruction``.
        tell: Receives what is being done.
        overwrite: True to replace an existing file.

    Raises:
        InputError: the file has another ending or exists, or there is no text.
        MissingExtra: scikit-learn is not installed.
        StoreError: a run cannot be read.
    """
    if file.suffix.lower() not in (".svg", ".html"):
        raise InputError("A map is an .svg or an .html file.", where=str(file), next="Name one of these.")
    check_target(file, overwrite=overwrite, is_file=True)
    texts, made = await make_map(runs, what, tell)
    title = f"{MAP_TEXTS[what]} of {', '.join(run.stem for run in runs)}"
    is_picture = file.suffix.lower() == ".svg"
    content = draw_topics(made, title) if is_picture else _render_page(texts, made, title)
    protected = [name for run in runs for name in list_run_files(run)]
    with write_atomically(file, overwrite=overwrite, protect=protected) as stage:
        (stage / file.name).write_text(content, "utf-8")
    return made


def _render_page(texts: Sequence[MapText], made: TextMap, title: str) -> str:
    """Return the page of a map, with everything that it needs."""
    environment = Environment(
        loader=PackageLoader("bactrian.explore"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["visible"] = make_visible
    data = {
        "x": [x for x, _ in made.places],
        "y": [y for _, y in made.places],
        "groups": [min(topic, len(list_group_colours()) - 1) for topic in made.topics],
        "texts": [
            "Made to study misuse." if text.is_red else make_visible(text.text[:_LONGEST]) for text in texts
        ],
        "sessions": [f"{text.session}, message {text.turn}" if text.turn else text.session for text in texts],
    }
    labels = [(made.names[label.topic], *astuple(label)[1:]) for label in made.labels]
    map_: dict[str, Any] = {
        "title": title,
        "labels": json.dumps(labels),
        "legend": list_topics(made),
        "addresses": {},
        # Inside of a script, nothing may look like its end.
        "data": Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")),  # noqa: S704
    }
    parts = {
        name: Markup(read_asset(name))  # noqa: S704
        for name in ("style.css", "map.css", "map.js")
    }
    return environment.get_template("map_file.html").render(map=map_, title=title, parts=parts)
