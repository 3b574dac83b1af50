"""``bactrian reproduce`` as a reader of the paper calls it, with an endpoint that plays, solves and judges."""

from __future__ import annotations

import asyncio
import csv
import html
import json
import re
import shutil
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from bactrian.api.measurements import compare_stages
from bactrian.api.solution_comparison import RunSeries
from bactrian.evaluate.known_answers import StageModel
from bactrian.options import SpendingOptions
from bactrian.protocol.pack import load_engine_prompts, load_pack
from bactrian.reproduce.items import load_paper_items
from bactrian.reproduce.reproduction import ItemPart, Measure, ReproductionOrder, Workshop, build_chart
from bactrian.store import open_store
from bactrian.train.training_data import ReadCounts, read_source
from bactrian.train.training_recipe import load_train_recipe
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.versatile import answer_anyone

TASKS = 4


def judge_by_length(request: Received) -> Plan:
    """What a model that knows its part says; as a judge it prefers the longer answer."""
    text = str(request.json["messages"][-1]["content"])
    if "[Start of the answer by Assistant 1]" not in text:
        return answer_anyone(request)
    lengths = [
        len(text.split(f"[Start of the answer by Assistant {number}]")[1].partition("[End of the answer")[0])
        for number in (1, 2)
    ]
    scores = [8 if length == max(lengths) else 3 for length in lengths]
    return json.dumps({"assistant_1": scores[0], "assistant_2": scores[1], "reason": "It says more."})


def order_table(endpoint: Endpoint, *options: str) -> tuple[str, ...]:
    models = ("--model", "openai:any", "--judge", "openai:judge", "--base-url", endpoint.url)
    return ("reproduce", "table1", "--scale", "0.04", "--run", "paper", "--price", "1/2", *models, *options)


