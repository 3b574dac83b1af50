"""Data of a training: read from runs and JSON lines, and divided without a leak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.export.session_filters import locate_group
from bactrian.train.training_data import (
    Conversation,
    ReadCounts,
    divide,
    make_forbidden,
    prepare_data,
    read_forbidden,
    read_json_lines,
    read_prepared,
    read_source,
)
from bactrian.train.training_folder import list_stage_folders
from bactrian.train.training_recipe import DataSource, add_data, load_train_recipe
from tests.helpers.runs import make_run, session

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen"


def chat(*texts: str, system: str = "") -> list[dict[str, str]]:
    told = [{"role": "system", "content": system}] if system else []
    return [
        *told,
        *(
            {"role": "assistant" if number % 2 else "user", "content": text}
            for number, text in enumerate(texts)
        ),
    ]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


async def read_all(source: DataSource, counts: ReadCounts | None = None) -> list[Conversation]:
    return [conversation async for conversation in read_source(source, counts or ReadCounts())]


async def test_a_run_gives_the_conversations_of_the_side_that_is_learned(tmp_path: Path) -> None:
    run = await make_run(
        tmp_path / "tea.db", [session("001_001_001"), session("001_001_002", code="token_limit")]
    )
    (first, _) = await read_all(DataSource(path=str(run)))
    assert (first.id, first.group) == ("tea:001_001_001", "programmer\0cook")
    assert [message["role"] for message in first.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    (user, _) = await read_all(DataSource(path=str(run), side="user"))
    assert user.messages[2]["content"].startswith("Instruction:")
    counts = ReadCounts()
    (done,) = await read_all(DataSource(path=str(run), only=("task_done",)), counts)
    assert done.id == first.id
    assert counts.left_out == {"ending token_limit": 1}


async def test_of_a_run_only_the_sessions_that_were_asked_for_are_learned(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session("001_001_001"), session("001_001_002")])
    counts = ReadCounts()
    (second,) = await read_all(DataSource(path=str(run), sessions=("001_001_002",)), counts)
    assert second.id == "tea:001_001_002"
    assert (counts.used, counts.left_out) == (1, {"not asked for": 1})
    lines = write_lines(tmp_path / "a.jsonl", [{"messages": chat("Hi", "Ho")}])
    with pytest.raises(InputError, match="know no endings, behaviours and sessions"):
        await read_all(DataSource(path=str(lines), sessions=("001_001_002",)))


async def test_an_unknown_filter_is_refused(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    with pytest.raises(InputError, match="Did you mean 'task_done'"):
        await read_all(DataSource(path=str(run), only=("task_don",)))
    with pytest.raises(InputError, match="know no endings"):
        await read_all(DataSource(path=str(write_lines(tmp_path / "a.jsonl", [])), only=("task_done",)))


async def test_the_side_of_json_lines_cannot_be_chosen(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"messages": chat("Hi", "Ho")}])
    with pytest.raises(InputError, match="no other side"):
        await read_all(DataSource(path=str(path), side="user"))


def test_json_lines_are_conversations_with_the_roles_of_an_export_as_their_group(tmp_path: Path) -> None:
    rows = [
        {
            "messages": chat("Hi", "Ho"),
            "assistant_role": "Programmer",
            "user_role": "Cook",
            "session": "1",
            "run": "t",
        },
        {"messages": chat("Hi", "Ho"), "group": "G"},
    ]
    first, second = read_json_lines(write_lines(tmp_path / "a.jsonl", rows))
    assert (first.id, first.group) == ("t:1", "programmer\0cook")
    assert (len(second.id), second.group) == (16, "g")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"messages": [{"role": "robot", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": "x"}]}',
        '{"messages": [{"role": "assistant", "content": "x"}, {"role": "assistant", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": 1}]}',
    ],
)
def test_a_line_that_is_not_a_conversation_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"messages": chat("Hi", "Ho")}) + f"\n\n{line}\n", "utf-8")
    with pytest.raises(InputError) as caught:
        list(read_json_lines(path))
    assert str(caught.value.where).endswith("line 3")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a file"),
        (b"SQLite format 3\0" + bytes(500), "database"),
        (b"\x1f\x8b\x08", "neither a run nor JSON lines"),
        ("é".encode("latin-1"), "neither a run nor JSON lines"),
        (b"[" * 100_000, "not a conversation"),
        (b"", "has no conversation"),
    ],
    ids=["a folder", "a damaged run", "compressed", "Latin-1", "nested deeply", "empty"],
)
async def test_data_that_cannot_be_read_is_told_in_a_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    recipe = add_data(load_train_recipe("small"), {"": [path]})
    with pytest.raises(BactrianError, match=message) as caught:
        await prepare_data(recipe, list_stage_folders(tmp_path / "out", ["conversations"])[1:])
    assert str(path) in str(caught.value.where)


def test_a_line_of_another_program_is_read_with_its_mark_and_its_half_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps({"messages": chat("Hi", "\ud800!"), "id": "\ud800"}).encode()
    )
    (conversation,) = read_json_lines(path)
    assert (conversation.id, conversation.messages[-1]["content"]) == ("\ufffd", "\ufffd!")


def conversation(name: str, group: str, *texts: str) -> Conversation:
    return Conversation(name, group, chat(*texts))


def test_a_group_is_held_out_in_all_stages_or_in_none() -> None:
    stages = [
        [conversation(f"{stage}-{group}", f"group {group}", f"{stage} {group}", "yes") for group in range(60)]
        for stage in ("a", "b")
    ]
    first, second = divide(stages, 0.3)
    held = {conversation.group for conversation in first.held_out}
    assert 5 < len(held) < 40
    assert held == {conversation.group for conversation in second.held_out}
    assert not held & {conversation.group for conversation in (*first.train, *second.train)}
    assert len(first.train) + len(first.held_out) == 60


HELD_OUT = next(name for name in map(str, range(99)) if locate_group(name) < 0.5)
TRAINED = next(name for name in map(str, range(99)) if locate_group(name) > 0.5)


@pytest.mark.parametrize(
    "leaking",
    [
        ("same", "Hi", "Something else."),
        ("other", "Hi there", f"As I said: {LONG}."),
        ("another", "A question", "An answer"),
    ],
    ids=["the same id", "thirteen words", "the same messages"],
)
def test_a_held_out_conversation_that_quotes_training_data_is_in_no_part(leaking: tuple[str, ...]) -> None:
    train = [
        conversation("same", TRAINED, "Ho", LONG.upper()),
        conversation("x", TRAINED, "A question", "An answer"),
    ]
    held = [conversation(leaking[0], HELD_OUT, *leaking[1:]), conversation("kept", HELD_OUT, "New", "Words")]
    first, second = divide([train, held], 0.5)
    assert [conversation.id for conversation in first.train] == ["same", "x"]
    assert [conversation.id for conversation in (*second.train, *second.held_out)] == ["kept"]
    assert second.leaks == 1


def test_a_question_of_an_evaluation_is_found_whole_or_by_thirteen_words() -> None:
    texts = make_forbidden(["What is the colour of Zorb?", LONG])
    assert texts.occurs_in(chat("what is the COLOUR of Zorb", "Red."))
    assert texts.occurs_in(chat("Hi", f"Count: {LONG}, fourteen."))
    assert not texts.occurs_in(chat("What is the colour of Zorb today?", "Red."))


def test_a_file_of_questions_is_json_lines_or_plain_text(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "q.jsonl", [{"question_id": 1, "text": "Who is Quex?", "category": "code"}])
    (tmp_path / "q.txt").write_text("Where is Plim?\n", "utf-8")
    texts = read_forbidden([rows, tmp_path / "q.txt"])
    assert texts.whole == {"who is quex", "where is plim"}


async def test_the_data_of_a_stage_is_written_once_each_without_forbidden_texts(tmp_path: Path) -> None:
    rows = [{"id": name, "messages": chat(name, "Fine.")} for name in ("a", "b", "b", "What is it?")]
    data = write_lines(tmp_path / "a.jsonl", rows)
    (tmp_path / "q.txt").write_text("what is it\n", "utf-8")
    recipe = add_data(load_train_recipe("small"), {"": [data]})
    recipe = recipe.model_copy(update={"held_out_files": (str(tmp_path / "q.txt"),)})
    folders = list_stage_folders(tmp_path / "out", ["conversations"])[1:]
    (described,) = await prepare_data(recipe, folders)
    assert [conversation.id for conversation in read_prepared(folders[0].data / "train.jsonl")] == ["a", "b"]
    assert described["sources"][0]["left_out"] == {"the same id": 1, "says a held-out text": 1}
    assert described["train"]["conversations"] == 2


async def test_a_stage_without_conversations_is_refused_with_the_reasons(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session(code="token_limit")])
    recipe = load_train_recipe("small")
    folders = list_stage_folders(tmp_path / "out", ["conversations"])[1:]
    with pytest.raises(InputError, match="has no data"):
        await prepare_data(recipe, folders)
    source = DataSource(path=str(run), only=("task_done",))
    stage = recipe.stages[0].model_copy(update={"data": (source,)})
    with pytest.raises(InputError, match="1 ending token_limit"):
        await prepare_data(recipe.model_copy(update={"stages": (stage,)}), folders)
