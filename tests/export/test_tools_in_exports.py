"""What agents called, in the formats that hold it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.ingest.chats import MESSAGES, Origin, read_row
from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.records.session import Session
from bactrian.records.turn import Toolkit
from bactrian.roleplay.endings import default_endings
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.start import persist_events
from bactrian.roleplay.tools import FunctionTool, Toolbox
from bactrian.store import open_store
from tests.helpers.exports import handed, lines
from tests.helpers.runs import PACK, ROUND, session


def look(where: str) -> str:
    """Look something up."""
    return f"it is at {where}, ask anna@teahouse.de"


async def used(folder: Path) -> tuple[Path, Session]:
    """A run with a session in which the assistant looked something up."""
    path, tool = folder / "tea.db", FunctionTool(look)
    box = Toolbox(Toolkit((tool.tool,)), {"look": tool})
    one = session(texts=[], code=None)
    one = replace(one, provenance=replace(one.provenance, tools={"assistant": box.kit}))
    ask, answer = (text.format(n=1) for text in ROUND)
    model = Scripted({"user": [ask, DONE], "assistant": ['I look.\nCall: look {"where": "home"}', answer]})
    scene = build_role_play(
        one, PACK, {"user": model, "assistant": model}, rules=default_endings(), tools={"assistant": box}
    )
    async with open_store(path) as store:
        await store.begin(one)
        async for _ in persist_events(play_session(scene), one.id, store):
            pass
        stored = await store.session(one.id)
    assert stored is not None
    return path, stored


async def test_the_messages_of_the_side_that_called_hold_its_calls_and_their_results(tmp_path: Path) -> None:
    run, _ = await used(tmp_path)
    made = await handed(run, "messages", tmp_path / "tea.jsonl")
    (row,) = lines(tmp_path / "tea.jsonl")
    assert [message["role"] for message in row["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    calling, result = row["messages"][2:4]
    assert calling["content"] == "I look."
    assert calling["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"where": "home"}'}
    assert result["tool_call_id"] == calling["tool_calls"][0]["id"]
    assert result["content"].startswith("it is at home")
    (tool,) = json.loads(row["tools"])
    assert (tool["type"], tool["function"]["name"]) == ("function", "look")
    assert made["notes"] == {}


async def test_the_other_side_never_saw_them(tmp_path: Path) -> None:
    run, _ = await used(tmp_path)
    await handed(run, "messages", tmp_path / "tea.jsonl", side="user")
    (row,) = lines(tmp_path / "tea.jsonl")
    assert {message["role"] for message in row["messages"]} == {"system", "user", "assistant"}
    assert "tools" not in row


@pytest.mark.parametrize("form", ["sharegpt", "camel-chat", "alpaca", "hf"])
async def test_a_format_that_cannot_hold_them_says_so(tmp_path: Path, form: str) -> None:
    run, _ = await used(tmp_path)
    made = await handed(run, form, tmp_path / "out")
    (note,) = made["notes"]
    assert "without what their agents called" in note
    assert made["notes"][note] == 1


async def test_tables_have_them_beside_the_message(tmp_path: Path) -> None:
    run, _ = await used(tmp_path)
    await handed(run, "parquet", tmp_path / "tables")
    await handed(run, "csv", tmp_path / "tea.csv")
    polars = pytest.importorskip("polars")
    table = polars.read_parquet(tmp_path / "tables" / "messages.parquet")
    first, second, third = table["tools"].to_list()
    assert (first, third) == (None, None)
    (use,) = json.loads(second)
    assert (use["name"], use["arguments"], use["problem"]) == ("look", {"where": "home"}, None)
    with (tmp_path / "tea.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["tools"] for row in rows] == ["", second, ""]


async def test_results_are_redacted_too(tmp_path: Path) -> None:
    run, _ = await used(tmp_path)
    await handed(run, "messages", tmp_path / "tea.jsonl", redact=True)
    text = (tmp_path / "tea.jsonl").read_text()
    assert "anna@teahouse.de" not in text
    assert "<EMAIL>" in text


async def test_what_was_exported_comes_back_without_the_calls(tmp_path: Path) -> None:
    run, stored = await used(tmp_path)
    await handed(run, "messages", tmp_path / "tea.jsonl")
    with (tmp_path / "tea.jsonl").open("rb") as file:
        again = read_row(json.loads(file.readline()), MESSAGES, Origin())
    assert [turn.text for turn in again.turns] == [turn.text for turn in stored.turns[:2]]
