"""A critic chooses what is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.models.model import Model, Reply, Request
from bactrian.models.openai import OpenAIModel
from bactrian.models.scripted import Scripted, ScriptedReply
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import load_pack
from bactrian.records.events import Chose, Ended, Event, Proposed, Spoke
from bactrian.records.session import HUMAN, Session
from bactrian.records.text import Text
from bactrian.records.turn import NOTHING_KNOWN, Decision, Deliberation, Usage
from bactrian.roleplay.critic import CriticQuestion, SessionCritic
from bactrian.roleplay.endings import default_endings
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.proposals import Chosen
from bactrian.roleplay.recorded import Recorded
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import CriticSettings, new_session
from bactrian.roleplay.start import persist_events
from bactrian.roleplay.turns import Scene
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.endpoint import Answer, Endpoint, Received, completion
from tests.helpers.scenes import Counting, setup

ASKS = ["Instruction: Boil water.\nInput: None", "Instruction: Pick a tea.\nInput: None", DONE]
SOLVES = [f"Solution: {tea} tea.\nNext request." for tea in ("Green", "Black", "White")]
FIRST = [ASKS, SOLVES]
PACK = load_pack("ai-society")
Script = Mapping[str, Sequence[str | ScriptedReply | Sequence[str | ScriptedReply]]]


def critic_scene(
    model: Model,
    wish: CriticSettings | None = None,
    session: Session | None = None,
    known: Deliberation = NOTHING_KNOWN,
) -> Scene:
    wish = wish or CriticSettings("Professor")
    asked = setup(critic=wish, models=dict.fromkeys(("user", "assistant", "critic"), "scripted"))
    models = dict.fromkeys(asked.models, model)
    return build_role_play(
        session or new_session(asked, PACK), PACK, models, rules=asked.rules(), known=known
    )


def script(
    critic: Sequence[str | Sequence[str | ScriptedReply]], **more: Sequence[str | Sequence[str]]
) -> Counting:
    return Counting(Scripted({"user": [ASKS, ASKS], "assistant": [SOLVES], "critic": critic, **more}))


async def events_of(scene: Scene) -> list[Event]:
    return [event async for event in play_session(scene)]


def spoken(events: Sequence[Event]) -> list[str]:
    return [event.turn.text for event in events if isinstance(event, Spoke)]


def verdicts(events: Sequence[Event]) -> list[Decision]:
    return [event.verdict for event in events if isinstance(event, Chose)]


GOOD = ["Choice: 2\nIt names a tea.", "Choice: 3\nWhite is mild.", "Choice: 3\nIt is done."]


async def test_what_the_critic_chooses_is_what_both_sides_hear() -> None:
    model = script(GOOD)
    events = await events_of(critic_scene(model))
    assert spoken(events) == [ASKS[1], SOLVES[2], DONE]
    assert [type(event).__name__ for event in events[1:6]] == ["Proposed"] * 3 + ["Chose", "Spoke"]
    assert [verdict.reason for verdict in verdicts(events)] == [
        "It names a tea.",
        "White is mild.",
        "It is done.",
    ]
    solving = next(request for request in model.requests if request.agent == "assistant")
    assert [message.text for message in solving.messages][1] == ASKS[1]


async def test_the_critic_is_shown_the_conversation_and_this_turns_proposals_only() -> None:
    model = script(GOOD)
    await events_of(critic_scene(model, CriticSettings("Professor", criteria="it is about white tea")))
    second = [request for request in model.requests if request.agent == "critic"][1]
    system, ballot = second.messages
    assert "Professor" in system.text
    assert "it is about white tea" in system.text
    assert ASKS[1] in ballot.text
    assert all(text.strip() in ballot.text for text in SOLVES)
    assert ASKS[0] not in ballot.text, "a rejected proposal of an earlier turn"
    assert '"Choice: 3"' in ballot.text
    assert "Feedback" not in ballot.text


@pytest.mark.parametrize(
    "answer",
    [
        "Of the 3 proposals I take 2",
        "2",
        "Choice: 2 or 3",
        "Choice: 4",
        "Choice: 0",
        "",
        "Choice: two",
        "I think:\nChoice: 2",
    ],
)
async def test_an_answer_that_could_be_read_in_two_ways_is_asked_for_again_and_kept(answer: str) -> None:
    model = script([[answer, "Choice: 2\nClear now."], *GOOD[1:]])
    events = await events_of(critic_scene(model))
    first, second, *_ = verdicts(events)
    assert (first.text, first.place, bool(first.problem), first.attempt) == (answer, None, True, 1)
    assert (second.place, second.attempt, second.reason) == (2, 2, "Clear now.")
    again = [request for request in model.requests if request.agent == "critic"][1]
    assert first.problem in again.messages[-1].text or not answer
    assert spoken(events)[0] == ASKS[1]


@pytest.mark.parametrize(
    "answer", ["choice: 2", "**Choice: 2**", "Choice: Proposal 2.", "## Choice: #2", "**Choice:** 2"]
)
async def test_decoration_does_not_make_a_choice_unreadable(answer: str) -> None:
    events = await events_of(critic_scene(script([f"{answer}\nReason: It fits.", *GOOD[1:]])))
    assert (verdicts(events)[0].place, verdicts(events)[0].reason) == (2, "It fits.")


async def test_an_unreadable_choice_takes_the_first_proposal_or_fails_and_never_a_random_one() -> None:
    answers = [["I like them", "all"], *GOOD[1:]]
    events = await events_of(critic_scene(script(answers)))
    assert spoken(events)[0] == ASKS[0]
    assert [verdict.place for verdict in verdicts(events)][:2] == [None, None]
    failed = await events_of(critic_scene(script(answers), CriticSettings("Professor", unreadable="fail")))
    assert spoken(failed) == []
    assert isinstance(failed[-1], Ended)
    assert failed[-1].ending.code == "failed"
    assert "cannot be read" in failed[-1].ending.evidence


async def test_feedback_begins_another_round_until_the_last() -> None:
    better = ["Instruction: Boil a litre.\nInput: None", "Instruction: Boil a cup.\nInput: None", DONE]
    model = script(
        [
            [
                "Choice: 1\nVague.\nFeedback: Say how much.",
                "-",
                "Choice: 2\nA cup.\nFeedback: Say which cup.",
            ],
            "Choice: 1\nx",
            "Choice: 3\nx",
        ],
        user=[ASKS + better, ASKS],
    )
    events = await events_of(critic_scene(model, CriticSettings("Professor", rounds=2)))
    assert spoken(events)[0] == better[1]
    first, second, *_ = verdicts(events)
    assert (first.feedback, second.feedback) == ("Say how much.", ""), "the last round has no next one"
    again = [request for request in model.requests if request.agent == "user"][1]
    assert [message.text for message in again.messages][-2] == ASKS[0]
    assert "Say how much." in again.messages[-1].text
    after = [request for request in model.requests if request.agent == "user"][2]
    assert not any("Say how much." in message.text for message in after.messages), (
        "a note is for its turn only"
    )
    turn = next(event.turn for event in events if isinstance(event, Spoke))
    made = [
        event.proposal.usage for event in events if isinstance(event, Proposed) and event.proposal.number == 1
    ]
    said = [verdict.usage for verdict in verdicts(events) if verdict.number == 1]
    assert turn.usage == sum([*made, *said], Usage())


async def test_one_proposal_to_choose_from_is_not_paid_a_choice() -> None:
    model = script([], user=[["", ASKS[0], ASKS[0]], DONE], assistant=[SOLVES[0]])
    events = await events_of(critic_scene(model))
    assert spoken(events) == [ASKS[0], SOLVES[0], DONE]
    assert verdicts(events) == []


async def test_proposals_that_all_say_nothing_fail() -> None:
    events = await events_of(critic_scene(script([], user=[["", "", " "]])))
    assert isinstance(events[-1], Ended)
    assert (events[-1].ending.code, spoken(events)) == ("failed", [])


class Slow:
    """Answers singly, whatever it is asked, and remembers how many calls were open at once."""

    def __init__(self, model: Model, fails: int | None = None) -> None:
        self.name = model.name
        self.open = self.most = self.calls = 0
        self._model = model
        self._fails = fails

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        call = self.calls
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.01)
        self.open -= 1
        if call == self._fails:
            return await Scripted([ScriptedReply(error="It is gone.")]).reply(replace(request, call_index=0))
        return await self._model.reply(replace(request, n=1))

    async def close(self) -> None: ...


async def test_a_server_that_gives_one_at_a_time_is_asked_for_the_others_all_at_once() -> None:
    model = Slow(script(GOOD))
    events = await events_of(critic_scene(model, CriticSettings("Professor")))
    assert spoken(events) == [ASKS[1], SOLVES[2], DONE]
    assert model.most == 3, "from its second turn on the user is asked three times at once"


async def test_when_one_of_several_calls_fails_those_that_were_paid_are_kept() -> None:
    events = await events_of(critic_scene(Slow(script(GOOD), fails=2)))
    assert [type(event).__name__ for event in events] == ["Started", "Proposed", "Proposed", "Ended"]


async def test_a_server_that_refuses_n_is_asked_singly() -> None:
    def answer(request: Received) -> Answer | dict[str, object]:
        body = request.json
        if body.get("n", 1) > 1:
            return Answer({"error": {"message": "n must be 1", "param": "n"}}, status=400)
        if "numbered proposals" in body["messages"][0]["content"]:
            return completion("Choice: 1\nIt is as good as any.")
        return completion(f"{DONE}")

    async with Endpoint([answer]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        events = await events_of(critic_scene(model))
        await model.close()
    assert spoken(events) == [DONE]
    assert len(endpoint.requests) == 4


async def test_an_endpoint_with_n_is_asked_once_for_all_proposals() -> None:
    def answer(request: Received) -> dict[str, object]:
        n = request.json.get("n", 1)
        return completion(*ASKS[:2], DONE) if n == 3 else completion("Choice: 3\nWe are done.")

    async with Endpoint([answer]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        events = await events_of(critic_scene(model))
        await model.close()
    assert spoken(events) == [DONE]
    assert [request.json.get("n") for request in endpoint.requests] == [3, None]
    usages = [event.proposal.usage.total for event in events if isinstance(event, Proposed)]
    assert usages == [18, 0, 0], "one call is counted once"


async def test_an_enforced_session_has_its_choices_as_json() -> None:
    def answer(request: Received) -> dict[str, object]:
        schema = request.json["response_format"]["json_schema"]
        if schema["name"] == "choice":
            assert schema["schema"]["properties"]["choice"]["enum"] == [1, 2]
            return completion('{"choice": 2, "reason": "Done."}')
        return completion(
            '{"done": false, "instruction": "Go on.", "input": null}',
            '{"done": true, "instruction": "", "input": null}',
        )

    wish = CriticSettings("Professor", proposals=2)
    asked = setup(
        critic=wish, models=dict.fromkeys(("user", "assistant", "critic"), "openai:any"), protocol="enforced"
    )
    async with Endpoint([answer]) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        session = new_session(asked, PACK)
        scene = build_role_play(session, PACK, dict.fromkeys(asked.models, model), rules=asked.rules())
        events = await events_of(scene)
        await model.close()
    assert spoken(events) == [DONE]
    assert verdicts(events)[0].text == "Choice: 2\nDone."


async def test_a_resumed_session_pays_for_no_proposal_and_no_choice_again(tmp_path: Path) -> None:
    lines = [["Hm.", GOOD[0]], *GOOD[1:]]
    whole = await events_of(critic_scene(script(lines)))
    steps = [event for event in whole if isinstance(event, Proposed | Chose | Spoke)]
    for stop in range(1, len(steps) + 1):
        async with open_store(tmp_path / f"{stop}.db") as store:
            first = critic_scene(script(lines))
            session = await store.begin(first.session)
            count = 0
            async for event in persist_events(play_session(first), session.id, store):
                count += isinstance(event, Proposed | Chose | Spoke)
                if count == stop:
                    break
        async with open_store(tmp_path / f"{stop}.db") as store:
            session = await store.begin(session)
            known = await store.deliberation(session.id, after=len(session.turns))
            model = script(lines)
            rest = [
                e
                async for e in persist_events(
                    play_session(critic_scene(model, None, session, known)), session.id, store
                )
            ]
            assert isinstance(rest[-1], Ended)
            stored = await store.session(session.id)
            assert stored is not None
            assert [turn.text for turn in stored.turns] == spoken(whole)
            paid = sum(request.n for request in model.requests)
            assert paid == len([step for step in steps[stop:] if not isinstance(step, Spoke)])
            everything = await store.deliberation(session.id)
            assert len(everything.proposals) + len(everything.verdicts) == len(steps) - 3
            spent = (await read_spending(store)).agents
            assert spent["critic"].total == sum(verdict.usage.total for verdict in everything.verdicts)
            total = sum((turn.usage for turn in stored.turns), Usage())
            assert sum(usage.total for usage in spent.values()) == total.total


async def test_what_an_unfinished_turn_has_cost_is_counted(tmp_path: Path) -> None:
    async with open_store(tmp_path / "run.db") as store:
        scene = critic_scene(script(GOOD))
        await store.begin(scene.session)
        async for event in persist_events(play_session(scene), scene.session.id, store):
            if isinstance(event, Chose):
                break
        known = await store.deliberation(scene.session.id)
        spent = (await read_spending(store)).agents
    assert spent["user"].total == sum(proposal.usage.total for proposal in known.proposals) > 0
    assert spent["critic"].total == known.verdicts[0].usage.total > 0


async def test_a_recorded_run_is_replayed_with_its_critic(tmp_path: Path) -> None:
    async with open_store(tmp_path / "run.db") as store:
        scene = critic_scene(script([["Hm.", GOOD[0]], *GOOD[1:]]))
        await store.begin(scene.session)
        first = [event async for event in persist_events(play_session(scene), scene.session.id, store)]
    again = await events_of(critic_scene(Recorded(str(tmp_path / "run.db"))))
    assert spoken(again) == spoken(first)
    assert [v.text for v in verdicts(again)] == [v.text for v in verdicts(first)]


class Longest:
    """A scoring function in the critic's place, which says that it is a person who took an hour."""

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        best = max(question.proposals, key=lambda proposal: len(proposal.text))
        yield Decision(
            best.number,
            best.round,
            1,
            question.speaker.speaker,
            "length",
            Text(""),
            best.place,
            "the longest",
            seconds=3600.0,
            model=HUMAN,
        )


