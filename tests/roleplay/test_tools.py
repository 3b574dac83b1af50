"""Agents that use tools: real Python functions, a real endpoint, a real run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from bactrian.errors import InputError
from bactrian.models.model import Model
from bactrian.models.openai import OpenAIModel
from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.protocol.pack import load_pack
from bactrian.records.events import Called, Ended, Event, Returned, Spoke
from bactrian.records.session import Session
from bactrian.records.turn import Toolkit, ToolResult
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.recorded import Recorded
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.roleplay.start import persist_events
from bactrian.roleplay.tools import BadArguments, FunctionTool, Toolbox, build_toolbox, load_functions
from bactrian.roleplay.turns import Scene
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.endpoint import Calls, Endpoint, Reply
from tests.helpers.scenes import AGENTS, Counting, setup

ASK = "Instruction: Add two and three.\nInput: None"
ANSWER = "Solution: It is 5.\nNext request."
PACK = load_pack("ai-society")


def add(a: int, b: int = 1) -> int:
    """Add two whole numbers."""
    return a + b


def broken(x: float) -> float:
    """Divide by nothing."""
    return x / 0


def long(n: int) -> str:
    """Say a lot."""
    return "z" * n


class Size(BaseModel):
    width: float


@dataclass
class Found:
    count: int
    path: Path


@dataclass
class Diary:
    """Tools that remember when they ran."""

    calls: list[str]

    def tools(self) -> list[FunctionTool]:
        def note(what: str) -> str:
            """Write something down."""
            self.calls.append(what)
            return f"noted {what}"

        return [FunctionTool(note)]


def stage(
    model: Model,
    tools: Sequence[FunctionTool],
    session: Session | None = None,
    **limits: Any,
) -> Scene:
    """A scene whose assistant has ``tools``."""
    kit = Toolkit(tuple(tool.tool for tool in tools), **limits)
    wish = setup(tools={"assistant": kit})
    models: Mapping[str, Model] = dict.fromkeys(AGENTS, model)
    box = Toolbox(kit, {tool.tool.name: tool for tool in tools})
    return build_role_play(
        session or new_session(wish, PACK), PACK, models, rules=wish.rules(), tools={"assistant": box}
    )


async def events(scene: Scene) -> list[Event]:
    return [event async for event in play_session(scene)]


def results(found: Sequence[Event]) -> list[ToolResult]:
    """In the order of the calls."""
    made = [event.result for event in found if isinstance(event, Returned)]
    return sorted(made, key=lambda result: (result.number, result.round, result.place))


async def results_of(text: str, *tools: Callable[..., Any], **limits: Any) -> list[ToolResult]:
    """What comes of a reply ``text`` that calls."""
    model = Scripted({"user": [ASK, DONE], "assistant": [text, ANSWER]})
    found = await events(stage(model, [FunctionTool(tool) for tool in tools], **limits))
    assert isinstance(found[-1], Ended)
    assert found[-1].ending.code == "task_done"
    return results(found)


def test_the_signature_is_the_schema_and_the_docstring_the_description() -> None:
    def draw(
        shape: Literal["ring", "box"],
        size: Size,
        json: Annotated[str, Field(description="any text")] = "",
        copy: list[int] | None = None,
    ) -> str:
        """Draw something.

        On paper.
        """
        return f"{shape} {size.width} {json} {copy}"

    tool = FunctionTool(draw).tool
    assert (tool.name, tool.description) == ("draw", "Draw something.\n\nOn paper.")
    assert tool.parameters["required"] == ["shape", "size"]
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["shape"] == {"enum": ["ring", "box"], "type": "string"}
    assert properties["json"] == {"default": "", "description": "any text", "type": "string"}
    assert list(properties) == ["shape", "size", "json", "copy"]
    assert tool.parameters["additionalProperties"] is False
    # The order of the bytes counts: an endpoint's cache of prompts holds them.
    assert next(iter(tool.parameters)) == "properties"


async def test_a_function_gets_values_of_its_types_and_its_own_defaults() -> None:
    seen: list[object] = []

    def draw(size: Size, mark: Any = seen) -> str:
        """Draw."""
        seen.append((size, mark is seen))
        return "drawn"

    assert await FunctionTool(draw).run('{"size": {"width": 2}}') == "drawn"
    assert seen == [(Size(width=2), True)]


async def test_functions_as_they_are_make_a_toolbox() -> None:
    box = build_toolbox([add, FunctionTool(long)], Toolkit((), rounds=2))
    assert [tool.name for tool in box.kit.tools] == ["add", "long"]
    assert (box.kit.rounds, box.kit.seconds) == (2, Toolkit(()).seconds)
    assert await box.tools["add"].run('{"a": 2}') == "3"
    with pytest.raises(InputError, match="two tools named 'add'"):
        build_toolbox([add, add])
    with pytest.raises(InputError, match="no docstring"):
        build_toolbox([silent])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{}", "a: Field required"),
        (
            '{"a": 1, "b": null, "c": 1}',
            "b: Input should be a valid integer; c: Extra inputs are not permitted",
        ),
        ("[1]", "Input should be an object"),
        ("3", "Input should be an object"),
        ("now", "Invalid JSON: expected ident at line 1 column 2"),
    ],
)
async def test_a_model_is_told_what_does_not_fit_in_words_of_an_object(arguments: str, told: str) -> None:
    with pytest.raises(BadArguments) as caught:
        await FunctionTool(add).run(arguments)
    assert str(caught.value) == told


async def test_a_fault_of_pydantic_inside_a_tool_is_the_tools_own() -> None:
    def check(width: str) -> str:
        """Check."""
        return str(Size.model_validate({"width": width}))

    with pytest.raises(ValidationError):
        await FunctionTool(check).run('{"width": "wide"}')


def untyped(x):  # type: ignore[no-untyped-def]
    """Something."""


def silent(x: int) -> None: ...


def many(*rest: int) -> None:
    """Something."""


def only(x: int, /) -> None:
    """Something."""


def strange(x: asyncio.Event) -> None:
    """Something."""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (untyped, "no type"),
        (silent, "no docstring"),
        (many, "no name"),
        (only, "no name"),
        (strange, "not JSON"),
        (3, "not a tool"),
    ],
)
def test_a_function_that_a_model_could_not_call_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        FunctionTool(function)


@pytest.mark.parametrize("arguments", ['{"a": "x"}', '{"a": 1, "c": 2}', "{}", "[1]", '{"a": 1', "now"])
async def test_arguments_that_do_not_fit_never_reach_the_function(arguments: str) -> None:
    def never(a: int) -> int:
        """Fail."""
        raise AssertionError

    with pytest.raises(BadArguments):
        await FunctionTool(never).run(arguments)


def test_a_file_gives_its_public_functions_or_those_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from os.path import join\n"
        "def price(item: str) -> float:\n    'The price.'\n    return 3.5\n"
        "async def buy(item: str) -> str:\n    'Buy it.'\n    return item\n"
        "def _secret(): ...\n"
    )
    assert [tool.tool.name for tool in load_functions(str(file))] == ["price", "buy"]
    assert [tool.tool.name for tool in load_functions(f"{file}:buy")] == ["buy"]
    with pytest.raises(InputError, match="no function 'sell'"):
        load_functions(f"{file}:buy,sell")


def test_a_file_that_changes_within_a_second_is_read_again_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    told: list[str] = []
    for verb in ("Add", "Sum"):
        (tmp_path / "calc.py").write_text(f'def add(a: int) -> int:\n    """{verb} it."""\n    return a\n')
        os.utime(tmp_path / "calc.py", (1, 1))
        (tool,) = load_functions(str(tmp_path / "calc.py"))
        told.append(tool.tool.description)
    assert told == ["Add it.", "Sum it."]
    assert [file.name for file in tmp_path.iterdir()] == ["calc.py"]


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        ("x = 1\nraise KeyError('k')\n", "KeyError", 2),
        ("def f(:\n", "SyntaxError", 1),
        ("import sys\nsys.exit(3)\n", "SystemExit", 2),
        ("import no_such_module_here\n", "ModuleNotFoundError", 1),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_its_line(
    tmp_path: Path, content: str, problem: str, line: int
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(content)
    with pytest.raises(InputError, match=problem) as caught:
        load_functions(str(file))
    assert caught.value.where == f"{file}:{line}"


async def test_a_call_and_its_result_come_before_the_turn_that_they_are_for() -> None:
    model = Counting(
        Scripted({"user": [ASK, DONE], "assistant": ['Let me see.\nCall: add {"a": 2, "b": 3}', ANSWER]})
    )
    found = await events(stage(model, [FunctionTool(add)]))
    kinds = [type(event).__name__ for event in found]
    assert kinds == ["Started", "Spoke", "Called", "Returned", "Spoke", "Spoke", "Ended"]
    called, returned, spoke = found[2:5]
    assert isinstance(called, Called)
    assert isinstance(returned, Returned)
    assert isinstance(spoke, Spoke)
    assert (called.call.speaker, called.call.number, called.call.text) == ("assistant", 2, "Let me see.")
    assert (called.call.wanted.name, called.call.wanted.arguments) == ("add", '{"a": 2, "b": 3}')
    assert (returned.result.text, returned.result.problem) == ("5", None)
    assert spoke.turn.text == ANSWER
    assert [use.result for use in spoke.turn.uses] == [returned.result]
    assert spoke.turn.usage.prompt > called.call.usage.prompt > 0
    assert [request.call_index for request in model.requests] == [0, 1, 2, 3]


async def test_the_other_agent_hears_nothing_of_tools_and_its_own_keeps_them_in_mind() -> None:
    model = Counting(
        Scripted(
            {
                "user": [ASK, ASK.replace("three", "four"), DONE],
                "assistant": ['Call: add {"a": 2, "b": 3}', ANSWER, "Solution: It is 6.\nNext request."],
            }
        )
    )
    await events(stage(model, [FunctionTool(add)]))
    users = [request for request in model.requests if request.agent == "user"]
    assert all(not request.tools for request in users)
    assert "Call:" not in "".join(message.text for message in users[-1].messages)
    last = [request for request in model.requests if request.agent == "assistant"][-1]
    assert [message.role for message in last.messages][:6] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


async def test_whatever_goes_wrong_in_a_tool_is_told_to_the_model() -> None:
    def stop() -> None:
        """Stop iterating."""
        raise StopIteration

    def leave() -> None:
        """Leave."""
        sys.exit(3)

    text = "\n".join(
        [
            'Call: broken {"x": 1}',
            'Call: add {"a": "many"}',
            "Call: dance {}",
            "Call: stop {}",
            "Call: leave {}",
            'Call: add {"a": 1}',
        ]
    )
    found = await results_of(text, add, broken, stop, leave)
    assert [result.problem for result in found] == [
        "failed",
        "arguments",
        "unknown",
        "failed",
        "failed",
        None,
    ]
    assert re.fullmatch("broken failed: ZeroDivisionError: (float )?division by zero", found[0].text)
    assert "a: Input should be a valid integer" in found[1].text
    assert "'dance'" in found[2].text
    assert "add, broken, stop, leave" in found[2].text
    assert found[5].text == "2"


async def test_a_tool_that_takes_too_long_is_given_up_and_holds_nobody_up() -> None:
    def hang() -> None:
        """Wait for an hour."""
        time.sleep(3600)

    async def stubborn() -> None:
        """Wait and do not give in."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            raise RuntimeError("never mind") from None

    found = await results_of(
        'Call: hang {}\nCall: stubborn {}\nCall: add {"a": 1}', hang, stubborn, add, seconds=0.05
    )
    assert [result.problem for result in found] == ["timeout", "timeout", None]
    assert found[0].text == "hang took longer than 0.05 s and was given up."