async def run(folder: Path, *command: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(lambda: bactrian(*command, cwd=folder))
    return done.returncode, done.stdout, done.stderr


def read_report(folder: Path, item: str = "table1") -> dict[str, Any]:
    return json.loads((folder / "paper" / item / "report.json").read_text("utf-8"))


def count_by_hand(path: Path) -> Counter[str]:
    """The outcomes of the tasks in an exported run of verdicts, the first solution's from both orders."""
    sessions: dict[str, list[tuple[int, int]]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            first, second = map(int, row["text"].splitlines()[0].split())
            sessions.setdefault(row["session"], []).append((first, second))
    outcomes = Counter[str]()
    for (first, second), (shown_first, shown_second) in sessions.values():
        signs = {
            (first > second) - (first < second),
            (shown_second > shown_first) - (shown_second < shown_first),
        }
        outcomes[{1: "win", -1: "loss"}.get(signs.pop(), "draw") if len(signs) == 1 else "draw"] += 1
    return outcomes


@dataclass(frozen=True)
class MadeTable:
    """Table 1, made once for all tests that only read it."""

    folder: Path
    out: str
    """What the command printed."""


@pytest.fixture(scope="module")
def made_table(tmp_path_factory: pytest.TempPathFactory) -> MadeTable:
    folder = tmp_path_factory.mktemp("made")

    async def make() -> MadeTable:
        async with Endpoint([judge_by_length]) as endpoint:
            code, out, err = await run(folder, *order_table(endpoint))
            assert code == 0, err
            return MadeTable(folder, out)

    return asyncio.run(make())


async def test_a_table_has_the_numbers_that_a_count_by_hand_of_its_exports_gives(
    made_table: MadeTable, tmp_path: Path
) -> None:
    report = read_report(made_table.folder)
    for part, data in zip(report["parts"], ("society", "code"), strict=True):
        verdicts = f"{made_table.folder}/paper/table1/{data}-{TASKS}/verdicts.openai-judge.db"
        assert (await run(tmp_path, "export", verdicts, "--format", "csv", "--out", f"{data}.csv"))[0] == 0
        counted = count_by_hand(tmp_path / f"{data}.csv")
        assert sum(counted.values()) == TASKS
        shares = [counted[outcome] / TASKS for outcome in ("draw", "loss", "win")]
        assert [measure["value"] for measure in part["measures"]] == shares
        assert [measure["n"] for measure in part["measures"]] == [TASKS] * 3
    printed = [[measure["paper"] for measure in part["measures"]] for part in report["parts"]]
    assert printed == [[0.04, 0.23, 0.73], [0.0, 0.24, 0.76]]
    assert "73.0 %" in made_table.out
    assert "4 observations" in made_table.out


@pytest.mark.slow
async def test_tables_8_and_9_have_the_numbers_of_their_exports_too(tmp_path: Path) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        for item in ("table8", "table9"):
            code, _, err = await run(tmp_path, *order_item(endpoint, item, "--scale", "0.04"))
            assert code == 0, err
    for item in ("table8", "table9"):
        verdicts = f"paper/{item}/society-{TASKS}/verdicts.openai-any.db"
        assert (await run(tmp_path, "export", verdicts, "--format", "csv", "--out", f"{item}.csv"))[0] == 0
        counted = count_by_hand(tmp_path / f"{item}.csv")
        (part,) = read_report(tmp_path, item)["parts"]
        assert sum(counted.values()) == TASKS
        shares = [counted[outcome] / TASKS for outcome in ("draw", "loss", "win")]
        assert [measure["value"] for measure in part["measures"]] == shares
        assert "society" not in str(part["notes"] + part["warnings"])  # the name of a run


def test_the_manifest_says_how_each_run_was_made(made_table: MadeTable) -> None:
    folder = made_table.folder / "paper/table1"
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    runs = {made["title"]: made for made in manifest["runs"]}
    assert manifest["command"].startswith("bactrian reproduce table1 --scale 0.04")
    assert all(len(prompts["hash"]) == 64 for made in runs.values() for prompts in made["prompts"])
    engine = load_engine_prompts().hash
    for made in ("solutions", "verdicts.openai-judge"):
        assert {"name": "evaluation", "hash": engine} in runs[f"AI Society: {made}"]["prompts"]
    assert {"name": "v1", "hash": load_pack("v1").hash} in runs["AI Society"]["prompts"]
    assert {made["seed"] for made in runs.values()} == {10}
    assert runs["Code: solutions"]["models"]["single_shot"] == "openai:any"
    page = (folder / "report.html").read_text("utf-8")
    assert {load_pack("v1").hash[:12], engine[:12]} <= set(re.findall("<code>([0-9a-f]{12})</code>", page))
    assert "on the pages of <code>bactrian explore</code>" in page
    assert '"AI Society: paper, GPT-4",' in (folder / "table1.csv").read_text("utf-8")
    assert manifest["command"] in page


@pytest.fixture
def moved(made_table: MadeTable, tmp_path: Path) -> Iterator[Path]:
    """A folder with the table, which is no longer where it was made."""
    kept = made_table.folder.rename(tmp_path / "kept")
    yield shutil.copytree(kept, tmp_path / "elsewhere")
    kept.rename(made_table.folder)


@pytest.mark.slow
async def test_a_folder_that_was_moved_goes_on_where_it_was(moved: Path) -> None:
    before = read_report(moved)["parts"]
    (moved / "paper/table1/report.json").unlink()
    async with Endpoint([judge_by_length]) as endpoint:
        code, _, err = await run(moved, *order_table(endpoint))
        assert (code, endpoint.requests) == (0, []), err
        solutions = f"paper/table1/society-{TASKS}/solutions.db"
        code, _, err = await run(moved, "resume", solutions, "--base-url", endpoint.url)
        assert (code, endpoint.requests) == (0, []), err
    assert read_report(moved)["parts"] == before


@pytest.mark.soak
@pytest.mark.parametrize(
    "item",
    ["table3", "table8", "table9", "figure1", "figure7", "figure9", "figure12", "figure16", "figure19"],
)
async def test_an_item_killed_half_way_goes_on_in_the_folder_it_was_moved_to(
    tmp_path: Path, item: str
) -> None:
    at_once = 2
    async with Endpoint([judge_by_length]) as endpoint:
        command = order_item(endpoint, item, "--run-code", "--concurrency", str(at_once))
        (tmp_path / "whole").mkdir()
        code, _, err = await run(tmp_path / "whole", *command)
        assert code == 0, err
        needed = len(endpoint.requests)
        process = Command(command, tmp_path, clean_environment())
        while len(endpoint.requests) < needed + needed // 2 and process.returncode is None:
            await asyncio.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        (tmp_path / "moved").mkdir()
        (tmp_path / "paper").rename(tmp_path / "moved/paper")
        code, _, err = await run(tmp_path / "moved", *command)
        assert code == 0, err
        asked = len(endpoint.requests) - needed
        made = read_report(tmp_path / "moved", item)["parts"]
        (tmp_path / "moved/paper").rename(tmp_path / "paper")
        assert (await run(tmp_path, *command))[0] == 0
        assert len(endpoint.requests) == needed + asked
    assert needed <= asked <= needed + at_once
    assert read_report(tmp_path, item)["parts"] == made
    whole = read_report(tmp_path / "whole", item)["parts"]
    assert [part["title"] for part in made] == [part["title"] for part in whole]


@pytest.mark.soak
async def test_a_kill_at_any_step_loses_no_reply_and_the_same_command_goes_on(tmp_path: Path) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        command = order_table(endpoint, "--concurrency", "2")
        killed = 0
        for stop_after in (5, 30, 45, 70, 85):  # while playing, solving and judging
            process = Command(command, tmp_path, clean_environment())
            while len(endpoint.requests) < stop_after and process.returncode is None:
                await asyncio.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            killed += 1
            assert not (tmp_path / "paper/table1/report.json").exists()
        code, _, err = await run(tmp_path, *command)
        assert code == 0, err
        asked = len(endpoint.requests)
    async with Endpoint([judge_by_length]) as endpoint:
        (tmp_path / "whole").mkdir()
        assert (await run(tmp_path / "whole", *order_table(endpoint, "--concurrency", "2")))[0] == 0
        assert len(endpoint.requests) <= asked <= len(endpoint.requests) + 2 * killed
    parts = read_report(tmp_path)["parts"]
    assert [measure["n"] for part in parts for measure in part["measures"]] == [TASKS] * 6


@pytest.mark.slow
async def test_one_budget_holds_for_all_runs_of_an_item_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        code, _, err = await run(tmp_path, *order_table(endpoint, "--budget", "0.012"))
        assert (code, len(endpoint.requests), (tmp_path / "paper").exists()) == (2, 0, False)
        assert "pays for about" in err
        assert "--yes" in err
        code, _, err = await run(tmp_path, *order_table(endpoint, "--budget", "0.012", "--yes"))
        assert (code, (tmp_path / "paper/table1/report.json").exists()) == (3, False), err
        code, _, err = await run(tmp_path, *order_table(endpoint, "--budget", "1"))
        assert code == 0, err


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ("nosuch", "There is no model named 'nosuch'."),
        ("openai:", "Name its model: openai:NAME."),
        ("anthropic:claude-sonnet-4-5", "Set ANTHROPIC_API_KEY"),
    ],
)
async def test_a_judge_that_cannot_be_asked_is_refused_before_conversations_are_paid_for(
    tmp_path: Path, judge: str, told: str
) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        code, _, err = await run(tmp_path, *order_item(endpoint, "table8", "--judge", judge))
    assert (code, len(endpoint.requests), (tmp_path / "paper").exists()) == (code, 0, False)
    assert code in (1, 2)
    assert told in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", [("--budget", "0.001"), pytest.param(("--max-tokens", "10"), marks=pytest.mark.soak)]
)
async def test_a_limit_below_what_was_spent_stops_only_what_would_ask_a_model(
    tmp_path: Path, limit: tuple[str, str]
) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        assert (await run(tmp_path, *order_item(endpoint, "table8")))[0] == 0
        asked = len(endpoint.requests)
        code, out, err = await run(tmp_path, *order_item(endpoint, "table8", *limit))
        assert (code, len(endpoint.requests)) == (0, asked), err
        assert "Role-play wins" in out
        more = order_item(endpoint, "table8", "--scale", "0.03", *limit, "--yes")
        assert (await run(tmp_path, *more))[0] == 3
        assert len(endpoint.requests) == asked