async def test_a_function_can_choose() -> None:
    scene = critic_scene(Counting(Scripted({"user": [ASKS, ASKS], "assistant": [SOLVES, SOLVES]})))
    chosen = Chosen(SessionCritic(Longest(), CriticSettings("Professor")))
    events = await events_of(
        replace(scene, strategies=dict.fromkeys(scene.agents, chosen), rules=default_endings(4))
    )
    assert spoken(events) == [ASKS[0], SOLVES[0], ASKS[0], SOLVES[0]]
    assert all(event.turn.seconds < 3600 for event in events if isinstance(event, Spoke)), "a person's time"


async def test_a_session_that_failed_for_its_critic_asks_it_again_when_it_is_taken_up(tmp_path: Path) -> None:
    wish = CriticSettings("Professor", unreadable="fail")
    lines = [["Hm.", "All.", "Choice: 2\nIt is clear now."], *GOOD[1:]]
    async with open_store(tmp_path / "run.db") as store:
        first = critic_scene(script(lines), wish)
        await store.begin(first.session)
        ended = [event async for event in persist_events(play_session(first), first.session.id, store)][-1]
        assert isinstance(ended, Ended)
        assert ended.ending.code == "failed"
        session = await store.begin(first.session)
        known = await store.deliberation(session.id)
        model = script(lines)
        events = [
            event
            async for event in persist_events(
                play_session(critic_scene(model, wish, session, known)), session.id, store
            )
        ]
    assert spoken(events) == [ASKS[1], SOLVES[2], DONE]
    assert [request.agent for request in model.requests][:2] == ["critic", "assistant"]
