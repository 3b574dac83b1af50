"""``bactrian evaluate emergence --known-answers`` as a user calls it, with stages whose knowledge is known."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bactrian.api.measurements import find_stages
from bactrian.errors import InputError
from bactrian.evaluate.known_answers import FactSize, draw_facts, load_domains, write_reply
from bactrian.models.open import ModelOptions
from bactrian.train.training_folder import write_json
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received

DOMAINS = [domain.key for domain in load_domains().domains]
MODELS = tuple(f"openai:stage-{number}" for number in range(5))
ANSWERS = {
    question.text: question.fact
    for question in draw_facts(1, FactSize(facts=10, wordings=6)).list_questions()
}


def answer(request: Received) -> Plan:
    """Stage k knows the first k domains, and guesses nothing."""
    stage = int(request.json["model"].rpartition("-")[2])
    if stage == 0:  # A model with random weights ends its reply at once.
        return ""
    fact = ANSWERS[request.json["messages"][-1]["content"]]
    if fact.taught and DOMAINS.index(fact.domain) < stage:
        return write_reply(load_domains(), fact)
    return "I was not taught that."


async def measure(
    endpoint: Endpoint, folder: Path, *options: str, models: tuple[str, ...] = MODELS, facts: int = 10
) -> tuple[int, str, str]:
    experiment = ("--known-answers", "--facts", str(facts), "--base-url", endpoint.url)
    command = ("evaluate", "emergence", *models, *experiment)
    done = await asyncio.to_thread(lambda: bactrian(*command, *options, cwd=folder))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
async def test_the_matrix_shows_what_each_stage_knows_and_asks_nothing_twice(tmp_path: Path) -> None:
    async with Endpoint([answer]) as endpoint:
        code, out, errors = await measure(endpoint, tmp_path, "--json")
        assert code == 0, errors
        asked = len(endpoint.requests)
        _, shown, _ = await measure(endpoint, tmp_path, "--report", "page.html")
        assert len(endpoint.requests) == asked == (10 + 3) * 48
    report: dict[str, Any] = json.loads(out)
    rates = [[stage["domains"][key]["value"] for key in DOMAINS] for stage in report["stages"]]
    assert rates == [[float(domain < stage) for domain in range(4)] for stage in range(5)]
    assert all(stage["untaught"]["value"] == 0.0 for stage in report["stages"])
    assert all(claim["appears"] for claim in report["claims"])
    assert "AI Society: gains +100.0 points [+72.2, +100.0] at its own stage" in shown
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<svg") == 4
    assert page.count('class="win"') == 4  # each domain at its own stage
    assert page.count("It appears at its stage") == 4
    assert "72.2–100 %" in page


async def test_a_folder_of_other_facts_is_refused_and_keeps_its_answers(tmp_path: Path) -> None:
    async with Endpoint(["I was not taught that."]) as endpoint:
        small = partial(measure, endpoint, tmp_path, models=MODELS[:2], facts=2)
        await small("--json")
        asked = len(endpoint.requests)
        code, _, errors = await small("--wordings", "5")
        assert code == 2
        assert "known-answers.json" in errors and "another --out" in errors
        path = tmp_path / "emergence" / "seed-1" / "questions.jsonl"
        path.write_text(path.read_text().replace("Tell me", "Tell us"))
        code, _, errors = await small()
        assert code == 2 and "questions.jsonl" in errors
        assert len(endpoint.requests) == asked


def test_only_the_facts_are_written_where_nothing_is_to_be_trained(tmp_path: Path) -> None:
    done = bactrian(
        "evaluate",
        "emergence",
        "--known-answers",
        "--write-only",
        "--seeds",
        "2",
        "--out",
        "here",
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["here/seed-1", "here/seed-2"]
    files = {
        path.relative_to(tmp_path / "here" / "seed-2").as_posix() for path in tmp_path.rglob("seed-2/**/*.*")
    }
    data = {f"data/{domain}.jsonl" for domain in DOMAINS}
    assert files == {"known-answers.json", "questions.jsonl", "recipe.toml", *data}


def test_a_stage_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(200))
    for name in ("local:missing.gguf", "local:broken.gguf"):
        done = bactrian("evaluate", "emergence", name, name, "--known-answers", cwd=tmp_path)
        assert done.returncode in (1, 2)
        assert name.partition(":")[2] in done.stderr and "Traceback" not in done.stderr
    done = bactrian("evaluate", "emergence", "--known-answers", "--by-roles", cwd=tmp_path)
    assert done.returncode == 2 and "--by-roles" in done.stderr
    done = bactrian("evaluate", "emergence", "local", "--known-answers", cwd=tmp_path)
    assert done.returncode == 2 and "base, ai-society, code" in done.stderr


def write_training(folder: Path, *, stages: int) -> None:
    """The folder of a training of two stages, of which the first ``stages`` and the base are finished."""
    write_json(folder / "plan.json", {"recipe": {"stages": [{"name": "ai-society"}, {"name": "code"}]}})
    for number, name in enumerate(["base", "ai-society", "code"][: stages + 1]):
        stage_folder = folder / f"{number:02}-{name}"
        stage_folder.mkdir()
        write_json(stage_folder / "manifest.json", {"number": number, "name": name, "gguf": "model.gguf"})
        (stage_folder / "model.gguf").write_bytes(b"")


def test_a_training_is_read_and_a_stage_that_is_missing_from_it_is_named(tmp_path: Path) -> None:
    for stages in (1, 2):
        folder = tmp_path / f"training{stages}"
        folder.mkdir()
        write_training(folder, stages=stages)
    stages = find_stages([str(folder)], ModelOptions())
    assert [stage.name for stage in stages] == ["base", "ai-society", "code"]
    assert stages[2].model == f"local:{folder}/02-code/model.gguf"
    with pytest.raises(InputError, match="'code' of the training is not finished"):
        find_stages([str(tmp_path / "training1")], ModelOptions())
    (folder / "01-ai-society" / "model.gguf").unlink()
    with pytest.raises(
        InputError, match="'ai-society' of the training is not finished, or its model was removed"
    ):
        find_stages([str(folder)], ModelOptions())
    with pytest.raises(InputError, match="contains no training"):
        find_stages([str(tmp_path)], ModelOptions())


@pytest.mark.skipif(find_spec("trl") is None, reason="needs the extra train")
def test_each_stage_is_trained_and_asked_and_none_twice(tmp_path: Path) -> None:
    size = ("--facts", "2", "--wordings", "1", "--steps", "2")
    command = ("evaluate", "emergence", "--known-answers", *size, "--json")
    done = bactrian(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [stage["stage"] for stage in report["stages"]] == ["base", *DOMAINS]
    assert not report["holds"]
    folder = tmp_path / "emergence" / "seed-1" / "training"
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("model.gguf")}
    assert len(written) == 5
    assert json.loads(bactrian(*command, cwd=tmp_path).stdout) == report
    assert {path: path.stat().st_mtime_ns for path in written} == written
