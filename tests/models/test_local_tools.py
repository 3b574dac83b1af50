"""Calls by the real built-in model, held to them by its grammar."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import pytest_asyncio
from pydantic import BaseModel

from bactrian.models.local.local_model import LocalModel
from bactrian.models.model import Request
from bactrian.models.text_tools import extend_grammar, read_calls
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from bactrian.roleplay.response_formats import build_assistant_format
from bactrian.roleplay.tools import FunctionTool

pytestmark = [pytest.mark.system, pytest.mark.asyncio(loop_scope="module")]


class Size(BaseModel):
    width: float


def draw(
    shape: Literal['a "ring"', "bøx"], names: list[str], size: Size, deep: bool = True, n: int | None = None
) -> str:
    """Draw a shape."""
    return f"{shape} {names} {size} {deep} {n}"


def now(zone: str = "UTC", fast: bool = False) -> str:
    """Tell the time."""
    return f"{zone} {fast}"


def ping() -> str:
    """Say pong."""
    return "pong"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def model() -> AsyncGenerator[LocalModel]:
    local = LocalModel(window=2048)
    yield local
    await local.close()


# One call with all kinds of arguments, and replies of several calls.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "seed", "stop"),
    [
        (draw, 11, ("\n",)),
        pytest.param(now, 1, (), marks=pytest.mark.soak),
        pytest.param(ping, 1, (), marks=pytest.mark.soak),
    ],
)
async def test_what_the_grammar_allows_is_read_and_fits_the_function(
    model: LocalModel, function: Callable[..., Any], seed: int, stop: tuple[str, ...]
) -> None:
    tool = FunctionTool(function)
    form = extend_grammar(build_assistant_format(small=True), [tool.tool])
    calls_only = form.grammar.replace("root ::= said | tool-call", "root ::= tool-call")
    request = Request(
        (Message("system", Text("You draw.")), Message("user", Text("Draw a ring for Ann and Bob, now."))),
        Sampling(0.3, max_tokens=700, seed=seed, stop=stop),
        response_format=replace(form, grammar=calls_only),
    )
    reply = await model.reply(request)
    before, calls = read_calls(reply.text, {tool.tool.name})
    assert before == ""
    assert len(calls) == (1 if stop else 4)
    for call in calls:
        assert call.name == tool.tool.name
        assert await tool.run(call.arguments)


@pytest.mark.slow
async def test_a_model_with_tools_answers_in_its_form_or_calls(model: LocalModel) -> None:
    tool = FunctionTool(ping)
    request = Request(
        (Message("system", Text("You help.")), Message("user", Text("Instruction: Name a tea."))),
        Sampling(0.3, max_tokens=24, seed=3),
        response_format=build_assistant_format(small=True),
        tools=(tool.tool,),
    )
    free = await model.reply(request)
    bound = await model.reply(replace(request, allow_tool_calls=False))
    assert free.choices[0].calls or free.text.startswith("Solution: ")
    assert not bound.choices[0].calls
    assert bound.text.startswith("Solution: ")
