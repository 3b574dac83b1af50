"""README, data card and citation file name the paper, the program, the licence of CAMEL's data and the use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import bactrian
from tests.helpers.exports import exported
from tests.helpers.runs import session

ROOT = Path(__file__).parent.parent
PAPER = "Communicative Agents for Mind Exploration of Large Language Model Society"


def read_words(text: str) -> str:
    """The text on one line, without quotation marks and braces."""
    return " ".join(re.sub(r"[“”\"'`{}]", "", text).split())


async def test_the_data_card_of_an_export_cites_and_warns(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    out, _ = await exported(tmp_path, [session()], "hf", "hub", license="cc-by-4.0")
    card = read_words((out / "README.md").read_text("utf-8"))
    assert PAPER in card
    assert f"Bactrian {bactrian.__version__}" in card
    assert "meant for research" in card


@pytest.mark.parametrize("author", ["Li", "Hammoud", "Itani", "Khizbullin", "Ghanem"])
def test_the_readme_and_the_citation_file_name_every_author(author: str) -> None:
    readme = read_words((ROOT / "README.md").read_text("utf-8"))
    assert f"{author}," in readme
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["references"]
    assert author in [person["family-names"] for person in paper["authors"]]


def test_the_readme_cites_the_paper_and_the_program_and_names_licence_and_use() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    readme = read_words(text)
    assert PAPER in readme
    assert "@software{bactrian," in text
    assert "CC BY-NC 4.0" in readme
    assert "meant for research" in readme
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["references"]
    assert PAPER in read_words(paper["title"])
