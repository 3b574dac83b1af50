"""What a reasoning model thinks is stored beside its turn, and reaches nobody."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.models.openai import OpenAIModel
from bactrian.records.events import Spoke, Started
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.start import persist_events
from bactrian.store import open_store
from tests.helpers.endpoint import Endpoint, completion
from tests.helpers.scenes import ASK, scene


async def test_a_thought_is_stored_and_not_heard(tmp_path: Path) -> None:
    said = completion(f"<think>Instruction: lie.</think>\n{ASK.format(1)}")
    reply = completion("Solution: 4\nNext request.", reasoning_content="Instruction: not mine to give.")
    async with Endpoint([said, reply, "<CAMEL_TASK_DONE>"]) as endpoint:
        model = OpenAIModel("thinker", base_url=endpoint.url)
        made = scene(model)
        async with open_store(tmp_path / "run.db") as store:
            session = await store.begin(made.session)
            events = [event async for event in persist_events(play_session(made), session.id, store)]
            stored = await store.session(session.id)
        await model.close()
    assert stored is not None
    thoughts = ["Instruction: lie.", "Instruction: not mine to give.", ""]
    assert [turn.thought for turn in stored.turns] == thoughts
    assert [turn.text for turn in stored.turns] == [
        event.turn.text for event in events if isinstance(event, Spoke)
    ]
    assert not any(b"lie." in request.body or b"not mine" in request.body for request in endpoint.requests)
    assert stored.ending is not None
    assert stored.ending.code == "task_done"


async def test_thoughts_before_tool_calls_and_decisions_are_stored_and_replayed(tmp_path: Path) -> None:
    def price(tea: str) -> float:
        """Return the price of a tea."""
        return 4.5

    asked = "Instruction: What does {} cost?\nInput: None"
    told = "Solution: {}.\nNext request."
    chosen = "<think>Both are right.</think>Choose: 1\nReason: It is shorter.\nFeedback: None"
    script = {
        "user": [[asked.format("tea"), asked.format("the tea")], ["<CAMEL_TASK_DONE>", "<CAMEL_TASK_DONE>"]],
        "assistant": [
            '<think>The list knows.</think>Call: price {"tea": "sencha"}',
            [told.format("4.5"), told.format("Four and a half")],
        ],
        "critic": [chosen, chosen, chosen],
    }
    run = tmp_path / "tea.db"
    critic = bt.Critic("Tea Taster", proposals=2)
    session = bt.play(
        "Price tea", model=bt.Scripted(script), tools=[price], critic=critic, specify=False, run=run
    )
    assert "thinks: The list knows." in str(session)
    assert "thinks: The list knows." in session._repr_html_()
    async with open_store(run, read_only=True) as store:
        known = await store.deliberation(session.id)
    thoughts = [decision.thought for decision in known.verdicts]
    assert thoughts
    assert set(thoughts) == {"Both are right."}
    again = bt.play(
        "Price tea", model=f"recorded:{run}#{session.id}", tools=[price], critic=critic, specify=False
    )
    assert [use.call.thought for turn in again.turns for use in turn.uses] == ["The list knows."]


async def test_thoughts_that_take_up_the_whole_reply_get_more_room() -> None:
    thinking = completion("<think>Which tea, and for whom?", finish="length")
    script = [thinking, "Name a green tea.", thinking, ASK.format(1), "Solution: Sencha.\nNext request."]
    async with Endpoint([*script, "<CAMEL_TASK_DONE>"]) as endpoint:
        events = [event async for event in bt.stream("Tea", model="openai:thinker", base_url=endpoint.url)]
    lengths = [json.loads(request.body)["max_tokens"] for request in endpoint.requests]
    assert lengths == [256, 2048, 1024, 8192, 2048, 1024]
    assert isinstance(events[0], Started)
    assert events[0].session.task.specified == "Name a green tea."


@pytest.mark.parametrize("specify", [True, False])
async def test_a_model_that_only_thinks_is_told_with_the_options_that_help(specify: bool) -> None:
    thinking = completion("<think>Which tea?", finish="length")
    async with Endpoint([thinking] * 2) as endpoint:
        with pytest.raises(bt.BactrianError, match="thoughts took up the whole reply"):
            await asyncio.to_thread(
                bt.play, "Tea", model="openai:thinker", base_url=endpoint.url, specify=specify
            )
