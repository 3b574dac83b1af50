"""``bactrian evaluate emergence --known-answers`` as a user calls it, with stages whose knowledge is known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.facts import FactSize, draw_facts, write_reply
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received

DOMAINS = [domain.key for domain in load_domains().domains]
MODELS = tuple(f"openai:stage-{number}" for number in range(5))
ANSWERS = {
    question.text: question.fact for question in draw_facts(1, FactSize(facts=6, wordings=6)).list_questions()
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


async def measure(endpoint: Endpoint, folder: Path, *options: str) -> tuple[int, str, str]:
    command = (
        "evaluate",
        "emergence",
        *MODELS,
        "--known-answers",
        "--facts",
        "6",
        "--base-url",
        endpoint.url,
    )
    done = await asyncio.to_thread(lambda: bactrian(*command, *options, cwd=folder))
    return done.returncode, done.stdout, done.stderr


async def test_the_matrix_shows_what_each_stage_knows_and_asks_nothing_twice(tmp_path: Path) -> None:
    async with Endpoint([answer]) as endpoint:
        code, out, errors = await measure(endpoint, tmp_path, "--json")
        assert code == 0, errors
        asked = len(endpoint.requests)
        _, shown, _ = await measure(endpoint, tmp_path)
        assert len(endpoint.requests) == asked == (2 + 4) * 4 * 9 * 2
    report: dict[str, Any] = json.loads(out)
    rates = [[stage["domains"][key]["value"] for key in DOMAINS] for stage in report["stages"]]
    assert rates == [[float(place < stage) for place in range(4)] for stage in range(5)]
    assert all(stage["untaught"]["value"] == 0.0 for stage in report["stages"])
    assert all(claim["appears"] for claim in report["claims"])
    assert "AI Society: gains +100.0 points [+61.0, +100.0] at its own stage" in shown


async def test_a_folder_of_other_facts_is_refused_and_keeps_its_answers(tmp_path: Path) -> None:
    async with Endpoint([answer]) as endpoint:
        await measure(endpoint, tmp_path, "--json")
        asked = len(endpoint.requests)
        code, _, errors = await measure(endpoint, tmp_path, "--wordings", "5")
        assert code == 2
        assert "known-answers.json" in errors and "another --out" in errors
        path = tmp_path / "emergence" / "seed-1" / "questions.jsonl"
        path.write_text(path.read_text().replace("Tell me", "Tell us"))
        code, _, errors = await measure(endpoint, tmp_path)
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
    done = bactrian("evaluate", "emergence", "local", "--known-answers", cwd=tmp_path)
    assert done.returncode == 2 and "base, ai-society, code" in done.stderr
