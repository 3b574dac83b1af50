"""A training folder is a page of curves, with the numbers behind them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bactrian.explore.bundle import FetchedPage, fetch_page
from bactrian.explore.library import open_library
from bactrian.explore.rendering import Explorer
from bactrian.explore.server import build_app
from bactrian.train.training_folder import draw_plots, list_stage_folders, log_event, read_stages, write_json
from tests.helpers.browser import APPEARANCES, IS_TOO_WIDE, add_axe, find_barriers
from tests.helpers.explorer import explore


def write_training(root: Path, *stages: tuple[str, int, int]) -> Path:
    """Write what a training leaves: stages by name, steps that were done, and steps of all."""
    root.mkdir()
    names = [name for name, _, _ in stages]
    write_json(
        root / "plan.json", {"recipe": {"name": "small", "stages": [{"name": name} for name in names]}}
    )
    for folder, (_, done, steps) in zip(list_stage_folders(root, names)[1:], stages, strict=True):
        if not done:
            continue
        folder.folder.mkdir()
        log_event(folder.log, {"event": "began", "step": 0, "of": steps})
        for step in range(1, done + 1):
            about = {"step": step, "of": steps}
            more = {
                "learning_rate": 1e-4,
                "seconds": 60.0 * step,
                "tokens_per_second": 250.0,
                "peak_bytes": 2e9,
            }
            log_event(folder.log, {"event": "step", **about, "loss": 4 / step, **more})
            if step % 5 == 0:
                log_event(folder.log, {"event": "evaluated", **about, "loss": 5 / step})
        if done == steps:
            write_json(folder.folder / "manifest.json", {"name": folder.name})
    return root


async def fetch(root: Path, *addresses: str) -> list[FetchedPage]:
    async with open_library([root]) as library:
        app = build_app(Explorer(library))
        return [await fetch_page(app, address) for address in addresses]


def test_stages_follow_each_other_in_the_picture_and_a_long_table_is_averaged(
    tmp_path: Path,
) -> None:
    stages = read_stages(
        write_training(tmp_path / "tuned", ("first", 10, 10), ("second", 600, 900), ("third", 0, 0))
    )
    assert [(stage.is_complete, stage.steps, stage.of) for stage in stages] == [
        (True, 10, 10),
        (False, 600, 900),
        (False, 0, 0),
    ]
    assert stages[0].held_out == (1.0, 0.5)
    assert (stages[0].seconds, stages[0].peak_bytes) == (600.0, 2_000_000_000)
    assert [row.loss for row in stages[0].table] == [4 / step for step in range(1, 11)]
    assert len(stages[1].table) == 60
    assert stages[1].table[0].loss == sum(4 / step for step in range(1, 11)) / 10
    losses, speed = draw_plots(stages)
    assert [line.name for line in losses.lines] == ["training", "held out"]
    assert [(line.first, round(line.last, 6)) for line in losses.lines] == [(3.0, 0.006672), (1.0, 0.008333)]
    assert losses.ends == [(7.9, "first"), (600.0, "second")]
    assert [(line.name, line.first, line.last) for line in speed.lines] == [
        ("tokens per second", 250.0, 250.0)
    ]


async def test_a_training_is_found_in_the_library_and_shown_with_its_numbers(tmp_path: Path) -> None:
    root = write_training(tmp_path / "tuned", ("first", 10, 10), ("second", 3, 9))
    library, shown, table = await fetch(root, "/", "/training/tuned", "/training/tuned/steps.csv")
    assert b'href="/training/tuned"' in library.body
    page = shown.body.decode()
    assert "step 3 of 9" in page
    assert "1.0000 → 0.5000" in page
    assert '<polyline class="line-held"' in page
    assert "training from 4 to 1.333, held out from 1 to 0.5" in page
    lines = table.body.decode().splitlines()
    assert lines[:2] == [
        "stage,step,loss,held_out,tokens_per_second,learning_rate",
        "first,1,4.0,,250.0,0.0001",
    ]
    assert len(lines) == 1 + 10 + 3


async def test_a_training_that_has_not_begun_or_is_damaged_says_so(tmp_path: Path) -> None:
    root = write_training(tmp_path / "tuned", ("first", 0, 10))
    (begun,) = await fetch(root, "/training/tuned")
    assert b"No step has been logged yet" in begun.body
    write_json(root / "plan.json", {"recipe": {"stages": "none"}})
    (strange,) = await fetch(root, "/training/tuned")
    assert (strange.status, b"are damaged" in strange.body) == (400, True)
    write_json(root / "plan.json", {"recipe": {"stages": [{"name": "first"}]}})
    folder = list_stage_folders(root, ["first"])[1]
    folder.folder.mkdir()
    folder.log.write_text('{"event": "step", "step": 1, "loss": "<script>"}\n')
    (wrong,) = await fetch(root, "/training/tuned/steps.csv")
    assert (wrong.status, b"are damaged" in wrong.body, b"<script>" in wrong.body) == (400, True, False)
    (root / "plan.json").write_text(json.dumps({"format": 99}))
    newer, missing, drawn = await fetch(root, "/training/tuned", "/training/other", "/map")
    assert (newer.status, b"format 99" in newer.body) == (400, True)
    assert (missing.status, b"no training &#39;other&#39;" in missing.body) == (404, True)
    assert (drawn.status, b"There is no run to draw" in drawn.body) == (400, True)


@pytest.mark.slow
def test_the_page_of_a_training_has_no_barrier(tmp_path: Path, chromium: Browser) -> None:
    write_training(tmp_path / "tuned", ("first", 10, 10), ("second", 3, 9))
    barriers: list[str] = []
    with explore(tmp_path, "tuned") as explorer:
        context = chromium.new_context()
        add_axe(context)
        page = context.new_page()
        page.goto(explorer.link("/training/tuned"))
        for theme, width, _ in APPEARANCES:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 800})
            barriers += ["too wide"] * page.evaluate(IS_TOO_WIDE) + find_barriers(page)
        context.close()
    assert barriers == []
