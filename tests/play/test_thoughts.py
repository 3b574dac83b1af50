"""What a reasoning model thinks is stored beside its turn, and reaches nobody."""

from __future__ import annotations

from pathlib import Path

from bactrian.models.openai.client import OpenAIModel
from bactrian.play.persist import persist_events
from bactrian.play.session import play_session
from bactrian.records.events import Spoke
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
    assert [turn.text for turn in stored.turns] == [one.turn.text for one in events if isinstance(one, Spoke)]
    assert not any(b"lie." in request.body or b"not mine" in request.body for request in endpoint.requests)
    assert stored.ending is not None
    assert stored.ending.code == "task_done"
