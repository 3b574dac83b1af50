"""Events become JSON and are read back, and the page about them names every key."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.errors import ModelError
from bactrian.records.event_json import read_event, write_event
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import (
    CriticSettings,
    Decision,
    Instruction,
    Invocation,
    Proposal,
    Sampling,
    Solution,
    Tool,
    ToolCall,
    Toolkit,
    ToolResult,
    Turn,
    Usage,
)

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text("utf-8")

words = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
texts = words.map(Text)
numbers = st.integers(0, 2**40)
seconds = st.integers(0, 10**8).map(lambda number: number / 10_000)
maybe = st.none() | words
usages = st.builds(Usage, numbers, numbers, numbers, st.booleans())
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(words, plain, max_size=3).map(
    lambda values: json.dumps(values, ensure_ascii=False, separators=(",", ":"))
)
finishes = st.sampled_from(["stop", "length", "content_filter", "tool_calls", "other"])
roles = st.builds(Role, words, words)
samplings = st.builds(
    Sampling,
    st.none() | st.floats(0, 2),
    st.none() | st.floats(0, 1),
    st.none() | numbers,
    st.none() | numbers,
    st.lists(words, max_size=2).map(tuple),
)
toolkits = st.builds(
    Toolkit, st.lists(st.builds(Tool, words, words, st.dictionaries(words, plain)), max_size=2).map(tuple)
)
origins = st.builds(
    Provenance,
    words,
    words,
    st.sampled_from(["free", "enforced"]),
    models=st.dictionaries(words, words, max_size=3),
    sampling=st.dictionaries(words, samplings, max_size=2),
    language=maybe,
    preamble=words,
    needs_code=st.booleans(),
    critic=st.none()
    | st.builds(CriticSettings, words, numbers, numbers, words, width=numbers, depth=numbers),
    cast=st.just(dict[str, Role]()) | st.dictionaries(words, roles, min_size=2, max_size=3),
    tools=st.dictionaries(words, toolkits, max_size=2),
)


def take_seats(session: Session) -> Session:
    """The session with the roles that a group chat has for the store: those of its first two speakers."""
    if not session.provenance.cast:
        return session
    user, assistant, *_ = session.provenance.cast.values()
    return replace(session, user=user, assistant=assistant)


sessions = st.builds(
    Session,
    words,
    roles,
    roles,
    st.builds(Task, words, maybe, maybe),
    origins,
    preparation=usages,
    values=st.dictionaries(words, words, max_size=2),
    mark=st.none() | st.just("red-team"),
).map(take_seats)
turns = st.builds(
    Turn,
    number=numbers,
    speaker=words,
    role=words,
    text=texts,
    said=st.none()
    | st.builds(Instruction, words, maybe, words)
    | st.builds(Solution, words, st.booleans(), words),
    usage=usages,
    seconds=seconds,
    first_token=st.none() | seconds,
    model=words,
    finish=finishes,
    lossy=st.booleans(),
    fingerprint=st.none() | words.filter(bool),
    thought=words,
)
proposals = st.builds(
    Proposal,
    *(numbers, numbers, numbers, words, texts, usages, seconds, words, finishes, st.booleans()),
    st.none() | numbers,
    st.none() | words.filter(bool),
    words,
)
decisions = st.builds(
    Decision,
    *(numbers, numbers, numbers, words, words, texts, st.none() | numbers, words, words),
    st.none() | texts,
    *(words, usages, seconds, words, st.lists(numbers, max_size=3).map(tuple)),
)
calls = st.builds(
    ToolCall,
    *(numbers, numbers, numbers, words, st.builds(Invocation, words, words, arguments)),
    *(texts, usages, seconds, words),
)
problems = st.sampled_from([None, "unknown", "arguments", "timeout", "failed"])
results = st.builds(
    ToolResult, numbers, numbers, numbers, words, words, texts, problems, seconds, st.booleans()
)
endings = st.builds(Ending, st.sampled_from(["task_done", "failed"]), numbers, words, words)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Started, sessions),
    st.builds(Spoke, turns),
    st.builds(Proposed, proposals),
    st.builds(Chose, decisions),
    st.builds(Called, calls),
    st.builds(Returned, results),
    st.builds(Ended, endings),
)


@settings(max_examples=15)
@given(events)
def test_an_event_is_read_back_as_it_was(event: Event) -> None:
    line = json.loads(json.dumps(write_event(event)))
    assert read_event(line) == event
    assert write_event(read_event(line)) == line


def test_the_error_behind_an_ending_is_read_back_as_its_text() -> None:
    ending = Ending("failed", 3, "user", "down")
    line = write_event(Ended(ending, ModelError("The endpoint is down.", where="here", next="Wait.")))
    read = read_event(line)
    assert isinstance(read, Ended)
    assert read.ending == ending
    assert str(read.error) == line["error"]


@pytest.mark.parametrize("arguments", ['"text"', '"5"', "not JSON", '{"a": [1, 2.5]}', "", "5"])
def test_what_a_model_gave_as_arguments_is_the_same_json_after_reading(arguments: str) -> None:
    call = ToolCall(1, 1, 1, "user", Invocation("id", "price", arguments), Text(""), Usage(), 0.5, "m")
    line = write_event(Called(call))
    assert write_event(read_event(line)) == line


@pytest.mark.parametrize(
    "line", [{}, {"event": "sang"}, {"event": "spoke"}, {"event": "ended", "code": "task_done"}]
)
def test_what_is_not_an_event_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="event|no event"):
        read_event(line)


TURN = Turn(
    *(1, "user", "Cook", Text("Instruction: Go."), Instruction("Go."), Usage(1, 2), 0.5, 0.1, "m", "stop"),
    fingerprint="fp",
    thought="So.",
)
FULL: tuple[Event, ...] = (
    Started(
        Session(
            "one",
            Role("A"),
            Role("B"),
            Task("idea"),
            Provenance(
                *("pack", "hash", "free"),
                preamble="x",
                needs_code=True,
                critic=CriticSettings("C"),
                cast={"a": Role("A", "who")},
                tools={"a": Toolkit(())},
            ),
            values={"axis": "item"},
            mark="red-team",
        )
    ),
    Spoke(TURN),
    Proposed(
        Proposal(1, 1, 1, "user", Text("a"), Usage(), 0.1, "m", "stop", fingerprint="fp", thought="So.")
    ),
    Chose(Decision(1, 1, 1, "user", "C", Text("1"), 1, thought="So.")),
    Called(
        ToolCall(1, 1, 1, "user", Invocation("id", "price", "{}"), Text(""), Usage(), 0.5, "m", thought="So.")
    ),
    Returned(ToolResult(1, 1, 1, "user", "price", Text("4"), None, 0.1)),
    Ended(Ending("failed", 1, "user", "x"), ModelError("x")),
)
"""Every event with every key."""


def test_the_page_names_every_event_and_key_and_no_other() -> None:
    assert {type(event) for event in FULL} == set(get_args(Event))
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    documented = {
        match[1]: set(re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE))
        for section in sections
        if (match := re.match(r"`(\w+)`", section))
    }
    written = {line["event"]: line.keys() - {"event"} for line in map(write_event, FULL)}
    assert documented == written


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out == "task_done\n"


def test_a_call_is_written_in_the_order_that_its_readers_know() -> None:
    call = ToolCall(1, 1, 1, "user", Invocation("c1", "look", "{}"), Text(""), Usage(), 0.5, "any")
    order = "event turn round place speaker name arguments text usage seconds model call"
    assert list(write_event(Called(call))) == order.split()
