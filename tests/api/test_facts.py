"""Every surface tells the same of a run: its state, cost, tokens, endings, conversations, messages and models."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.amounts import write_cost, write_dollars, write_tokens
from bactrian.api.resumption import StoredRun, read_resumable, write_resume_command
from bactrian.api.status import read_status
from bactrian.errors import InputError, ModelError
from bactrian.models.budget import Price
from bactrian.records.turn import Usage
from bactrian.store import open_store
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.generation import RECIPE, asks, generate, said, start, stored
from tests.helpers.runs import make_run, session
from tests.helpers.sandbox import HAS_SANDBOX

CRITIC = "Choice: 1\nReason: It is short."
PRICE = "10/100/1"
PRICED = Price(10, 100, 1)
COST = (7 * 10 + 4 + 700) / 1e6
"""US dollars of an answered request: 11 prompt tokens, 4 of them cached, and 7 of completion."""
SOCIETY = """
name = "two"
description = "Two stages."
task = "Choose a tea"
[[agents]]
name = "guest"
role = "Guest"
prompt = "You are a guest: {{ task }}"
[[agents]]
name = "host"
role = "Host"
prompt = "You are a host: {{ task }}"
[[stages]]
name = "draft"
agents = ["guest", "host"]
max_messages = 2
[[stages]]
name = "final"
agents = ["guest", "host"]
max_messages = 2
"""


def answer(request: Received) -> Plan:
    """What the agents say; a critic chooses among proposals that differ."""
    system = request.json["messages"][0]["content"]
    if "critic" in system.lower():
        return CRITIC
    text, count = said(request), request.json.get("n", 1)
    return text if count == 1 else completion(*(f"{text}{'!' * number}" for number in range(count)))


class Stumbling:
    """Answers, but breaks a conversation with one task off, and asks to try again now and then."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Received) -> Plan:
        self.asked += 1
        if self.asked % 7 == 3:
            return Answer(status=503)
        if self.asked > 4 and "Fly a kite" in request.body.decode():
            return {"choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": 100}}
        return said(request)


