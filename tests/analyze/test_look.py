"""One file has the colours of the explorer, of reports, charts and the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bactrian.figures.chart import list_group_colours, read_colours, read_look

ROOT = Path(__file__).parents[2]
STYLED = (
    "src/bactrian/**/*.css",
    "src/bactrian/**/*.j2",
    "src/bactrian/explore/templates/*",
    "docs/site/*.css",
)
# White paper and shadows have no name.
PLAIN = re.compile(r"#(?:fff|000)\w?\b")
COLOUR = re.compile(r"(?<![&\w\"])#[0-9a-fA-F]{3,8}\b")


@pytest.mark.parametrize("pattern", [*STYLED, "src/bactrian/figures/*.py"])
def test_colours_stand_in_the_look_alone(pattern: str) -> None:
    files = [path for path in ROOT.glob(pattern) if path.name != "look.css"]
    assert files
    told = {path.name: COLOUR.findall(PLAIN.sub("", path.read_text("utf-8"))) for path in files}
    assert {name: colours for name, colours in told.items() if colours} == {}


@pytest.mark.parametrize("pattern", [STYLED[0], STYLED[-1]])
def test_a_style_sheet_asks_only_for_what_the_look_has(pattern: str) -> None:
    known = set(re.findall(r"(--[\w-]+):", read_look()))
    for path in ROOT.glob(pattern):
        text = path.read_text("utf-8")
        own = {*re.findall(r"(--[\w-]+):", text), "--rate"}
        assert set(re.findall(r"var\((--[\w-]+)", text)) <= known | own, path.name


def test_pictures_have_the_colours_of_pages() -> None:
    colours = read_colours()
    assert list_group_colours() == tuple(colours[f"c{number}"][0] for number in range(12))
    assert colours["ink"][0] != colours["ink"][1]
