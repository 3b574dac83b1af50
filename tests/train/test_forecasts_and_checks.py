"""What a training will take, how its files are read, and how two programs' answers are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import InputError
from bactrian.train.training import (
    EXPECTED,
    EXTRA,
    TrainOrder,
    check_same,
    check_stage_gguf,
    compare_rankings,
    count_free_cores,
    find_measured_step,
    forecast_stages,
    forecast_training,
    write_model_card,
)
from bactrian.train.training_folder import (
    StageFolder,
    draw_losses,
    find_play_option,
    log_event,
    measure_usage,
    read_log,
    read_training,
    write_json,
)
from bactrian.train.training_recipe import load_train_recipe, parse_train_recipe

RECIPE = """
name = "two"
from = "{origin}"
[base]
model = "built-in"
[training]
epochs = 2
batch = 10
per_device = 5
evaluations = 3
[[stages]]
name = "a"
[[stages]]
name = "b"
"""
MACHINE = {"device": "cpu", "name": "here", "threads": 2}
STEP = {"event": "step", "tokens_per_second": 50.0, "peak_bytes": 7}


def count(examples: int, tokens: int, held_out: int = 0) -> dict[str, Any]:
    return {"train": {"examples": examples, "tokens": tokens}, "held-out": {"tokens": held_out}}


@pytest.mark.parametrize(
    ("origin", "steps", "tokens"), [("union", [4, 10], [2000, 5000]), ("checkpoint", [4, 6], [2000, 3000])]
)
def test_a_forecast_counts_what_each_stage_sees(origin: str, steps: list[int], tokens: list[int]) -> None:
    prepared = {"stages": [count(20, 1000), count(30, 1500)], "machine": MACHINE, "weights": 100}
    forecast = forecast_stages(parse_train_recipe(RECIPE.format(origin=origin)), prepared, STEP)
    assert [stage["steps"] for stage in forecast["stages"]] == steps
    assert [stage["tokens"] for stage in forecast["stages"]] == tokens
    assert forecast["seconds"] == pytest.approx(sum(tokens) / 50)
    assert (forecast["memory"], forecast["measured"]) == (7 + 100, True)


def test_a_forecast_counts_evaluations() -> None:
    prepared = {
        "stages": [count(20, 1000, held_out=300), count(20, 1000)],
        "machine": MACHINE,
        "weights": 100,
    }
    forecast = forecast_stages(parse_train_recipe(RECIPE.format(origin="checkpoint")), prepared, STEP)
    assert forecast["seconds"] == pytest.approx((2 * 2000 + 2 * 4 * 300 / 3) / 50)


def test_a_last_step_of_fewer_examples_counts_what_it_has() -> None:
    recipe = parse_train_recipe(RECIPE.format(origin="union"))
    assert recipe.training.count_steps_of_epoch(21) == 3
    assert recipe.training.count_seen(21, 2100) == 4200


def test_a_forecast_before_the_first_steps_is_estimated_from_the_weights() -> None:
    machine = {"device": "cuda", "name": "A100", "threads": 8}
    prepared = {"stages": [count(1000, 1_000_000)] * 4, "machine": machine, "weights": 2 * 6_700_000_000}
    forecast = forecast_stages(load_train_recipe("camel-7b"), prepared)
    assert not forecast["measured"]
    assert forecast["tokens_per_second"] == pytest.approx(4 * 312e12 * 0.4 / (6 * 6.7e9))
    assert forecast["memory"] == 6_700_000_000 * 16 // 4
    assert forecast["disk"] > 4 * 2 * 2 * 6_700_000_000


def test_twenty_logged_steps_measure_a_training(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path, 1, "a")
    folder.folder.mkdir()
    for steps in (19, 20):
        for step in range(1, steps + 1):
            log_event(folder.log, {**STEP, "step": step})
        measured = find_measured_step([folder])
        assert (measured is not None) == (steps == 20)


def test_rankings_are_compared_by_choice_and_by_log_probability() -> None:
    comparison = compare_rankings(
        [([(1, -0.1), (2, -2.0)], {1: -0.2, 2: -2.0}), ([(3, -0.5), (4, -0.6)], {4: -0.5, 3: -0.6})]
    )
    assert (comparison["prompts"], comparison["same_choice"]) == (2, 1)
    assert comparison["mean_difference"] == pytest.approx(0.075)
    assert comparison["largest_difference"] == pytest.approx(0.1)


def test_a_most_likely_token_that_is_missing_counts_as_a_large_difference() -> None:
    assert compare_rankings([([(1, -0.1)], {2: -0.1})])["largest_difference"] >= 5


async def test_a_file_that_no_prompt_was_written_for_counts_as_not_checked(tmp_path: Path) -> None:
    (tmp_path / EXPECTED).write_text("[]", "utf-8")
    assert await check_stage_gguf(tmp_path) is None


def test_a_prompt_without_an_answer_counts_as_a_large_difference() -> None:
    comparison = compare_rankings([([(1, -0.1)], {}), ([(2, -0.1)], {2: -0.1})])
    assert (comparison["prompts"], comparison["same_choice"]) == (2, 1)
    assert comparison["largest_difference"] >= 5


@pytest.mark.parametrize(
    ("sides", "option"),
    [(("assistant",), "--model"), (("user", "user"), "--user-model"), (("user", "assistant"), "--model")],
)
def test_a_model_of_the_user_s_side_alone_is_played_as_the_user(
    tmp_path: Path, sides: tuple[str, ...], option: str
) -> None:
    data = [{"sources": [{"side": side}]} for side in sides]
    assert find_play_option({"data": data}) == option


def test_a_training_of_another_format_is_refused_and_kept(tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", {"recipe": {"stages": [{"name": "a"}]}})
    assert read_training(tmp_path).stages == ()
    values = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    (tmp_path / "plan.json").write_text(json.dumps({**values, "format": 99}), "utf-8")
    with pytest.raises(InputError, match="format 99"):
        read_training(tmp_path)
    (tmp_path / "plan.json").write_text("{", "utf-8")
    with pytest.raises(InputError, match="damaged"):
        read_training(tmp_path)
    with pytest.raises(InputError, match="no training"):
        read_training(tmp_path / "elsewhere")


def test_the_log_of_a_stage_that_was_killed_counts_each_step_once(tmp_path: Path) -> None:
    stage = StageFolder(tmp_path, 1, "a")
    stage.folder.mkdir()
    rows = [
        {"event": "step", "step": step, "loss": loss}
        for step, loss in [(1, 3.0), (2, 2.0), (2, 1.5), (3, 1.0)]
    ]
    rows.insert(2, {"event": "began", "step": 1, "of": 3})
    rows.insert(0, {"event": "began", "step": 0, "of": 3})
    stage.log.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"event": "st', "utf-8")
    assert [(event["step"], event["loss"]) for event in read_log(stage.log)] == [(1, 3.0), (2, 1.5), (3, 1.0)]
    draw_losses([stage], tmp_path / "curves.svg")
    assert "training from 3.00 to 1.00" in (tmp_path / "curves.svg").read_text("utf-8")


def test_a_stage_that_was_killed_has_used_what_all_its_processes_did(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for seconds in (3.0, 5.0):
        log_event(log, {"event": "began", "step": 0, "of": 2})
        used = {"cpu_seconds": seconds / 2, "peak_bytes": int(1000 / seconds)}
        log_event(log, {"event": "step", "step": 1, "loss": 1.0, "seconds": seconds, **used})
        log_event(log, {"event": "evaluated", "step": 1, "of": 2, "loss": 1.0})
    log_event(log, {"event": "trained", "seconds": 8.0, "cpu_seconds": 3.0, "peak_bytes": 250})
    used = {"processes": 2, "seconds": 11.0, "cpu_seconds": 4.5, "peak_bytes": 333}
    assert measure_usage(log) == used
    assert measure_usage(tmp_path / "missing.jsonl") == dict.fromkeys(used, 0)


def test_curves_without_a_step_say_so(tmp_path: Path) -> None:
    draw_losses([StageFolder(tmp_path, 1, "a")], tmp_path / "curves.svg")
    assert "No step was logged" in (tmp_path / "curves.svg").read_text("utf-8")


@pytest.mark.skipif(any(find_spec(name) is None for name in EXTRA), reason="needs the extra train")
@pytest.mark.parametrize("name", ["mine.txt", "data", "00-base"])
async def test_a_folder_of_something_else_is_refused_and_left_as_it_was(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("keep")
    with pytest.raises(InputError, match="something other than a training"):
        await forecast_training(TrainOrder("small", tmp_path, {"": [tmp_path / "any.jsonl"]}))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
async def test_cores_that_other_programs_keep_busy_are_not_counted_as_free() -> None:
    if not Path("/proc/stat").exists():
        pytest.skip("this system does not say how busy its cores are")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert await count_free_cores() == 1
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_the_card_of_a_model_says_what_is_not_known_of_it(tmp_path: Path) -> None:
    recipe = parse_train_recipe(RECIPE.format(origin="union"))
    counts = {"conversations": 1200, "examples": 3, "tokens": 40, "learned_tokens": 20, "empty_replies": 0}
    part = {
        "stage": "a",
        "sources": [{"path": "runs/a.db", "side": "assistant"}],
        "counts": {"train": counts},
    }
    manifest = {
        "number": 1,
        "name": "a",
        "from": "union",
        "seed": 0,
        "bactrian": "0",
        "machine": "here",
        "gguf": None,
        "steps": 2,
        "tokens": 40,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "peak_bytes": 10**9,
        "processes": 1,
        "base": {"name": "small", "license": None},
        "data": [{**part, "held_out": {"conversations": 0}}],
        "loss": {"first": None, "train": 0.5, "held_out_before": None, "held_out": None},
        "training": recipe.training.model_dump(),
        "versions": {},
    }
    write_model_card(tmp_path / "README.md", manifest, recipe)
    card = (tmp_path / "README.md").read_text("utf-8")
    assert card.startswith('---\nlicense: "other"\nbase_model: "small"\n')
    assert "- Data `a.db`: licence not stated.\n" in card
    assert "unknown in the first step, 0.500 in the last" in card
    assert "- a: 1,200 conversations as 3 examples" in card


def test_a_training_goes_on_with_other_limits_of_memory_and_not_with_other_epochs(tmp_path: Path) -> None:
    begun = parse_train_recipe(RECIPE.format(origin="union")).model_dump(mode="json", by_alias=True)
    check_same(
        begun, {**begun, "training": {**begun["training"], "per_device": 1, "checkpointing": True}}, tmp_path
    )
    with pytest.raises(InputError, match=r"training\.epochs: 2\.0 → 3\.0"):
        check_same(begun, {**begun, "training": {**begun["training"], "epochs": 3.0}}, tmp_path)
