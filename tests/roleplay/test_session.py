"""The loop, its endings, and taking a session up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.errors import Refused
from bactrian.models.model import Request
from bactrian.models.scripted import ScriptedReply
from bactrian.protocol.markers import DONE, is_done
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.recorded import Recorded
from tests.helpers.runs import make_run, session
from tests.helpers.scenes import ANSWER, ASK, played, rounds, scene, script
from tests.helpers.texts import CHARACTERS


async def test_a_task_is_solved_and_nobody_answers_the_done_token() -> None:
    model = script(*rounds(2), DONE, "never asked for")
    turns, ending = await played(scene(model))
    assert (ending.code, ending.turn, ending.speaker, ending.evidence) == ("task_done", 5, "user", DONE)
    assert [turn.speaker for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert len(model.requests) == 5


THANKS = ["Instruction: Thank you!\nInput: None", "Solution: You are welcome, goodbye!\nNext request."]
SAME = ["Instruction: Write the test again.\nInput: None", "Solution: Here is the test again.\nNext request."]


@pytest.mark.parametrize(
    ("lines", "more", "code", "turn"),
    [
        (["Hello.", "Solution: a.\nNext request."] * 3, {}, "user_no_instruct", 5),
        ([*rounds(1), ASK.format(2), "Solution: done.\nInstruction: now you"], {}, "assistant_instruct", 4),
        ([ASK.format(1), "Instruction: you first"], {}, "assistant_instruct", 2),
        (rounds(20), {}, "max_messages", 40),
        (rounds(9), {"max_messages": 3}, "max_messages", 3),
        (THANKS * 4, {}, "repeat_loop", 8),
        (SAME * 4, {}, "repeat_loop", 8),
        (THANKS * 4, {"paper_endings": True, "max_messages": 8}, "max_messages", 8),
        ([*rounds(1), ScriptedReply("Instruction: go on", finish="content_filter")], {}, "refused", 3),
        (rounds(2), {}, "failed", 4),
        ([*rounds(1), ScriptedReply(error="The endpoint is gone.")], {}, "failed", 2),
    ],
)
async def test_each_ending_is_reached(
    lines: Sequence[str | ScriptedReply], more: dict[str, Any], code: str, turn: int
) -> None:
    turns, ending = await played(scene(script(*lines), **more))
    assert (ending.code, ending.turn) == (code, turn)
    assert len(turns) == turn, "the turn that triggers an ending is kept"
    assert ending.evidence


async def test_a_request_that_does_not_fit_the_window_is_not_sent() -> None:
    model = script(*rounds(20), window=2600)
    turns, ending = await played(scene(model))
    assert ending.code == "token_limit"
    assert 0 < len(turns) < 40
    assert ending.speaker == ("user" if len(turns) % 2 == 0 else "assistant")


async def test_an_assistant_that_only_mentions_an_instruction_goes_on() -> None:
    _, ending = await played(scene(script(ASK.format(1), "Solution: your Instruction: done.", DONE)))
    assert ending.code == "task_done"


async def test_an_empty_reply_is_asked_for_once_more_with_another_seed() -> None:
    model = script("")
    _, ending = await played(scene(model, seed=7))
    assert ending.code == "failed"
    assert len({request.sampling.seed for request in model.requests}) == 2


async def test_each_agent_sees_itself_as_the_model_and_its_history_only_grows() -> None:
    model = script(*rounds(3), DONE)
    await played(scene(model))
    for agent in ("user", "assistant"):
        requests = [request for request in model.requests if request.agent == agent]
        history = [(message.role, message.text) for message in requests[-1].messages]
        assert history[0][0] == "system"
        assert [role for role, _ in history[1:]] == [
            ("user", "assistant")[i % 2] for i in range(len(history) - 1)
        ]


async def test_a_resumed_session_asks_for_nothing_that_is_there() -> None:
    lines = [*rounds(2), DONE]
    whole, _ = await played(scene(script(*lines)))
    first = scene(script(*lines))
    for kept in range(len(whole) + 1):
        model = script(*lines)
        session = replace(first.session, turns=tuple(whole[:kept]))
        rest, ending = await played(scene(model, session))
        assert ending.code == "task_done"
        assert [turn.number for turn in rest] == list(range(kept + 1, 6))
        assert len(model.requests) == 5 - kept


async def test_a_session_that_has_ended_is_told_and_not_played() -> None:
    turns, ending = await played(scene(script(*rounds(1), DONE)))
    model = script()
    session = replace(scene(model).session, turns=tuple(turns), ending=ending)
    events = [event async for event in play_session(scene(model, session))]
    assert [type(event).__name__ for event in events] == ["Started", "Ended"]
    assert model.requests == []


async def test_roles_of_the_same_name_work() -> None:
    from bactrian.records.session import Role

    _, ending = await played(scene(script(*rounds(1), DONE), assistant=Role("Actor"), user=Role("Actor")))
    assert ending.code == "task_done"


turns_of_any_kind = st.lists(
    st.sampled_from(
        [ASK.format("one"), ANSWER.format("two"), DONE, "Thank you!", "", "Instruction: x", "chat"]
    )
    | st.text(CHARACTERS, max_size=40)
)


@settings(max_examples=25, deadline=None)
@given(turns_of_any_kind, st.integers(1, 12))
async def test_whatever_is_said_a_session_ends_with_evidence(lines: list[str], limit: int) -> None:
    model = script(*lines)
    turns, ending = await played(scene(model, max_messages=limit))
    assert len(turns) <= limit
    assert 0 <= ending.turn <= len(turns)
    done = [turn.number for turn in turns if turn.speaker == "user" and is_done(turn.text)]
    assert done in ([], [len(turns)]), "nobody answers the done token"
    if done:
        assert ending.code == "task_done"


async def test_a_recording_says_where_it_ends(tmp_path: Path) -> None:
    model = Recorded(str(await make_run(tmp_path / "run.db", [session("one", rounds=2)])))
    recorded = await model.reply(Request([], session="one", agent="user", replay_index=2))
    assert is_done(str(recorded.choices[0].text))
    with pytest.raises(Refused, match="Session one has no more recorded replies for 'user'"):
        await model.reply(Request([], session="one", agent="user", replay_index=3))
