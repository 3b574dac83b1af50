"""An agent that has tools, and a critic that chooses what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.models.model import Model
from bactrian.models.openai import OpenAIModel
from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import load_pack
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke
from bactrian.records.session import Session
from bactrian.records.turn import NOTHING_KNOWN, CriticSettings, Deliberation, Usage
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.recorded import Recorded
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.roleplay.start import persist_events
from bactrian.roleplay.tools import Toolbox, build_toolbox
from bactrian.roleplay.turns import Scene
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.endpoint import Calls, Endpoint, Received, completion
from tests.helpers.endpoint import Reply as EndpointReply
from tests.helpers.scenes import Counting, setup

PACK = load_pack("ai-society")
ASKS = ["Instruction: Price the teas.\nInput: None", "Instruction: Sum up.\nInput: None", DONE]
SAYS = [
    f"Solution: {tea} tea at {price}.\nNext request."
    for tea, price in (("Green", 2), ("Black", 3), ("White", 5))
]
SUMS = [f"Solution: {total} in all.\nNext request." for total in (9, 10, 11)]
CALLS = 'Let me see.\nCall: price {"tea": "green"}\nCall: price {"tea": "white"}'
LINES = {
    "user": [ASKS[:1] * 2 + ASKS[1:2], [ASKS[1]] * 3, [DONE] * 3],
    "assistant": [[CALLS], SAYS, [CALLS.replace("green", "black")], SUMS],
    "critic": [
        ["Choice: 3\nThe end.", "Choice: 3\nNo."],
        "Choice: 2\nIt is dark.",
        "Choice: 1\nOnly one.",
        "Choice: 2\nRight.",
    ],
}
MODELS = dict.fromkeys(("user", "assistant", "critic"), "scripted")


class Shop:
    """A shop that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def toolbox(self) -> Toolbox:
        # In the loop: a thread might be asked before or after a session stops.
        async def price(tea: str) -> str:
            """Tell the price of a tea."""
            self.asked.append(tea)
            return f"{len(tea)} euros for {tea}"

        return build_toolbox([price])


def stage(
    model: Model,
    shop: Shop,
    wish: CriticSettings | None = None,
    session: Session | None = None,
    known: Deliberation = NOTHING_KNOWN,
) -> Scene:
    """A scene whose assistant has the shop's tool, and whose two sides have a critic."""
    box = shop.toolbox()
    asked = setup(critic=wish or CriticSettings("Cook"), tools={"assistant": box.kit}, models=MODELS)
    models: Mapping[str, Model] = dict.fromkeys(MODELS, model)
    session = session or new_session(asked, PACK)
    return build_role_play(session, PACK, models, rules=asked.rules(), known=known, tools={"assistant": box})


async def events(scene: Scene) -> list[Event]:
    return [event async for event in play_session(scene)]


def spoken(found: Sequence[Event]) -> list[str]:
    return [event.turn.text for event in found if isinstance(event, Spoke)]


async def test_tools_are_used_once_for_all_proposals_and_the_critic_chooses_the_words() -> None:
    model, shop = Counting(Scripted(LINES)), Shop()
    found = await events(stage(model, shop))
    kinds = [type(event).__name__ for event in found]
    user = ["Proposed"] * 3 + ["Chose", "Spoke"]
    assert kinds[1:6] == user
    assert kinds[6:15] == ["Called"] * 2 + ["Returned"] * 2 + ["Proposed"] * 3 + ["Chose", "Spoke"]
    assert sorted(shop.asked) == ["black", "green", "white", "white"]
    assert spoken(found) == [ASKS[1], SAYS[1], ASKS[1], SUMS[1], DONE]
    turns = [event.turn for event in found if isinstance(event, Spoke)]
    assert [len(turn.uses) for turn in turns] == [0, 2, 0, 2, 0]
    costs = [*(use.call.usage for use in turns[1].uses)]
    costs += [e.proposal.usage for e in found if isinstance(e, Proposed) and e.proposal.number == 2]
    costs += [e.verdict.usage for e in found if isinstance(e, Chose) and e.verdict.number == 2]
    assert turns[1].usage == sum(costs, Usage())


async def test_no_proposal_may_call_and_all_go_on_from_the_same_results() -> None:
    model = Counting(Scripted(LINES))
    await events(stage(model, Shop()))
    calling, speaking, others = [request for request in model.requests if request.agent == "assistant"][:3]
    assert [request.allow_tool_calls for request in (calling, speaking, others)] == [True, True, False]
    assert speaking.tools == others.tools != ()
    assert list(others.messages) == list(speaking.messages)
    assert [message.text for message in others.messages if message.role == "tool"] == [
        "5 euros for green",
        "5 euros for white",
    ]
    assert others.n == 2
    assert speaking.call_index == others.call_index == calling.call_index + 1


async def test_the_critic_knows_what_the_tools_said() -> None:
    model = Counting(Scripted(LINES))
    await events(stage(model, Shop()))
    first, second, *_, last = [
        request.messages[1].text for request in model.requests if request.agent == "critic"
    ]
    assert "5 euros for green" in second
    assert 'price {"tea": "white"}' in second
    assert "euros" not in first
    assert "5 euros for black" in last
    assert "5 euros for green" not in last, (
        "results are shown for the turn that is chosen, not for earlier ones"
    )


