"""Societies: several agents, and several conversations one after another."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import InputError
from bactrian.models.scripted import Scripted, ScriptedReply
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import load_pack
from bactrian.recipes.society_file import list_societies, load_society
from bactrian.records.events import Called, Chose, Ended, Event, Spoke, Started
from bactrian.records.session import Role
from bactrian.records.turn import Turn
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import RolePlaySetup, new_session
from bactrian.roleplay.society import (
    ChatOptions,
    Moderated,
    ReplyTo,
    RoundRobin,
    SocietyRun,
    build_moderator_format,
    name_models,
    play_society,
)
from bactrian.roleplay.tools import build_toolbox
from bactrian.store import RunStore, open_store
from tests.helpers.command import bactrian, events
from tests.helpers.exports import handed
from tests.helpers.runs import turn
from tests.helpers.scenes import Counting

TALK = """
name = "tea"
task = "Which tea?"
[[agents]]
name = "host"
role = "Host"
prompt = "You lead {{ others }} to an answer: {{ task }}{{ language }}"
[[agents]]
name = "ada"
role = "Botanist"
description = "Knows leaves."
prompt = "You are {{ role }}. {{ description }} {{ task }}"
[[agents]]
name = "bob"
role = "Cook"
prompt = "You are {{ role }}: {{ task }}"
hears = ["host"]
[[stages]]
name = "talk"
agents = ["host", "ada", "bob"]
"""
MODERATED = TALK + 'order = "moderator"\nmoderator = "host"\n'


def written(folder: Path, text: str) -> str:
    (folder / "society.toml").write_text(text)
    return str(folder / "society.toml")


def wish(name: str, task: str | None = None, **more: Any) -> SocietyRun:
    society, prompts = load_society(name)
    models = name_models(society, "scripted", task_model="scripted", critic_model="scripted")
    return SocietyRun(society, prompts, task or society.task, ChatOptions(models, **more))


def scripted(**lines: Sequence[str | Sequence[str | ScriptedReply]]) -> Counting:
    return Counting(Scripted(lines))


async def performed(asked: SocietyRun, model: Counting, store: RunStore | None = None) -> list[Event]:
    return [event async for event in play_society(asked, dict.fromkeys(asked.chat.models, model), store)]


def said(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.turn.speaker, event.turn.text) for event in events if isinstance(event, Spoke)]


async def test_everyone_speaks_in_turn_and_hears_whom_they_are_meant_to(tmp_path: Path) -> None:
    model = scripted(host=["Hello.", "So?", f"Green.\n{DONE}"], ada=["Green.", "Yes."], bob=["Hm.", "No."])
    events = await performed(wish(written(tmp_path, TALK)), model)
    assert [name for name, _ in said(events)] == ["host", "ada", "bob"] * 2 + ["host"]
    assert isinstance(events[-1], Ended)
    assert events[-1].ending.code == "task_done"

    def seen(agent: str) -> list[tuple[str, str]]:
        last = [request for request in model.requests if request.agent == agent][-1]
        return [(message.role, message.text) for message in last.messages]

    assert seen("host") == [
        ("system", "You lead Botanist, Cook to an answer: Which tea?"),
        ("user", "Begin."),
        ("assistant", "Hello."),
        ("user", "Botanist: Green.\n\nCook: Hm."),
        ("assistant", "So?"),
        ("user", "Botanist: Yes.\n\nCook: No."),
        ("assistant", f"Green.\n{DONE}"),
    ]
    assert seen("bob")[1:4] == [("user", "Host: Hello."), ("assistant", "Hm."), ("user", "Host: So?")]
    assert seen("ada")[0][1] == "You are Botanist. Knows leaves. Which tea?"


async def test_a_moderator_calls_on_the_next_speaker(tmp_path: Path) -> None:
    host = ["Let us hear.\nNext: Cook", "And you?\n**Next:** the Botanist", "Next: cook", DONE]
    model = scripted(host=host, bob=["Mint.", "Still mint."], ada=["Sage."])
    events = await performed(wish(written(tmp_path, MODERATED)), model)
    assert [name for name, _ in said(events)] == ["host", "bob", "host", "ada", "host", "bob", "host"]


@pytest.mark.parametrize(
    ("text", "speaker"),
    [
        ("Next: Cook", "bob"),
        ("Next: `bob`.", "bob"),
        ("Next: Host", "ada"),
        ("Who?", "ada"),
        ("Next: Ada and Bob", "ada"),
    ],
)
def test_a_moderator_who_names_nobody_gives_the_word_to_the_one_silent_for_longest(
    text: str, speaker: str
) -> None:
    roles = {"host": "Host", "ada": "Botanist", "bob": "Cook"}
    turns = [_turn(1, "host", "x"), _turn(2, "bob", "y"), _turn(3, "host", text)]
    assert Moderated("host", roles).next_speaker(turns) == speaker


@pytest.mark.parametrize(
    ("text", "speaker"),
    [
        ("What do you say, @Cook?", "bob"),
        ("To: Host\nI agree.", "host"),
        ("@bob and @host", "bob"),
        ("Well.", "host"),
        ("@Botanist", "host"),
    ],
)
def test_whoever_is_addressed_answers(text: str, speaker: str) -> None:
    order = ReplyTo({"host": "Host", "ada": "Botanist", "bob": "Cook"})
    assert order.next_speaker([]) == "host"
    assert order.next_speaker([_turn(1, "host", "x"), _turn(2, "ada", text)]) == speaker
    assert order.next_speaker([_turn(1, "ada", "x")]) == "bob"


def test_round_robin_goes_round() -> None:
    order = RoundRobin(("a", "b"))
    assert [order.next_speaker(turns) for turns in ([], [_turn(1, "a", "x")], [_turn(2, "b", "x")])] == [
        "a",
        "b",
        "a",
    ]


def _turn(number: int, speaker: str, text: str) -> Turn:
    return replace(turn(number, text), speaker=speaker)


async def test_an_agent_that_has_nothing_to_answer_is_told_that_it_is_its_turn(tmp_path: Path) -> None:
    deaf = MODERATED.replace('hears = ["host"]', "hears = []")
    host = ["Next: Cook", "Next: Cook", DONE]
    model = scripted(host=host, bob=["One.", "Two."])
    await performed(wish(written(tmp_path, deaf)), model)
    last = [request for request in model.requests if request.agent == "bob"][-1]
    assert [message.role for message in last.messages] == ["system", "user", "assistant", "user"]


PLAN = ["Instruction: Plan it.\nInput: None", DONE]
SOLVED = ["Solution: First dig, then sow.\nNext request."]


def two_stages() -> Counting:
    return scripted(
        user=[["Instruction: Plan it.\nInput: None"], DONE],
        assistant=["Solution: First dig, then sow.\nNext request."],
    )


async def test_the_output_of_a_stage_is_part_of_the_next_ones_task() -> None:
    model = two_stages()
    events = await performed(wish("tech-lead", "Grow beans"), model)
    first, second = [event.session for event in events if isinstance(event, Started)]
    assert (first.user.name, first.assistant.name) == ("Stock Trader", "Tech Lead")
    assert (second.user.name, second.assistant.name) == ("Tech Lead", "Python Programmer")
    assert (
        first.task.original
        == "Work out how to implement this, step by step and without writing code yet: Grow beans"
    )
    assert second.task.original == "Grow beans\n\nThis plan has been agreed on:\nFirst dig, then sow."
    assert "First dig" in model.requests[-1].messages[0].text
    assert len({first.id, second.id}) == 2


async def test_stages_are_kept_and_taken_up_where_they_stopped(tmp_path: Path) -> None:
    asked = wish("tech-lead", "Grow beans")
    whole = said(await performed(asked, two_stages()))
    for stop in range(1, len(whole)):
        async with open_store(tmp_path / f"{stop}.db") as store:
            model = two_stages()
            heard = 0
            async for event in play_society(asked, dict.fromkeys(asked.chat.models, model), store):
                heard += isinstance(event, Spoke)
                if heard == stop:
                    break
        async with open_store(tmp_path / f"{stop}.db") as store:
            again = two_stages()
            rest = said(await performed(asked, again, store))
            assert rest == whole[stop:]
            assert len(again.requests) == len(whole) - stop
            stored = [session async for session in store.sessions()]
            assert [turn.text for session in stored for turn in session.turns] == [text for _, text in whole]


async def test_a_stage_that_fails_is_the_last() -> None:
    events = await performed(wish("tech-lead"), scripted(user=PLAN, assistant=[]))
    assert [event.ending.code for event in events if isinstance(event, Ended)] == ["failed"]


async def test_a_talk_is_kept_with_its_cast_and_taken_up(tmp_path: Path) -> None:
    asked = wish(written(tmp_path, MODERATED))
    lines: dict[str, Any] = {"host": ["Next: Cook", f"Mint.\n{DONE}"], "bob": ["Mint."]}
    async with open_store(tmp_path / "run.db") as store:
        async for event in play_society(asked, dict.fromkeys(asked.chat.models, scripted(**lines)), store):
            if isinstance(event, Spoke) and event.turn.number == 2:
                break
    async with open_store(tmp_path / "run.db") as store:
        model = scripted(**lines)
        await performed(asked, model, store)
        (session,) = [session async for session in store.sessions()]
    assert len(model.requests) == 1
    assert {name: role.name for name, role in session.provenance.cast.items()} == {
        "host": "Host",
        "ada": "Botanist",
        "bob": "Cook",
    }
    assert [turn.role for turn in session.turns] == ["Host", "Cook", "Host"]
    made = await handed(tmp_path / "run.db", "csv", tmp_path / "csv")
    assert made["counts"]["messages"] == 3
    with pytest.raises(InputError, match="'talk'"):
        await handed(tmp_path / "run.db", "messages", tmp_path / "chat.jsonl")


async def test_the_two_agent_play_is_the_two_node_society(tmp_path: Path) -> None:
    pair = written(
        tmp_path,
        'name = "pair"\ntask = "Make tea"\n[[agents]]\nname = "cook"\nrole = "Cook"\n[[agents]]\nname = "guest"\n'
        'role = "Guest"\n[[stages]]\nname = "talk"\nuser = "guest"\nassistant = "cook"\n',
    )
    one, other = two_stages(), two_stages()
    await performed(wish(pair), one)
    names: dict[str, str] = dict.fromkeys(("user", "assistant"), "scripted")
    setup = RolePlaySetup("Make tea", Role("Cook"), Role("Guest"), names, specify=False)
    pack = load_pack("ai-society")
    scene = build_role_play(
        new_session(setup, pack), pack, {"user": other, "assistant": other}, rules=setup.rules()
    )
    async for _ in play_session(scene):
        pass
    assert [[m.text for m in request.messages] for request in one.requests] == [
        [m.text for m in request.messages] for request in other.requests
    ]


async def test_a_society_can_have_a_critic() -> None:
    goods = ["Choice: 2\nGood.", "Choice: 1\nGood.", "Choice: 1\nGood."]
    model = scripted(
        task_specifier=["Make a bot."],
        user=[
            ["Instruction: A.\nInput: None", "Instruction: B.\nInput: None", "Instruction: C.\nInput: None"],
            DONE,
        ],
        assistant=[
            ["Solution: 1.\nNext request.", "Solution: 2.\nNext request.", "Solution: 3.\nNext request."]
        ],
        critic=goods,
    )
    events = await performed(wish("critic"), model)
    assert [text for _, text in said(events)] == [
        "Instruction: B.\nInput: None",
        "Solution: 1.\nNext request.",
        DONE,
    ]
    assert {event.verdict.chooser for event in events if isinstance(event, Chose)} == {"Trading Expert"}


@pytest.mark.parametrize(("search", "calls"), [(None, 1), ("beam:1x2", 0)])
async def test_an_agent_of_a_stage_with_a_critic_uses_its_tools_unless_the_critic_searches(
    tmp_path: Path, search: str | None, calls: int
) -> None:
    def price(tea: str) -> str:
        """Tell the price of a tea."""
        return f"2 euros for {tea}"

    path = written(
        tmp_path,
        """
        name = "shop"
        task = "Which tea?"
        [[agents]]
        name = "guest"
        role = "Guest"
        [[agents]]
        name = "seller"
        role = "Seller"
        [[stages]]
        name = "talk"
        user = "guest"
        assistant = "seller"
        specify = false
        [stages.critic]
        role = "Cook"
        proposals = 2
        """
        + (f'search = "{search}"' if search else ""),
    )
    says = ["Solution: 2 euros.\nNext request.", "Solution: Two.\nNext request."]
    model = scripted(
        user=[["Instruction: A.\nInput: None", "Instruction: B.\nInput: None"], [DONE, DONE]],
        assistant=[['Call: price {"tea": "green"}'], says] if calls else [says],
        critic=["Choice: 1\nGood.", "Choice: 2\nShort.", "Choice: 1\nGood."],
    )
    asked = replace(wish(path), tools={"seller": build_toolbox([price])})
    events = await performed(asked, model)
    assert sum(isinstance(event, Called) for event in events) == calls
    said_by_seller = [text for speaker, text in said(events) if speaker == "assistant"]
    assert said_by_seller[0] in says


def test_a_constrained_moderator_writes_the_same_as_a_free_one() -> None:
    form = build_moderator_format(["Cook", 'A "B"'])
    assert form.read('{"message": "Well?", "next": "Cook", "done": false}') == "Well?\nNext: Cook"
    assert form.read('{"message": "Mint.", "next": null, "done": true}') == f"Mint.\n{DONE}"
    assert '"A \\"B\\""' in form.grammar


@pytest.mark.parametrize("name", ["critic", "panel", "tech-lead"])
def test_the_shipped_societies_can_be_loaded(name: str) -> None:
    assert name in list_societies()
    society, _ = load_society(name)
    assert society.name == name
    assert society.description


@pytest.mark.parametrize(
    ("change", "says", "place"),
    [
        (("Botanist", "Cook"), "same role", ""),
        (('"ada", "bob"', '"ada", "eve"'), "'eve', which is not an agent", ""),
        (('hears = ["host"]', 'hears = ["eve"]'), "hears 'eve'", ""),
        (('role = "Cook"', 'rule = "Cook"'), "Did you mean 'role'", ":15:1"),
        (('name = "bob"', 'name = "ada"'), "'ada' is taken", ""),
        (("{{ language }}", "{{ lang }}"), "lang", ":7:1"),
        (('agents = ["host", "ada", "bob"]', 'agents = ["host"]'), "at least two", ":18"),
        (
            ('agents = ["host", "ada", "bob"]', 'user = "host"'),
            "either `user` and `assistant`, or `agents`",
            "",
        ),
        (('name = "talk"', 'name = "talk"\norder = "moderator"'), "go together", ""),
        (('name = "talk"', 'name = "talk"\ndone_by = ["eve"]'), "'eve' is not one of", ""),
        (('prompt = "You are {{ role }}: {{ task }}"', ""), "needs a `prompt`", ""),
        (("[[stages]]", "[[stages"), "not valid TOML", ":18"),
        (('name = "tea"', 'name = "Tea Time"'), "name", ":2:1"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    tmp_path: Path, change: tuple[str, str], says: str, place: str
) -> None:
    assert change[0] in TALK
    with pytest.raises(InputError) as caught:
        load_society(written(tmp_path, TALK.replace(*change)))
    assert says in str(caught.value)
    assert place in str(caught.value)


def test_an_unknown_society_is_told_with_those_there_are() -> None:
    with pytest.raises(InputError, match="Did you mean 'panel'") as caught:
        load_society("pannel")
    assert "tech-lead" in str(caught.value)


def test_a_society_is_played_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(
        json.dumps({"host": ["Next: Cook", f"Mint.\n{DONE}"], "bob": ["Mint, @Host."]})
    )
    command = (
        "play",
        "Which herb?",
        "--society",
        written(tmp_path, MODERATED),
        "--model",
        "scripted:script.json",
    )
    done = bactrian(*command, "--json", "--run", "run.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = events(done.stdout)
    assert lines[0]["agents"] == {"host": "Host", "ada": "Botanist", "bob": "Cook"}
    assert lines[0]["original_task"] == "Which herb?"
    assert [line["speaker"] for line in lines[1:-1]] == ["host", "bob", "host"]
    # Nobody in it is the assistant or the user.
    assert [
        lines[0][f"{side}_{what}"] for side in ("assistant", "user") for what in ("role", "description")
    ] == [
        *(None, ""),
        *(None, ""),
    ]
    exported = bactrian("export", "run.db", "--format", "csv", "--out", "run.csv", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["speaker"], row["role"]) for row in rows] == [
        ("host", "Host"),
        ("bob", "Cook"),
        ("host", "Host"),
    ]
    assert {(row["assistant_role"], row["user_role"]) for row in rows} == {("", "")}
    seen = bactrian(*command, cwd=tmp_path)
    assert "Host × Botanist × Cook" in seen.stdout
    assert "Mint, @Host." in seen.stdout
    analysed = bactrian("analyze", "run.db", "--json", cwd=tmp_path)
    assert analysed.returncode == 0, analysed.stderr
    assert "missing_marker" not in {
        code for code, found in json.loads(analysed.stdout)["behaviours"].items() if found["sessions"]
    }


@pytest.mark.parametrize("flag", ["--assistant", "--critic", "--roles"])
def test_what_the_file_says_cannot_be_said_by_a_flag(tmp_path: Path, flag: str) -> None:
    done = bactrian("play", "--society", "panel", flag, "x", cwd=tmp_path)
    assert (done.returncode, f"{flag} cannot be combined with --society" in done.stderr) == (2, True)


def test_a_person_can_sit_in_a_society(tmp_path: Path) -> None:
    seated = MODERATED.replace('role = "Cook"', 'role = "Cook"\nmodel = "human"')
    (tmp_path / "script.json").write_text(json.dumps({"host": ["Next: Cook", f"Mint.\n{DONE}"]}))
    done = bactrian(
        *("play", "--society", written(tmp_path, seated), "--model", "scripted:script.json", "--json"),
        cwd=tmp_path,
        text=b"I like mint\n",
    )
    assert done.returncode == 0, done.stderr
    assert [line["text"] for line in events(done.stdout) if line["event"] == "spoke"][1] == "I like mint"


def test_a_person_who_moderates_is_told_how_to_name_the_next_speaker(tmp_path: Path) -> None:
    seated = MODERATED.replace('role = "Host"', 'role = "Host"\nmodel = "human"')
    assert seated != MODERATED
    (tmp_path / "script.json").write_text(json.dumps({"bob": ["Mint."]}))
    done = bactrian(
        *("play", "--society", written(tmp_path, seated), "--model", "scripted:script.json", "--json"),
        cwd=tmp_path,
        text=f"Which herb?\\\nNext: Cook\nIt is mint.\\\n{DONE}\n".encode(),
    )
    assert done.returncode == 0, done.stderr
    said = [line["text"] for line in events(done.stdout) if line["event"] == "spoke"]
    assert said == ["Which herb?\nNext: Cook", "Mint.", f"It is mint.\n{DONE}"]
    assert "Your message (a backslash at its end continues it), or stop." in done.stderr
    assert f"Its last line is Next: ROLE, or {DONE} at the end:" in done.stderr


HELPED = """
name = "helped"
task = "Sow"
models = { critic = "openai:judge", task = "openai:planner" }
agents = [{ name = "guest", role = "Guest", model = "openai:a" }, { name = "cook", role = "Cook", model = "openai:b" }]

[[stages]]
name = "work"
user = "guest"
assistant = "cook"
plan = true
critic = { role = "Head Gardener" }
"""


def test_critic_and_planner_of_a_society_have_models_of_their_own(tmp_path: Path) -> None:
    society, _ = load_society(written(tmp_path, HELPED))
    names = name_models(society, "local", task_model=None, critic_model=None)
    assert (names["critic"], names["task_planner"]) == ("openai:judge", "openai:planner")
    names = name_models(society, "local", task_model="openai:x", critic_model="openai:y")
    assert (names["critic"], names["task_planner"]) == ("openai:y", "openai:x")
