"""The colours and fonts of all pages, reports, charts and the documentation, as ``look.css`` names them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

# One colour for both themes, or that of the light and that of the dark one.
_COLOUR = re.compile(r"--([\w-]+): (?:light-dark\((#\w+), (#\w+)\)|(#\w+));")


@cache
def read_look() -> str:
    """Return the style sheet of the look, which comes before that of a page."""
    return files("bactrian.figures").joinpath("look.css").read_text("utf-8")


@cache
def read_colours() -> dict[str, tuple[str, str]]:
    """Return the colours of the light and of the dark theme by their names, for pictures that have no style sheet."""
    return {name: (light or both, dark or both) for name, light, dark, both in _COLOUR.findall(read_look())}


@cache
def list_group_colours() -> tuple[str, ...]:
    """Return the colours of groups, such as the topics of a map. All groups beyond these have the last one."""
    return tuple(light for name, (light, _) in read_colours().items() if re.fullmatch(r"c\d+", name))