class Garbling:
    """Answers every third request first with bytes that are not text."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Received) -> Plan:
        self.asked += 1
        if asks(request) == "lister" or self.asked % 3:
            return said(request)
        return Answer(json.dumps(completion("tea")).encode().replace(b"tea", b"tea \xff"))


class Tiered:
    """Serves three requests of four at the tier that they ask for, the others at the usual one; is ``full`` once."""

    def __init__(self, *, full: bool = True) -> None:
        self.asked = 0
        self.full = full

    def __call__(self, request: Received) -> Plan:
        assert request.json["service_tier"] == "flex"
        self.asked += 1
        if self.asked == 3 and self.full:
            return Answer(status=498)
        tier = "flex" if self.asked % 4 else "default"
        reply = answer(request)
        return {**(reply if isinstance(reply, dict) else completion(str(reply))), "service_tier": tier}


async def play(folder: Path, endpoint: Endpoint, name: str, **options: Any) -> None:
    terms: dict[str, Any] = {"base_url": endpoint.url, "max_messages": 4, "model": "openai:any", **options}
    await asyncio.to_thread(lambda: bt.play("Bake bread", run=folder / name, **terms))


async def make_plays(folder: Path) -> None:
    (folder / "two.toml").write_text(SOCIETY)
    async with Endpoint([answer]) as endpoint:
        await play(folder, endpoint, "played.db", price=PRICE)
        critic = {"critic": bt.Critic("Editor", proposals=2), "models": {"critic": "openai:judge"}}
        await play(folder, endpoint, "criticised.db", price=PRICE, **critic)
        # The table's price is OpenAI's own, and this server is another one.
        await play(folder, endpoint, "unpriced.db", model="openai:gpt-4o-mini")
        await play(folder, endpoint, "priced.db", model="openai:gpt-4o-mini", price="0.15/0.6")
        await play(folder, endpoint, "planned.db", price=PRICE, plan=True, specify=False)
        await play(folder, endpoint, "mixed.db", price=PRICE)
        await play(folder, endpoint, "mixed.db", price="1/1", model="openai:other")
        async with Endpoint([Tiered(full=False)]) as tiered:
            await play(folder, tiered, "tiered.db", price=PRICE, tier="flex", **critic)
        society = ("play", "--society", "two.toml", "--model", "openai:any", "--run", "society.db")
        terms = ("--set", f"endpoint.price={PRICE}", "--base-url", endpoint.url)
        command = Command((*society, *terms), folder, clean_environment())
        _, complaint = await command.communicate()
        assert command.returncode == 0, complaint.decode()
        body = {"user": "Guest", "embodied": "Clerk"} if HAS_SANDBOX else {}
        await play(folder, endpoint, "embodied.db", price=PRICE, **body)
        planner = {"task_planner": bt.Scripted({"task_planner": ["First this, then that."]})}
        asked: dict[str, Any] = {"base_url": endpoint.url, "model": "openai:any", "price": PRICE}
        one = bt.recipe(
            "ai-society",
            assistant_role=["Chef"],
            user_role=["Guest"],
            task=["Bake"],
            role_play={"plan": True, "max_messages": 4},
        )
        before = len(endpoint.requests)
        await asyncio.to_thread(lambda: bt.generate(one, run=folder / "prepared.db", models=planner, **asked))
        paid = len(endpoint.requests) - before
        spent = (await read_status(folder / "prepared.db")).usd
        assert spent == pytest.approx(paid * COST)


async def make(folder: Path, endpoint: Endpoint, name: str, *options: str, code: int = 0) -> None:
    found, lines, complaint = await generate(folder, endpoint, "--run", name, "--json", *options)
    assert found == code, complaint
    status = await asyncio.to_thread(read_json, folder, "status", name)
    assert lines[-1]["run_usd"] == pytest.approx(status["usd"])
    assert lines[-1]["run_tokens"] == status["prompt_tokens"] + status["completion_tokens"]


async def make_generated(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE)
    price = ("--price", PRICE)
    async with Endpoint([answer]) as endpoint:
        await make(folder, endpoint, "finished.db", "--limit", "3", *price)
        two = ("--assistant-model", "openai:gpt-4o-mini")
        await make(folder, endpoint, "half-priced.db", "--limit", "2", *two)
        dear = ("--price", "1000/1000", "--set", "task.max_tokens=1000", "--concurrency", "1")
        await make(folder, endpoint, "budget.db", "--budget", "2.8", *dear, code=3)
        await make(folder, endpoint, "twice.db", "--limit", "1", *price)
        await make(folder, endpoint, "twice.db", "--limit", "2", *price)
        await make(folder, endpoint, "live.db", "--limit", "1", *price)
        translate = ("generate", "translate", "--run", "translated.db", "--set", "source=finished.db")
        options = ("--set", "language.count=1", "--model", "openai:any", "--base-url", endpoint.url, *price)
        evaluate = ("evaluate", "pairwise", "openai:any", "openai:other", "--questions", "math")
        judge = ("--limit", "2", "--out", ".", "--base-url", endpoint.url, "--judge", "openai:judge", *price)
        # No verdict of this judge can be read, and the command says so.
        for code, words in ((0, (*translate, *options)), (4, (*evaluate, *judge))):
            done = await asyncio.to_thread(bactrian, *words, cwd=folder)
            assert done.returncode == code, done.stderr
        fork = ("generate", "small.toml", "--run", "finished.db", "--fork", "forked.db", "--limit", "2")
        more = (
            "--set",
            "role_play.max_messages=6",
            "--model",
            "openai:any",
            "--base-url",
            endpoint.url,
            *price,
        )
        person = (
            "play",
            "Tea",
            "--critic",
            "human",
            "--proposals",
            "2",
            "--no-specify",
            "--run",
            "chosen.db",
        )
        terms = ("--model", "openai:any", "--base-url", endpoint.url, "--set", f"endpoint.price={PRICE}")
        for words, typed in (((*fork, *more), b""), ((*person, *terms, "--max-messages", "2"), b"2\n1\n")):
            done = await asyncio.to_thread(bactrian, *words, cwd=folder, text=typed)
            assert done.returncode == 0, done.stderr
        (folder / "verdicts.openai-judge.math.db").rename(folder / "verdicts.db")
    async with Endpoint([Tiered()]) as endpoint:
        await make(folder, endpoint, "flexible.db", "--limit", "4", "--tier", "flex", *price)
    async with Endpoint([Garbling()]) as endpoint:
        await make(folder, endpoint, "garbled.db", "--limit", "3", *price)
    async with Endpoint([Stumbling()]) as endpoint:
        await make(folder, endpoint, "stumbled.db", "--limit", "4", *price, code=4)
    async with Endpoint([lambda request: asyncio.sleep(0.05, answer(request))]) as endpoint:
        process = start(folder, endpoint, "--run", "killed.db", *price)
        while not (folder / "killed.db").exists() or not any(
            talk.turns for talk in await stored(folder, "killed.db")
        ):
            await asyncio.sleep(0.05)
        process.kill()
        await process.communicate()


def import_one(folder: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "Name a tea."}, {"role": "assistant", "content": "Sencha."}]
    }
    (folder / "chats.jsonl").write_text(json.dumps(row))
    bt.import_chats(folder / "chats.jsonl", run=folder / "imported.db", made_by="gpt-4o-mini")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("facts")
    asyncio.run(make_plays(made))
    asyncio.run(make_generated(made))
    import_one(made)
    return made


RUNS = (
    "played criticised unpriced priced planned mixed society finished half-priced budget twice live stumbled killed"
    " imported embodied prepared translated solutions verdicts garbled flexible tiered forked chosen"
).split()


WITHOUT_TURNS = ("stumbled", "killed", "budget")
"""Runs with sessions that have no turn, which an export leaves out."""


@contextmanager
def open_all(folder: Path) -> Iterator[RunningExplorer]:
    with explore(folder, *(f"{name}.db" for name in RUNS)) as explorer:
        explorer.wait(
            lambda _: all(
                state["seen"] == state["sessions"] and state["state"] != "being read"
                for state in explorer.status()
            )
        )
        yield explorer


def read_json(folder: Path, *arguments: str) -> Any:
    done = bactrian(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(
    folder: Path, name: str, status: dict[str, Any], explored: dict[str, Any], listed: dict[str, Any]
) -> None:
    """Compare what all surfaces tell of a run with its status."""
    file = f"{name}.db"
    report = read_json(folder, "analyze", file)
    run = bt.open_run(folder / file)
    used = report["usage"]
    tokens = status["total_tokens"]
    endings = {code: of["count"] for code, of in status["endings"].items()}
    told = (status["usd"], tokens, endings, status["sessions"], status["messages"], status["models"])
    assert (used["usd"], used["total"]) == told[:2]
    assert (listed["usd"], listed["endings"], listed["sessions"]) == (
        status["usd"],
        endings,
        status["sessions"],
    )
    assert {code: of["count"] for code, of in report["endings"].items()} == endings
    assert {code: of["rate"] for code, of in report["endings"].items()} == {
        code: of["rate"] for code, of in status["endings"].items()
    }
    assert (report["sessions"], report["messages"], used["models"]) == told[3:]
    # A conversation that has not ended is no result: it is counted apart, and filters know it as unfinished.
    running = {"unfinished": status["open"]} if status["open"] else {}
    assert report["open"] == listed["open"] == status["open"] == status["sessions"] - sum(endings.values())
    assert used["cached_share"]["rate"] == status["cached_share"]
    assert (run.status().usd, run.usage.total, run.endings) == (told[0], tokens or 0, told[2])
    assert used["prepared"] == status["prepared"] == run.status().describe()["prepared"]
    assert (explored["cost"], explored["tokens"], dict(explored["endings"])) == (*told[:2], endings | running)
    assert (explored["sessions"], explored["turns"], explored["models"]) == told[3:]
    manifest = run.export("csv", folder / f"{name}.csv", unfinished=True)
    if name not in WITHOUT_TURNS:
        assert manifest["counts"]["tokens"] == tokens
        assert manifest["endings"] == endings | running
    assert explored["state"] == status["state"] == listed["state"] or name == "imported"
    counts = [status[f"{key}_tokens"] or 0 for key in ("prompt", "completion", "cached")]
    usage = Usage(*counts, estimated=status["estimated"])
    cost, prepared = write_cost(status["usd"], status["unpriced"]), status["prepared"]["usd"]
    part = f", {write_dollars(prepared)} of it for tasks and lists" if prepared and status["usd"] else ""
    for text in (
        str(run),
        bactrian("status", file, cwd=folder).stdout,
        bactrian("analyze", file, cwd=folder).stdout,
    ):
        assert write_tokens(usage) in " ".join(text.split())
        assert cost in " ".join(text.split())
        assert part in " ".join(text.split())
    # Sessions from Python count failed calls and proposals that no turn took, too, as the pages and `show` do.
    lists = used["agents"].get("lister", {"total": 0})["total"]
    sessions = run.select()
    assert sum(talk.usage.total for talk in sessions) + lists == (tokens or 0)
    assert [talk.usage for talk in run] == [run[talk.id].usage for talk in sessions]
    assert all(f"{talk.usage.total:,} tokens · session {talk.id}" in str(talk) for talk in sessions)
    assert explored["tokens_text"].startswith(write_tokens(usage))
    assert cost in explored["cost_text"]
    assert part in explored["cost_text"]


def compare_pages(explorer: RunningExplorer, name: str, status: dict[str, Any]) -> None:
    """Compare what the explorer's statistics and its comparison with another run tell with the run's status."""
    statistics = json.loads(explorer.get(f"/statistics.json?data={name}").text)
    assert statistics["conversations"] == status["sessions"]
    assert statistics["open"] == status["open"]
    assert statistics["ending"] == {code: of["count"] for code, of in status["endings"].items()}
    page = explorer.get(f"/compare?one=data%3D{name}&two=data%3D{RUNS[0]}").text
    count = status["sessions"]
    assert f"{count} conversation{'' if count == 1 else 's'}</a>" in page
    for code, of in status["endings"].items():
        share = f"{100 * of['rate']:.0f}"
        assert any(share in cell for cell in read_cells(page, code.replace("_", " "))), (name, code, share)


def read_cells(page: str, row: str) -> list[str]:
    """The cells of a row of the comparison; none if the page has no such row."""
    _, _, rest = page.partition(f'<th scope="row">{row}</th>')
    return re.findall(r"<td[^>]*>(.*?)</td>", rest.partition("</tr>")[0], re.DOTALL)


@pytest.mark.slow
def test_all_surfaces_tell_the_same_of_every_kind_of_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # a run that reads another one names it as its command did
    with open_all(folder) as explorer:
        explored = {state["name"]: state for state in explorer.status()}
        statuses = {name: read_json(folder, "status", f"{name}.db") for name in RUNS}
        listings = map(json.loads, bactrian("runs", "--json", cwd=folder).stdout.splitlines())
        listed = {listing["run"]: listing for listing in listings}
        for name in RUNS:
            compare(folder, name, statuses[name], explored[name], listed[f"{name}.db"])
            compare_pages(explorer, name, statuses[name])
        # Nobody knows what an import took, so no mean of it is a number.
        changes = read_json(folder, "analyze", "imported.db", "played.db")["differences"]["means"]
        assert (changes["tokens"]["before"], changes["tokens"]["difference"]) == (None, None)
        assert changes["tokens"]["after"] > 0
        (talk,) = bt.open_run("imported.db")
        assert bt.open_run("imported.db").sessions()["prompt_tokens"].to_list() == [None]
        assert "<dt>Cost</dt><dd>unknown</dd>" in explorer.get(f"/c/imported/{talk.id}").text
        assert {name for name, status in statuses.items() if status["total_tokens"] is None} == {"imported"}
    # What the lists, the task specifier and the planner cost is told by itself.
    prepared = {
        name: statuses[name]["prepared"] for name in ("played", "planned", "finished", "prepared", "imported")
    }
    assert prepared["played"] == prepared["planned"] == {"tokens": 18, "usd": pytest.approx(COST)}
    assert prepared["imported"] == {"tokens": 0, "usd": 0.0}
    states = {name: status["state"] for name, status in statuses.items()}
    assert {name for name, state in states.items() if state == "incomplete"} == {"budget", "killed"}
    assert states["imported"] == "imported"
    assert {name for name, status in statuses.items() if status["usd"] is None} == {
        "unpriced",
        "half-priced",
        "imported",
    }
    used = [turn.usage for talk in bt.open_run("flexible.db") for turn in talk.turns]
    assert Counter(usage.tier for usage in used) == {"flex": 12, "": 4}
    paid = sum(PRICED.cost(replace(usage, tier="")) * (0.5 if usage.tier else 1) for usage in used)
    assert statuses["flexible"]["usd"] == pytest.approx(paid + COST / 2)  # The list was at flex, too.
    assert statuses["mixed"]["usd"] == pytest.approx(5 * COST + 5 * (7 + 4 + 7) / 1e6)


@pytest.mark.slow
async def test_a_run_that_a_process_writes_is_so_everywhere(folder: Path) -> None:
    with open_all(folder) as explorer:
        async with open_store(folder / "live.db"):
            status = read_json(folder, "status", "live.db")
            states = {state["name"]: state["state"] for state in await asyncio.to_thread(explorer.status)}
        assert states["live"] == status["state"] == "being written"
        states = {state["name"]: state["state"] for state in await asyncio.to_thread(explorer.status)}
        assert states["live"] == "complete"


async def test_what_the_same_command_would_continue_is_not_complete(tmp_path: Path) -> None:
    for code, state in (("stopped", "incomplete"), ("failed", "incomplete"), ("max_messages", "complete")):
        run = await make_run(tmp_path / f"{code}.db", [session(code=code), session("2")])
        status = await read_status(run)
        assert (status.state, status.left) == (state, int(state == "incomplete"))
        if state == "incomplete":
            with pytest.raises(InputError, match="does not say how session 001_001_001 was made"):
                await read_resumable(run)


@pytest.mark.parametrize(("name", "resumable"), [("mine", False), ("scripted:tea.json", True)])
async def test_a_run_of_an_object_from_python_names_no_command_that_would_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, resumable: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tea.json").write_text("{}")
    (tmp_path / "small.toml").write_text(RECIPE)
    model: Any = name if ":" in name else bt.Scripted({}, name=name)
    await asyncio.to_thread(lambda: bt.generate("small.toml", run="own.db", model=model, limit=0))
    stored = await read_resumable(tmp_path / "own.db")
    assert isinstance(stored, StoredRun)
    assert (write_resume_command(tmp_path / "own.db", stored) is not None) == resumable
    played: dict[str, Any] = {"model": model, "specify": False, "max_messages": 2, "run": "played.db"}
    with pytest.raises(ModelError):
        await asyncio.to_thread(lambda: bt.play("Choose a tea", **played))
    assert ((await read_status(Path("played.db"))).command is not None) == resumable


@pytest.mark.slow
async def test_every_surface_tells_which_turns_a_person_wrote(tmp_path: Path) -> None:
    made = session("mixed", rounds=1, code="max_messages")
    first, *others = made.turns
    run = await make_run(
        tmp_path / "mixed.db", [replace(made, turns=(replace(first, model="human"), *others))]
    )

    def show(*options: str) -> str:
        return bactrian("show", "mixed.db", *options, cwd=tmp_path).stdout

    whole = show("--full")
    assert whole.count("written by a person") == 1
    assert whole.index("written by a person") < whole.index(others[0].text.splitlines()[0])
    assert [turn["model"] for turn in json.loads(show("mixed", "--json"))["turns"]][:2] == ["human", "two"]
    for form in ("markdown", "html"):
        page = show("--format", form)
        assert page.count("(AI user, human)") == 1
        assert "human (user), openai:two (assistant)" in page.replace(
            "\\", ""
        )  # Who wrote it, also where it is shared.
    assert str(bt.open_run(run)["mixed"]).count("(AI user, human)") == 1
    assert "human" in (await read_status(run)).models
    for form in ("messages", "alpaca", "csv"):
        bt.open_run(run).export(form, tmp_path / form)
    chat = json.loads((tmp_path / "messages").read_text().splitlines()[0])
    assert json.loads(chat["authors"])["human"] == [1]
    assert json.loads((tmp_path / "alpaca").read_text())[0]["authors"] == chat["authors"]
    # A model stood behind the person's part, and wrote nothing of it.
    assert json.loads(chat["models"])["user"] == "human" != json.loads(chat["models"])["assistant"]
    manifest = json.loads((tmp_path / "messages.manifest.json").read_text())
    assert {"agent": "user", "model": "human"} in manifest["models"]
    rows = list(csv.DictReader(StringIO((tmp_path / "csv").read_text())))
    assert [row["model"] for row in rows][:2] == ["human", "two"]
    with explore(tmp_path, "mixed.db", sessions=1) as explorer:
        page = await asyncio.to_thread(lambda: explorer.get("/c/mixed/mixed").text)
        listed = await asyncio.to_thread(lambda: explorer.get("/conversations.json?model=human").text)
    assert page.count("(AI user, human)") == 1
    assert "mixed" in listed
