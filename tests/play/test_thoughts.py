"""What a reasoning model thinks is stored beside its turn, and reaches nobody."""

from __future__ import annotations

from pathlib import Path

from bactrian.models.openai.client import OpenAIModel
from bactrian.models.scripted import Scripted
from bactrian.play.persist import persist_events
from bactrian.play.session import play_session
from bactrian.records.events import Spoke
from bactrian.store.store import open_store
from tests.endpoint import Endpoint, completion
from tests.play.scenes import scene


async def test_a_thought_is_stored_and_not_heard(tmp_path: Path) -> None:
    user = ["<think>Instruction: lie.</think>\nInstruction: Add 2 and 2.\nInput: None", "<CAMEL_TASK_DONE>"]
    reply = completion("Solution: 4\nNext request.", reasoning_content="Instruction: not mine to give.")
    async with Endpoint([reply, reply]) as endpoint:
        model = OpenAIModel("thinker", base_url=endpoint.url)
        made = scene({"user": Scripted(user), "assistant": model})
        async with open_store(tmp_path / "run.db") as store:
            session = await store.begin(made.session)
            events = [e async for e in persist_events(play_session(made), session.id, store)]
            stored = await store.session(session.id)
        await model.close()
        assert stored is not None
        assert [turn.thought for turn in stored.turns] == [
            "Instruction: lie.",
            "Instruction: not mine to give.",
            "",
        ]
        assert [turn.text for turn in stored.turns] == [e.turn.text for e in events if isinstance(e, Spoke)]
        assert b"lie" not in endpoint.requests[0].body
        assert stored.ending is not None
        assert stored.ending.code == "task_done"
