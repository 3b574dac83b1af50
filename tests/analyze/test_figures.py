"""Charts as files for papers."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.analyze.report_page import list_report_charts
from bactrian.errors import InputError
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session

NAMES = ("endings", "behaviours", "failures-by-round", "prompt-growth", "lengths")
FLIP = ["Instruction: Name a tea.\nInput: None", "Instruction: Name two."]


async def make_two(folder: Path) -> tuple[Path, Path]:
    done = [session(f"d{number}", rounds=1 + number % 3) for number in range(20)]
    flipped = [session(f"f{number}", texts=FLIP, code="assistant_instruct") for number in range(10)]
    one = await make_run(folder / "one.db", [*done, *flipped])
    return one, await make_run(folder / "two.db", done)


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.soak), 2])
async def test_every_chart_is_a_picture_a_page_for_print_and_a_table_of_its_numbers(
    tmp_path: Path, count: int
) -> None:
    one, two = await make_two(tmp_path)
    runs = (one, two)[:count]
    folder = tmp_path / "figures"
    bactrian("analyze", *map(str, runs), "--figures", str(folder), "--quiet", cwd=tmp_path)
    for name, kind in product(NAMES, ("svg", "pdf", "csv")):
        assert (folder / f"{name}.{kind}").stat().st_size > 30, name
    svg = ET.parse(folder / "endings.svg").getroot()
    assert svg.tag.endswith("svg")
    assert 230 < float(svg.attrib["width"].removesuffix("pt")) < 250  # a column of 8.5 cm
    assert (folder / "endings.pdf").read_bytes().startswith(b"%PDF")
    with (folder / "endings.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["series"] for row in rows} == {run.stem for run in runs}
    report = bt.open_run(one).report()
    for row in rows:
        if row["series"] == "one":
            of = report["endings"][row["category"].replace(" ", "_")]
            assert float(row["value"]) == of["rate"]
            assert [row["low"], row["high"]] == [
                "" if end is None else str(end) for end in (of["low"], of["high"])
            ]
    captions = (folder / "captions.txt").read_text()
    assert all(f"{name}: " in captions for name in NAMES)
    assert "95 % intervals" in captions


@pytest.mark.soak
async def test_the_same_numbers_give_the_same_files_and_other_files_are_never_replaced(
    tmp_path: Path,
) -> None:
    one, _ = await make_two(tmp_path)
    report = bt.open_run(one).report()
    report.save_figures(tmp_path / "first")
    report.save_figures(tmp_path / "second")
    for name in NAMES:
        first, second = ((tmp_path / folder / f"{name}.svg").read_bytes() for folder in ("first", "second"))
        assert first == second
    with pytest.raises(InputError, match="exists already"):
        report.save_figures(tmp_path / "first")
    (tmp_path / "first" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError):
        report.save_figures(tmp_path / "first", overwrite=True)
    assert (tmp_path / "first" / "thesis.tex").read_text() == "mine"


async def test_a_round_that_only_says_that_the_task_is_done_is_no_round(tmp_path: Path) -> None:
    repeats = [
        *FLIP,
        *FLIP,
        "Instruction: Name a tea.\nInput: None",
        "Solution: Sencha.",
        "<CAMEL_TASK_DONE>",
    ]
    sessions = [session(f"s{number}", texts=repeats) for number in range(12)]
    report = bt.open_run(await make_run(tmp_path / "run.db", sessions)).report()
    rounds = next(chart for chart in list_report_charts(report.runs) if chart.name == "failures-by-round")
    assert [position for position, *_ in rounds.series[0].points] == [1, 2, 3]