@pytest.mark.slow
async def test_a_folder_of_another_model_or_a_report_that_was_changed_is_told_and_no_traceback(
    tmp_path: Path,
) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        assert (await run(tmp_path, *order_item(endpoint, "figure1")))[0] == 0
        other = ("--model", "openai:other", "--base-url", endpoint.url)
        code, _, err = await run(tmp_path, "reproduce", "figure1", *other, "--run", "paper")
        assert code == 2
        assert "Use the models and options it was begun with, or another folder." in err
        for text in ("[]", '{"parts": [], "scale": 1, "models": []}', "{"):
            (tmp_path / "paper/figure1/report.json").write_text(text, "utf-8")
            code, out, err = await run(tmp_path, "reproduce", "--run", "paper")
            assert (code, out.count(" · begun"), "warning" in err) == (0, 1, False), err
    (tmp_path / "paper/figure3").write_text("Mine.", "utf-8")
    code, _, err = await run(tmp_path, "reproduce", "figure3")
    assert code == 2
    assert "This folder cannot be used: File exists." in err
    assert (tmp_path / "paper/figure3").read_text("utf-8") == "Mine."


@pytest.mark.slow
async def test_the_longest_reply_is_that_of_role_plays_and_single_answers_alike(tmp_path: Path) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        code, _, err = await run(tmp_path, *order_item(endpoint, "table8", "--reply-length", "77"))
    assert code == 0, err
    asked = [request.json for request in endpoint.requests]
    lists = [body for body in asked if str(body["messages"][0]["content"]).startswith("List ")]
    assert {body["max_tokens"] for body in asked if body not in lists} == {77}