async def test_after_feedback_the_agent_writes_again_and_calls_nothing_again() -> None:
    lines = LINES | {
        "assistant": [[CALLS], [*SAYS, *SUMS]],
        "critic": [
            ["Choice: 3\nThe end.", "Choice: 3\nThe end."],
            ["Choice: 1\nHm.\nFeedback: Say the sum.", "x", "Choice: 2\nYes."],
        ],
        "user": [ASKS[:1] * 2 + ASKS[1:2], [DONE] * 3],
    }
    model, shop = Counting(Scripted(lines)), Shop()
    found = await events(stage(model, shop, CriticSettings("Cook", rounds=2)))
    assert spoken(found)[1] == SUMS[1]
    assert sorted(shop.asked) == ["green", "white"]
    again = [request for request in model.requests if request.agent == "assistant"][-1]
    assert [message.role for message in again.messages][-5:] == [
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    assert "Say the sum." in again.messages[-1].text


@pytest.mark.slow
async def test_a_resumed_session_pays_for_nothing_again_and_runs_no_tool_again(tmp_path: Path) -> None:
    whole = await events(stage(Scripted(LINES), Shop()))
    # In between, the second tool of a reply has run, and its result is not stored: it runs again.
    between = [
        at
        for at, e in enumerate(whole)
        if (isinstance(e, Called) and e.call.place > 1) or (isinstance(e, Returned) and e.result.place > 1)
    ]
    for stop in set(range(2, len(whole))) - set(between):
        path, shop = tmp_path / f"{stop}.db", Shop()
        first = stage(Scripted(LINES), shop)
        async with open_store(path) as store:
            await store.begin(first.session)
            count = 0
            async for _ in persist_events(play_session(first), first.session.id, store):
                count += 1
                if count == stop:
                    break
        async with open_store(path) as store:
            session = await store.begin(first.session)
            known = await store.deliberation(session.id, after=len(session.turns))
            model = Counting(Scripted(LINES))
            again = stage(model, shop, None, session, known)
            rest = [e async for e in persist_events(play_session(again), session.id, store)]
            assert isinstance(rest[-1], Ended)
            stored = await store.session(session.id)
            everything = await store.deliberation(session.id)
            spent = (await read_spending(store)).agents
        assert stored is not None
        assert [turn.text for turn in stored.turns] == spoken(whole)
        assert [len(turn.uses) for turn in stored.turns] == [0, 2, 0, 2, 0]
        assert sorted(shop.asked) == ["black", "green", "white", "white"], stop
        assert len(everything.proposals) == 15
        total = sum((turn.usage for turn in stored.turns), Usage())
        assert sum(usage.total for usage in spent.values()) == total.total
        missing = whole[stop:]
        rounds = [e for e in missing if isinstance(e, Called) and e.call.place == 1]
        paid = sum(isinstance(e, Proposed | Chose) for e in missing) + len(rounds)
        assert sum(request.n for request in model.requests) == paid, stop


async def test_a_call_that_was_cut_off_is_made_when_the_session_goes_on(tmp_path: Path) -> None:
    shop = Shop()
    first = stage(Scripted(LINES), shop)
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(first.session)
        async for event in persist_events(play_session(first), first.session.id, store):
            if isinstance(event, Called):
                break
        session = await store.begin(first.session)
        known = await store.deliberation(session.id, after=len(session.turns))
        assert shop.asked == []
        again = stage(Scripted(LINES), shop, None, session, known)
        found = [event async for event in play_session(again)]
    assert next(e.result.text for e in found if isinstance(e, Returned)) == "5 euros for green"


async def test_a_recorded_run_says_it_all_again(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    first = stage(Scripted(LINES), Shop())
    async with open_store(path) as store:
        await store.begin(first.session)
        whole = [e async for e in persist_events(play_session(first), first.session.id, store)]
    found = await events(stage(Recorded(str(path)), Shop()))
    assert [replace(e.turn, seconds=0.0, uses=()).text for e in found if isinstance(e, Spoke)] == spoken(
        whole
    )
    assert [type(event).__name__ for event in found] == [type(event).__name__ for event in whole]
    usages = [[e.turn.usage for e in events if isinstance(e, Spoke)] for events in (found, whole)]
    assert usages[0] == usages[1]


async def test_an_endpoint_is_told_the_tools_and_that_a_proposal_uses_none() -> None:
    def propose(request: Received) -> dict[str, object]:
        assert request.json["n"] == 2
        return completion(SAYS[1], SAYS[2])

    replies: list[EndpointReply] = [
        lambda _: completion(*ASKS[:2], ASKS[0]),
        completion("Choice: 1\nYes."),
        Calls((("price", {"tea": "green"}),)),
        SAYS[0],
        propose,
        completion("Choice: 3\nYes."),
        lambda _: completion(DONE, DONE, DONE),
    ]
    async with Endpoint(replies) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        found = await events(stage(model, Shop()))
        await model.close()
    assert spoken(found)[:2] == [ASKS[0], SAYS[2]]
    calling, speaking, others = (endpoint.requests[place].json for place in (2, 3, 4))
    assert calling["tools"] == speaking["tools"] == others["tools"]
    assert [request.get("tool_choice") for request in (calling, speaking, others)] == [None, None, "none"]
    assert speaking["messages"] == others["messages"]


def test_a_search_and_a_person_go_with_no_tools() -> None:
    kit = {"assistant": Shop().toolbox().kit}
    with pytest.raises(InputError, match="search"):
        new_session(setup(tools=kit, critic=CriticSettings("Cook", width=2, depth=2), models=MODELS), PACK)
    with pytest.raises(InputError, match="person"):
        new_session(setup(tools=kit, models=MODELS | {"assistant": "human"}), PACK)
