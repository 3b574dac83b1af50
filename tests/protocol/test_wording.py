"""What the engine says to models, to the byte: recorded runs and servers' prefix caches depend on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.analyze.judge import judge
from bactrian.export.format import SystemPrompts
from bactrian.models.model import Model, Reply, ReplyChoice, Request, ResponseFormat, Traits
from bactrian.models.scripted import Scripted
from bactrian.models.text_tools import add_tools_as_text
from bactrian.protocol.pack import load_pack
from bactrian.recipes.schema import Axis
from bactrian.records.run import Finding
from bactrian.records.text import Text
from bactrian.records.turn import CriticSettings, Invocation, Message, ToolCall, Toolkit, Usage
from bactrian.roleplay.critic import build_answer_format, build_ranking_format
from bactrian.roleplay.endings import default_endings
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.response_formats import (
    build_assistant_format,
    build_small_task_format,
    build_user_format,
)
from bactrian.roleplay.role_assignment import find_roles
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.roleplay.society import build_moderator_format
from bactrian.roleplay.tools import build_toolbox
from bactrian.roleplay.turns import Scene
from bactrian.runs.lists import ModelSource
from bactrian.runs.scheduler import ListRequest
from tests.helpers.runs import session
from tests.helpers.scenes import Counting, setup
from tests.roleplay.test_society import MODERATED, performed, scripted, wish, written

GOLDEN = Path(__file__).parents[1] / "data" / "wording.json"
PACK = load_pack("ai-society")
ASKS = [f"Instruction: Pick tea {n}.\nInput: None" for n in range(3)]
SAYS = [f"Solution: Tea {n}.\nNext request." for n in range(3)]


def price(tea: str, weight: float = 1.0, much: list[int] | None = None) -> str:
    """Tell the price
    of a tea.
    """
    if tea == "none":
        raise ValueError(tea)
    return "" if tea == "free" else tea * 600


def quit_all() -> None:
    """End."""
    raise SystemExit


def written_down(model: Counting, agent: str) -> list[list[tuple[str, str]]]:
    return [
        [(message.role, message.text) for message in request.messages[1:] or request.messages]
        for request in model.requests
        if request.agent == agent
    ]


async def play_through(scene: Scene) -> None:
    async for _ in play_session(scene):
        pass


async def said_with_a_critic() -> dict[str, object]:
    lines: Mapping[str, Sequence[str | Sequence[str]]] = {
        "user": [[*ASKS, *ASKS], ASKS, ASKS],
        "assistant": [[*SAYS, *SAYS]],
        "critic": [
            ["x", "Choice: 7", "Choice: 1\nHm.\nFeedback: Name it.", "Choice: 2\nYes."],
            ["Choice: 1\nGood.\nFeedback: More.", "y", "Choice: 3\nYes."],
        ],
    }
    said: dict[str, object] = {}
    for name, critic in (
        ("critic", CriticSettings("Cook", rounds=2)),
        ("search", CriticSettings("Cook", width=2, depth=2)),
    ):
        model = Counting(Scripted(lines))
        asked = setup(critic=critic, models=dict.fromkeys(("user", "assistant", "critic"), "scripted"))
        models: dict[str, Model] = dict.fromkeys(asked.models, model)
        rules = default_endings(2)
        await play_through(build_role_play(new_session(asked, PACK), PACK, models, rules=rules))
        said[name] = {agent: written_down(model, agent) for agent in ("user", "assistant", "critic")}
    ranked = ["Ranking: 1, 1", "Ranking: 9, 1", "Ranking: 2, 1\nSo.", "Ranking: 2\nSo."]
    searching: dict[str, Sequence[str | Sequence[str]]] = {"user": [ASKS], "assistant": [SAYS, SAYS, SAYS]}
    for number in range(3):
        model = Counting(Scripted(searching | {"critic": [ranked[number:], ranked[3:]]}))
        asked = setup(
            critic=CriticSettings("Cook", width=2, depth=2),
            models=dict.fromkeys(("user", "assistant", "critic"), "scripted"),
        )
        models = dict.fromkeys(asked.models, model)
        rules = default_endings(2)
        await play_through(build_role_play(new_session(asked, PACK), PACK, models, rules=rules))
        said[f"ranking {number}"] = written_down(model, "critic")
    return said


async def said_with_tools() -> dict[str, object]:
    asked: list[Request] = []

    async def ask(request: Request) -> Reply:
        asked.append(request)
        return Reply((ReplyChoice(Text("Hm.")),), Usage(), "any")

    box = build_toolbox([price, quit_all], Toolkit((), seconds=30, characters=2000))
    call = Invocation("1", "price", '{"tea": "mint"}')
    messages = [
        Message("system", Text("You sell.")),
        Message("user", Text("Go.")),
        Message("assistant", Text("I look."), (call,)),
        Message("tool", Text("2"), answers="1"),
        Message("tool", Text("3"), answers="2"),
    ]
    for allowed in (True, False):
        request = Request(messages=messages, tools=box.kit.tools, allow_tool_calls=allowed)
        await add_tools_as_text(ask, request)
    results: list[str] = []
    for name, arguments in (
        ("price", '{"tea": "mint"}'),
        ("price", '{"tea": "free"}'),
        ("price", '{"tea": "none"}'),
        ("price", '{"weight": 1}'),
        ("cost", "{}"),
        ("quit_all", "{}"),
    ):
        wanted = Invocation("1", name, arguments)
        made = await box.call(ToolCall(1, 1, 1, "user", wanted, Text(""), Usage(), 0.0, "any"))
        results.append(made.text)
    return {
        "tools in text": [
            [(message.role, message.text) for message in request.messages] for request in asked
        ],
        "results": results,
    }


async def said_in_lists_and_roles() -> dict[str, object]:
    axis = Axis(name="task", count=3, ask="List {{ count }} tasks for {{ role }}.", per=("role",))
    model = Counting(Scripted(["1. Bake\n2. Cook", "Serve"]))
    request = ListRequest("task@001", axis.name, {"role": "Chef"}, axis.count, axis.count)
    async for _ in ModelSource([axis], model, preamble="Be brief.").list_items(request, None):
        pass
    said: dict[str, object] = {"list": [request.messages[0].text for request in model.requests]}
    for name in ("scripted", "local"):
        block = "Role: Expert {}\nDescription: Knows {}.\nCompetencies: law\n"
        model = Counting(Scripted({"role_assigner": [block.format(n, n) for n in range(3)]}, name=name))
        model.traits = Traits(small=name == "local")
        async for _ in find_roles("Make {{ tea }} {count}", 3, model, language="German", constrained=False):
            pass
        said[f"roles {name}"] = [request.messages[0].text for request in model.requests]
    return said


async def said_by_a_judge() -> dict[str, object]:
    example = session(rounds=3, texts=["Instruction: A.", "", "z" * 4000, "Solution: B.", "C", "D"])
    model = Counting(Scripted(["Yes."] * 5))
    for code in ("flake_reply", "my_own"):
        found = Finding(example.id, 4, code, 1.0, "B")
        await judge(model, "scripted", example, found)
    return {"judge": [[(m.role, m.text) for m in request.messages] for request in model.requests]}


async def said_in_a_group(folder: Path) -> dict[str, object]:
    deaf = MODERATED.replace('hears = ["host"]', "hears = []")
    model = scripted(host=["Next: Cook", "Next: Cook", "<CAMEL_TASK_DONE>"], bob=["One.", "Two."])
    await performed(wish(written(folder, deaf)), model)
    return {"group": [[(m.role, m.text) for m in request.messages] for request in model.requests]}


def said_in_schemas() -> dict[str, object]:
    forms: Sequence[ResponseFormat] = (
        build_user_format(),
        build_assistant_format(),
        build_small_task_format(),
        build_answer_format([1, 2], feedback=True),
        build_ranking_format([1, 2, 3], 2),
        build_moderator_format(["Cook"]),
    )
    return {"schemas": [form.schema for form in forms]}


def said_in_exports() -> dict[str, object]:
    unknown = replace(session().provenance, prompts="mine", prompts_hash="00")
    alone = replace(unknown, models={"assistant": "openai:two"})
    told = [SystemPrompts().render(session(provenance=origin)) for origin in (unknown, alone)]
    return {"stand-ins": [[prompts.user, prompts.assistant, prompts.opening] for prompts in told]}


async def test_every_word_that_the_engine_says_is_the_one_it_was(tmp_path: Path) -> None:
    said = {
        **await said_with_a_critic(),
        **await said_with_tools(),
        **await said_in_lists_and_roles(),
        **await said_by_a_judge(),
        **await said_in_a_group(tmp_path),
        **said_in_schemas(),
        **said_in_exports(),
    }
    assert json.loads(json.dumps(said)) == json.loads(GOLDEN.read_text("utf-8"))