async def test_the_calls_of_one_reply_run_at_the_same_time() -> None:
    met = asyncio.Barrier(3)

    async def meet(n: int) -> str:
        """Wait until three have come."""
        await met.wait()
        return str(n)

    found = await results_of('Call: meet {"n": 1}\nCall: meet {"n": 2}\nCall: meet {"n": 3}', meet, seconds=5)
    assert [result.text for result in found] == ["1", "2", "3"]


async def test_a_long_result_is_cut_and_says_so() -> None:
    (found,) = await results_of('Call: long {"n": 500}', long, characters=100)
    assert found.cut
    assert found.text == f"{'z' * 100}\n[cut: the first 100 of 500 characters]"


async def test_after_the_last_round_the_model_is_told_to_answer() -> None:
    call = 'Call: add {"a": 1}'
    model = Counting(Scripted({"user": [ASK, DONE], "assistant": [call, call, ANSWER]}))
    found = await events(stage(model, [FunctionTool(add)], rounds=2))
    assert len(results(found)) == 2
    own = [request.allow_tool_calls for request in model.requests if request.agent == "assistant"]
    assert own == [True, True, False]


async def test_a_model_that_only_calls_and_never_speaks_fails_the_session_and_nothing_is_lost() -> None:
    model = Scripted({"user": [ASK], "assistant": ['Call: add {"a": 1}'] * 3})
    found = await events(stage(model, [FunctionTool(add)], rounds=2))
    last = found[-1]
    assert isinstance(last, Ended)
    assert last.ending.code == "failed"
    assert "said nothing" in last.ending.evidence
    assert len(results(found)) == 2