def test_a_training_has_room_for_the_prompt_of_a_conversation_of_any_model_and_for_messages() -> None:
    prompt = len(load_pack("v1").templates["assistant_system"]) / 3  # tokens, at most
    trainings = [
        load_train_recipe(training.recipe, training.settings).training
        for item in load_paper_items().items
        for step in item.steps
        for training in step.trainings.values()
    ]
    assert len(trainings) == 3
    assert min(training.max_length for training in trainings) >= prompt + 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "items", [("table8",), pytest.param(("figure7", "figure12", "table8"), marks=pytest.mark.soak)]
)
async def test_a_small_item_after_a_large_one_has_the_conversations_that_it_has_in_a_new_folder(
    tmp_path: Path, items: tuple[str, ...]
) -> None:
    def list_tasks(folder: str) -> list[str]:
        with closing(connect(tmp_path / folder / "table8/society-1/solutions.db")) as run:
            return [text for (text,) in run.execute("SELECT original_task FROM sessions")]

    async with Endpoint([judge_by_length]) as endpoint:
        assert (await run(tmp_path, *order_item(endpoint, "figure12", "--scale", "0.004")))[0] == 0
        for item in items:
            assert (await run(tmp_path, *order_item(endpoint, item, "--scale", "0.001")))[0] == 0
            counts = [of["n"] for part in read_report(tmp_path, item)["parts"] for of in part["measures"]]
            assert set(counts) == {1}
        (tmp_path / "paper").rename(tmp_path / "before")
        assert (await run(tmp_path, *order_item(endpoint, "table8", "--scale", "0.001")))[0] == 0
    assert list_tasks("paper") == list_tasks("before")


@pytest.mark.slow
async def test_a_training_after_a_larger_item_learns_only_from_the_conversations_of_its_own(
    tmp_path: Path,
) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        assert (await run(tmp_path, *order_item(endpoint, "figure12", "--scale", "0.004")))[0] == 0
        spending: SpendingOptions = {"base_url": endpoint.url, "seed": 10, "price": "1/2"}
        order = ReproductionOrder(tmp_path / "paper", "openai:any", "openai:any", "openai:any", 0.001)
        workshop = Workshop(order, RunSeries(spending), spending)
        (source,) = await workshop.choose_data(("society",), 1000)
        counts = ReadCounts()
        learned = [conversation.id async for conversation in read_source(source, counts)]
    assert learned == [f"society:{of}" for of in source.sessions]
    assert (counts.used, counts.left_out["not asked for"]) == (1, 3)


async def test_a_judge_of_trained_models_has_room_for_its_own_solution_though_their_answers_are_short(
    tmp_path: Path,
) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        series = RunSeries({"base_url": endpoint.url, "seed": 10, "price": "1/2"})
        stages = [StageModel("base", "openai:small"), StageModel("math", "openai:trained")]
        await compare_stages(
            stages, ["math"], ["openai:judge"], series, out=tmp_path / "out", limit=1, longest=128
        )
        lengths = {request.json["model"]: request.json.get("max_tokens") for request in endpoint.requests}
    assert lengths == {"small": 128, "trained": 128, "judge": None}


def test_the_chart_of_flake_messages_compares_their_number_between_prompts() -> None:
    (item,) = load_paper_items().find("figure10")
    parts = [
        ItemPart(title, [Measure(item.chart, mean, mean / 2, 2 * mean, 9, share=False), Measure("with", 0.5)])
        for title, mean in (("Prompt V1", 0.5), ("Prompt V2", 1.5))
    ]
    chart = build_chart(item, parts)
    assert chart is not None
    assert (chart.categories, chart.across, chart.shares) == (["Prompt V1", "Prompt V2"], item.chart, False)
    assert [list(series.points) for series in chart.series] == [[(0, 0.5, 0.25, 1), (1, 1.5, 0.75, 3)]]