async def test_an_endpoint_calls_natively(tmp_path: Path) -> None:
    replies: list[Reply] = [ASK, Calls((("add", {"a": 2, "b": 3}), ("broken", {"x": 1}))), ANSWER, DONE]
    async with Endpoint(replies) as endpoint:
        model = OpenAIModel("any", base_url=endpoint.url)
        scene = stage(model, [FunctionTool(add), FunctionTool(broken)])
        async with open_store(tmp_path / "run.db") as store:
            await store.begin(scene.session)
            found = [event async for event in persist_events(play_session(scene), scene.session.id, store)]
            stored = await store.session(scene.session.id)
            spent = (await read_spending(store)).agents
        await model.close()
    sent = endpoint.requests[2].json["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[3] == {"role": "tool", "content": "5", "tool_call_id": sent[2]["tool_calls"][0]["id"]}
    assert "ZeroDivisionError" in sent[4]["content"]
    assert stored is not None
    assert stored.turns == tuple(event.turn for event in found if isinstance(event, Spoke))
    assert stored.turns[1].usage.prompt == 22
    assert stored.provenance == scene.session.provenance
    assert spent["assistant"].prompt == 22
    assert "tools" not in endpoint.requests[0].json


async def test_every_call_and_result_is_on_disk_before_the_next_request(tmp_path: Path) -> None:
    model = Scripted({"user": [ASK, DONE], "assistant": ['Call: add {"a": 1}', ANSWER]})
    scene = stage(model, [FunctionTool(add)])
    seen: list[tuple[str, int, bool]] = []
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(scene.session)
        async for event in persist_events(play_session(scene), scene.session.id, store):
            stored = await store.session(scene.session.id)
            assert stored is not None
            if isinstance(event, Called | Returned):
                (use,) = stored.pending
                seen.append((type(event).__name__, len(stored.turns), use.result is not None))
    assert seen == [("Called", 1, False), ("Returned", 1, True)]


async def stored_until(path: Path, scene: Scene, stop: Callable[[Event], bool]) -> None:
    """Play into a run, and stop after an event as if the power had failed."""
    async with open_store(path) as store:
        await store.begin(scene.session)
        async with aclosing(play_session(scene)) as source:
            async for event in persist_events(source, scene.session.id, store):
                if stop(event):
                    return


async def resumed(path: Path, scene: Scene) -> AsyncGenerator[Event]:
    async with open_store(path) as store:
        session = await store.begin(scene.session)
        again = build_role_play(
            session,
            PACK,
            {name: agent.model for name, agent in scene.agents.items()},
            rules=scene.rules,
            tools={"assistant": scene.agents["assistant"].toolbox or pytest.fail()},
        )
        async for event in persist_events(play_session(again), session.id, store):
            yield event


async def test_a_resumed_session_runs_no_tool_again_whose_result_it_has(tmp_path: Path) -> None:
    path, diary = tmp_path / "run.db", Diary([])
    lines = {
        "user": [ASK, ASK, DONE],
        "assistant": [
            'Call: note {"what": "one"}\nCall: note {"what": "two"}',
            ANSWER,
            'Call: note {"what": "three"}',
            "Solution: Noted.\nNext request.",
        ],
    }
    whole = await events(stage(Scripted(lines), diary.tools()))
    diary.calls.clear()
    model = Counting(Scripted(lines))
    returned = 0

    def third(event: Event) -> bool:
        nonlocal returned
        returned += isinstance(event, Returned)
        return returned == 3

    await stored_until(path, stage(model, diary.tools()), third)
    before = len(model.requests)
    found = [event async for event in resumed(path, stage(model, diary.tools()))]
    assert sorted(diary.calls) == ["one", "three", "two"]
    assert [type(event).__name__ for event in found] == [
        "Started",
        "Called",
        "Returned",
        "Spoke",
        "Spoke",
        "Ended",
    ]
    assert len(model.requests) - before == 2
    async with open_store(path, read_only=True) as store:
        stored = await store.session(stage(model, diary.tools()).session.id)
    assert stored is not None
    spoken = [event.turn for event in whole if isinstance(event, Spoke)]
    assert [(turn.text, turn.usage) for turn in stored.turns] == [(turn.text, turn.usage) for turn in spoken]
    assert [len(turn.uses) for turn in stored.turns] == [0, 2, 0, 1, 0]
    assert stored.pending == ()


async def test_a_call_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    path, diary = tmp_path / "run.db", Diary([])
    model = Counting(Scripted({"user": [ASK, DONE], "assistant": ['Call: note {"what": "one"}', ANSWER]}))
    await stored_until(path, stage(model, diary.tools()), lambda event: isinstance(event, Called))
    assert diary.calls == []
    asked = len(model.requests)
    found = [event async for event in resumed(path, stage(model, diary.tools()))]
    assert diary.calls == ["one"]
    assert [result.text for result in results(found)] == ["noted one"]
    assert len(model.requests) - asked == 2


async def test_a_session_with_tools_can_be_said_again_from_its_record(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    lines = {"user": [ASK, DONE], "assistant": ['I see.\nCall: add {"a": 1}', ANSWER]}
    first = stage(Scripted(lines), [FunctionTool(add)])
    await stored_until(path, first, lambda event: isinstance(event, Ended))
    found = await events(stage(Recorded(str(path)), [FunctionTool(add)]))
    assert [event.turn.text for event in found if isinstance(event, Spoke)] == [ASK, ANSWER, DONE]
    assert [result.text for result in results(found)] == ["2"]
    async with open_store(path, read_only=True) as store:
        stored = await store.session(first.session.id)
    assert stored is not None
    again = [event.turn for event in found if isinstance(event, Spoke)]
    assert [turn.usage for turn in again] == [turn.usage for turn in stored.turns]


def test_other_tools_make_another_session() -> None:
    one, other = (
        new_session(setup(tools={"assistant": Toolkit((FunctionTool(f).tool,))}), PACK) for f in (add, long)
    )
    assert len({one.id, other.id, new_session(setup(), PACK).id}) == 3


def test_json_is_what_a_tool_gives_that_is_no_text() -> None:
    def look() -> Found:
        """Look."""
        return Found(2, Path("a"))

    assert json.loads(asyncio.run(FunctionTool(look).run("{}"))) == {"count": 2, "path": "a"}


async def test_a_tool_needs_no_new_thread_for_each_call_and_no_thread_is_kept_by_one_that_never_returns() -> (
    None
):
    begun, free = threading.Event(), threading.Event()

    def which(hang: bool) -> int:
        """Tell the thread."""
        if hang:
            begun.set()
            free.wait(60)
        return threading.get_ident()

    tool = FunctionTool(which)
    seen = [await tool.call('{"hang": false}')]
    for _ in range(5):
        await asyncio.sleep(0.01)
        seen.append(await tool.call('{"hang": false}'))
    assert len(set(seen)) == 1
    hanging = asyncio.ensure_future(tool.call('{"hang": true}'))
    assert await asyncio.to_thread(begun.wait, 60)
    assert await tool.call('{"hang": false}') not in seen
    free.set()
    assert await hanging in seen


async def test_a_tool_that_leaves_its_folder_leaves_it_for_one_call(tmp_path: Path) -> None:
    def go(where: str) -> str:
        """Go there."""
        before = Path.cwd()
        os.chdir(where)
        return str(before)

    tool, here = FunctionTool(go), Path.cwd()
    for _ in range(3):
        assert await tool.call(json.dumps({"where": str(tmp_path)})) == str(here)
    assert Path.cwd() == here
    with chdir(tmp_path):  # The program may go elsewhere, too.
        assert await tool.call(json.dumps({"where": str(here)})) == str(tmp_path)