@pytest.mark.slow
async def test_the_list_names_each_item_with_its_needs_and_says_what_is_made(
    made_table: MadeTable, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("A list may be shown beside what is not its own.", "utf-8")
    async with Endpoint([judge_by_length]) as endpoint:
        before = await run(tmp_path, "reproduce", "--run", ".", "--json")
        after = await run(made_table.folder, "reproduce", "--run", "paper")
        assert "That model is an example: without --model, the built-in one makes an item." in after[1]
        # Table 9 shares a run with table 1, and lacks the other one.
        assert (
            await run(
                made_table.folder,
                *order_table(endpoint, "--forecast"),
            )
        )[0] == 0
        assert (await run(made_table.folder, *order_item(endpoint, "table9", "--forecast")))[0] == 0
    rows = [json.loads(line) for line in before[1].splitlines()]
    assert [row["item"] for row in rows] == [*(item.name for item in load_paper_items().items), "all"]
    together = rows[-1]["forecast"]["calls"]["value"]
    assert max(row["forecast"]["calls"]["value"] for row in rows[:-1] if row["forecast"]) < together
    forecast = rows[0]["forecast"]
    assert forecast["calls"]["value"] > 1000
    assert forecast["usd"]["high"] > forecast["usd"]["value"] > 0
    by_name = {row["item"]: row["forecast"] for row in rows}
    # 20 instructions and 20 solutions, each with up to eight rounds of actions.
    assert by_name["figure16"]["calls"]["high"] >= 200
    assert by_name["figure1"]["calls"]["high"] < 100
    assert max(map(len, after[1].splitlines())) <= 100
    assert "(at most " in after[1]
    assert rows[0]["state"] == ""
    assert "made at scale 0.04 by openai:any" in after[1]


def cut_solutions(request: Received) -> Plan:
    said = judge_by_length(request)
    cut = "Write the whole solution" in str(request.json["messages"][-1]["content"])
    return completion(str(said), finish="length") if cut else said


@pytest.mark.slow
async def test_a_table_without_a_verdict_says_so_and_the_others_are_made(tmp_path: Path) -> None:
    async with Endpoint([cut_solutions]) as endpoint:
        code, out, err = await run(tmp_path, *order_table(endpoint))
        listed = await run(tmp_path, "reproduce", "--run", "paper")
    assert code == 4, err
    assert "No verdict was given yet. 4 solutions are cut and are judged only with --judge-cut." in out
    assert [part["measures"] for part in read_report(tmp_path)["parts"]] == [[], []]
    assert "made in part at scale 0.04" in listed[1]
    async with Endpoint([cut_solutions]) as endpoint:
        code, out, err = await run(tmp_path, *order_table(endpoint, "--judge-cut"))
    assert (code, out.count("Role-play wins")) == (0, 2), err


def judge_in_prose(request: Received) -> Plan:
    said = judge_by_length(request)
    judged = "[Start of the answer by Assistant 1]" in str(request.json["messages"])
    return "Both are fine, I think." if judged else said


@pytest.mark.slow
async def test_a_judge_whose_verdicts_cannot_be_read_makes_a_table_that_says_so_and_fails(
    tmp_path: Path,
) -> None:
    async with Endpoint([judge_in_prose]) as endpoint:
        code, out, err = await run(tmp_path, *order_table(endpoint))
    assert code == 4, err
    assert out.count("No verdict of openai:judge could be read: 8 replies without two scores.") == 2
    assert [part["measures"] for part in read_report(tmp_path)["parts"]] == [[], []]
    assert "No verdict of openai:judge could be read" in (tmp_path / "paper/table1/report.html").read_text(
        "utf-8"
    )


async def test_a_folder_with_files_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/thesis.tex").write_text("Mine.", "utf-8")
    async with Endpoint([judge_by_length]) as endpoint:
        for command in (order_table(endpoint), order_table(endpoint, "--forecast"), ("reproduce", "table5")):
            code, _, err = await run(tmp_path, *command)
            assert code == 2
            assert "no reproduction of the paper made them" in err
            assert "Name another folder" in err
        assert endpoint.requests == []
    assert [path.name for path in (tmp_path / "paper").iterdir()] == ["thesis.tex"]


@pytest.mark.slow
async def test_an_item_that_the_paper_lacks_is_refused_and_its_name_may_be_written_as_in_the_paper(
    tmp_path: Path,
) -> None:
    code, _, err = await run(tmp_path, "reproduce", "tabel1")
    assert code == 2
    assert "Name one of table1 to table9" in err
    code, out, err = await run(tmp_path, "reproduce", "Table 7")
    assert code == 0, err
    assert "What differs here: Another program measures it" in out


def order_item(endpoint: Endpoint, item: str, *options: str) -> tuple[str, ...]:
    models = ("--model", "openai:any", "--base-url", endpoint.url)
    scale = () if "--scale" in options else ("--scale", "0.01")
    return ("reproduce", item, *scale, "--run", "paper", "--price", "1/2", *models, *options)


def test_the_paper_has_nine_tables_and_twenty_figures() -> None:
    names = [item.name for item in load_paper_items().items]
    assert names == [*(f"table{n}" for n in range(1, 10)), *(f"figure{n}" for n in range(1, 21))]
    assert load_paper_items().items[0].label == "Table 1"


def compute_wilson(count: int, n: int) -> tuple[float, float]:
    z, share = 1.959964, count / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half


def flip_in_some(request: Received) -> Plan:
    """A model that knows its part, but whose assistant instructs where the task is about a bridge or a drum."""
    said = answer_anyone(request)
    text = str(request.json["messages"][0]["content"])
    if "Solution:" in text and any(word in text for word in ("bridges", "drums", "candles")):
        return "Instruction: You do it.\nInput: None"
    return said


@pytest.mark.slow
async def test_the_endings_of_figure_8_are_those_of_the_exported_conversations(tmp_path: Path) -> None:
    async with Endpoint([flip_in_some]) as endpoint:
        code, _, err = await run(tmp_path, *order_item(endpoint, "figure8"))
    assert code == 0, err
    report = read_report(tmp_path, "figure8")
    seen = Counter[str]()
    for part, data in zip(report["parts"], ("society", "code"), strict=True):
        exported = await run(tmp_path, "export", f"paper/{data}.db", "--format", "camel-chat", "--out", data)
        assert exported[0] == 0, exported[2]
        reasons = Counter(
            json.loads(path.read_text("utf-8"))["termination_reason"]
            for path in (tmp_path / data).glob("*_*.json")
        )
        assert sum(reasons.values()) == 10
        seen += reasons
        shown = {measure["label"]: measure for measure in part["measures"]}
        for label, reason in (
            ("task done", "<CAMEL_TASK_DONE>"),
            ("assistant instruct", "assistant_instruct_threshold"),
        ):
            if reasons[reason]:
                low, high = compute_wilson(reasons[reason], 10)
                assert shown[label]["value"] == reasons[reason] / 10
                assert shown[label]["low"] == pytest.approx(low, abs=1e-4)
                assert shown[label]["high"] == pytest.approx(high, abs=1e-4)
    assert len(seen) == 2
    svg = (tmp_path / "paper/figure8/figure8.svg").read_text("utf-8")
    assert "<svg" in svg
    assert "task done" in (tmp_path / "paper/figure8/figure8.csv").read_text("utf-8")


@pytest.mark.soak
async def test_v2_and_the_planner_have_the_tasks_of_v1(tmp_path: Path) -> None:
    async with Endpoint([answer_anyone]) as endpoint:
        code, _, err = await run(tmp_path, *order_item(endpoint, "figure9"))
        assert code == 0, err
        assert (await run(tmp_path, *order_item(endpoint, "figure10")))[0] == 0
    tasks: list[dict[str, tuple[str, str | None, bool]]] = []
    for name in ("society", "v2", "planned"):
        async with open_store(tmp_path / f"paper/{name}.db", read_only=True) as store:
            tasks.append(
                {
                    session.id: (session.task.original, session.task.specified, bool(session.task.planned))
                    async for session in store.sessions()
                }
            )
    v1, v2, planned = tasks
    assert v1 == v2
    assert {key: of[:2] for key, of in planned.items()} == {key: of[:2] for key, of in v1.items()}
    assert all(of[2] for of in planned.values())
    titles = [part["title"] for part in read_report(tmp_path, "figure10")["parts"]]
    assert titles == ["Prompt V1", "Prompt V2", "Prompt V1 and planner"]


@pytest.mark.soak
async def test_prompts_are_compared_on_their_common_tasks_and_a_map_says_what_it_does(tmp_path: Path) -> None:
    async with Endpoint([answer_anyone]) as endpoint:
        code, _, err = await run(tmp_path, *order_item(endpoint, "figure11"))
        assert code == 0, err
        assert "AI Society: instructions: 20 texts; topics are being looked for" in err
        fewer = ("--scale", "0.003")
        code, out, err = await run(tmp_path, *order_item(endpoint, "figure9", *fewer))
    assert code == 0, err
    counted = [
        measure["n"] for part in read_report(tmp_path, "figure9")["parts"] for measure in part["measures"]
    ]
    assert set(counted) == {3}
    assert "prints no numbers" in out
    assert "paper   " not in out


@pytest.mark.system
async def test_an_agent_that_writes_no_code_draws_nothing_and_the_report_says_so(tmp_path: Path) -> None:
    async with Endpoint([answer_anyone]) as endpoint:
        code, out, err = await run(tmp_path, *order_item(endpoint, "figure16", "--run-code"))
    assert code == 0, err
    assert "The model wrote no code, so nothing was drawn." in out
    shown = {
        measure["label"]: measure["value"]
        for measure in read_report(tmp_path, "figure16")["parts"][0]["measures"]
    }
    assert shown["blocks of code that were run"] == 0


@pytest.mark.system
async def test_the_report_of_an_agent_that_draws_has_its_pictures(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples/figure16.json"
    command = ("reproduce", "figure16", "--model", f"scripted:{script}", "--run", "paper", "--run-code")
    code, _, err = await run(tmp_path, *command)
    assert code == 0, err
    (part,) = read_report(tmp_path, "figure16")["parts"]
    assert {name for name, _ in part["drawn"]} == {
        f"{species}.svg" for species in ("alpaca", "bactrian", "dromedary", "guanaco", "llama", "vicuna")
    }
    page = (tmp_path / "paper/figure16/report.html").read_text("utf-8")
    for name, url in part["drawn"]:
        assert f'<img src="{url}" alt="{name}">' in page.replace("&#43;", "+")
        assert b"<svg" in b64decode(url.partition(",")[2])
    assert '    "llama": ' in html.unescape(page)  # its code keeps its indentation


@pytest.mark.soak
async def test_all_items_are_made_by_one_command_and_a_second_one_asks_nothing(tmp_path: Path) -> None:
    async with Endpoint([judge_by_length]) as endpoint:
        command = order_item(endpoint, "all", "--run-code", "--budget", "5")
        code, _, err = await run(tmp_path, *command)
        assert code == 0, err
        asked = len(endpoint.requests)
        code, _, err = await run(tmp_path, *command)
        assert (code, len(endpoint.requests)) == (0, asked), err
        code, _, without = await run(tmp_path, *(word for word in command if word != "--run-code"))
        assert (code, len(endpoint.requests), "Allow it with --run-code" in without) == (4, asked, True)
        (tmp_path / "paper/figure2/report.html").write_text("Mine.", "utf-8")
        (tmp_path / "paper/figure3/report.json").unlink()
        code, _, failed = await run(tmp_path, *command)
        assert (code, len(endpoint.requests)) == (4, asked), failed
        assert "Figure 2 is left out: " in failed
        assert (tmp_path / "paper/figure3/report.json").exists()
    left_out = {
        item for item in ("Table 2", "Table 3", "Table 6", "Figure 16") if f"{item} is left out" in err
    }
    for item in load_paper_items().items:
        assert (tmp_path / f"paper/{item.name}/report.html").exists() or item.label in left_out
    assert [part["picture"][:4] for part in read_report(tmp_path, "figure11")["parts"]] == ["<svg"]


@pytest.mark.slow
async def test_items_without_a_model_are_made_from_nothing(tmp_path: Path) -> None:
    for item in (
        "table4",
        "table5",
        "table7",
        "figure2",
        "figure3",
        "figure6",
        "figure15",
        "figure20",
    ):
        code, out, err = await run(tmp_path, "reproduce", item, "--run", "paper")
        assert code == 0, err
    training = read_report(tmp_path, "table5")["parts"][0]["measures"]
    assert training
    assert all(measure["value"] == measure["paper"] for measure in training)
    assert "built-in model" not in out
