"""What is exported can be read back, and exporting it again gives the same; so can CAMEL's own files."""

from __future__ import annotations

import csv
import json
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bactrian.ingest.chats import Origin
from bactrian.ingest.importer import FORMS, Form, ImportReport, find_chats, import_chats
from bactrian.records.session import Session, find_kind
from bactrian.records.turn import Instruction
from bactrian.store import open_store
from bactrian.tables.tables import name_roles
from tests.helpers.command import bactrian
from tests.helpers.exports import convert, handed, lines, members
from tests.helpers.runs import ORIGIN, answer, make_run, session

TRANSLATOR = replace(ORIGIN, models={"translator": "openai:one"}, language="Hindi")


def translation(code: str, source: str) -> Session:
    texts = ["Instruction: चाय\nInput: None", "Solution: ठीक\nNext request."]
    return replace(
        session(f"{code}_{source}", texts=texts, code="max_messages", user="Guest"),
        provenance=TRANSLATOR,
        values={"language": code, "source": source},
    )


CODE_VALUES = {"programming_language": "Java", "domain": "Accounting", "task": "Sum up"}
CODE = replace(
    session("001_002_003", assistant="Java Programmer", user="Person working in Accounting"),
    values=CODE_VALUES,
)
FILES: dict[Form, tuple[str, list[Session]]] = {
    "camel-chat": ("out.zip", [session("001_001_001"), session("001_001_002", rounds=3, task="Tea"), CODE]),
    "camel-instructions": ("out.json", [session("001_001_001"), session("001_001_002", task="Tea"), CODE]),
    "camel-science": (
        "out.zip",
        [answer("001_001_001"), answer("001_001_002", topic="Heat", problem="Why?")],
    ),
    "camel-translated": (
        "out",
        [translation(code, f"001_001_00{n}") for code in ("hi", "ru") for n in (1, 2)],
    ),
    "messages": (
        "out.jsonl",
        [session("001_001_001"), session("001_001_002", task="Tea", code="max_messages"), CODE],
    ),
    "sharegpt": ("out.jsonl", [session("001_001_001"), session("001_001_002", task="Tea"), CODE]),
    "alpaca": (
        "out.json",
        [session("001_001_001"), session("001_001_002", task="Tea"), CODE, answer("001_001_003")],
    ),
}


async def take(
    path: Path, run: Path, form: Form | None = None, **origin: Any
) -> tuple[list[Session], ImportReport]:
    source = find_chats(path, form, Origin(**origin))
    async with open_store(run) as store:
        report = await import_chats(store, source)
        return [session async for session in store.sessions()], report


def read(path: Path) -> Any:
    """The rows of an export, without what names the run, its prompts and how it was sampled."""
    left = ("run", "prompts", "prompts_hash", "sampling", "system_prompt", "protocol", "models")
    if path.is_dir():
        # Archives have the name of the run.
        return {file.name.partition("_chat_")[2]: read(file) for file in path.iterdir()}
    if path.suffix == ".zip":
        return {name: json.loads(content) for name, content in members(path).items()}
    rows = lines(path) if path.suffix == ".jsonl" else json.loads(path.read_text("utf-8"))
    return [{key: value for key, value in row.items() if key not in left} for row in rows]


def strip_system(rows: Any) -> Any:
    """Chats without their system prompts, which an import does not keep."""
    for row in rows if isinstance(rows, list) else ():
        for key in {"messages", "conversations"} & row.keys():
            row[key] = row[key][1:]
    return rows


def test_every_format_that_can_be_read_has_a_round_trip() -> None:
    assert FILES.keys() == set(FORMS)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_an_export_comes_back_and_goes_out_again_as_it_was(
    tmp_path: Path, form: Form, told: bool
) -> None:
    name, sessions = FILES[form]
    first, again = tmp_path / "one" / name, tmp_path / "two" / name
    for folder in (first.parent, again.parent):
        folder.mkdir()
    run = await make_run(tmp_path / "tea.db", sessions)
    await handed(run, form, first)
    found, report = await take(first, tmp_path / "back.db", form if told else None)
    assert (report.stored, report.broken) == (len(sessions), 0)
    assert [session.id for session in found] == [session.id for session in sessions]
    assert list(map(find_kind, found)) == list(map(find_kind, sessions))
    assert list(map(name_roles, found)) == list(map(name_roles, sessions))
    await handed(tmp_path / "back.db", form, again)
    assert strip_system(read(again)) == strip_system(read(first))
    _, report = await take(again, tmp_path / "back.db", form if told else None)
    assert report.stored == 0


@pytest.mark.parametrize("form", ["messages", "sharegpt", "camel-instructions", "alpaca"])
async def test_a_chat_that_came_without_its_done_token_survives_camels_converter_whole(
    tmp_path: Path, form: Form
) -> None:
    run = await make_run(tmp_path / "tea.db", [session(rounds=2)])
    await handed(run, form, tmp_path / "out.jsonl")
    await take(tmp_path / "out.jsonl", tmp_path / "back.db", form)
    made = await handed(tmp_path / "back.db", "camel-chat", tmp_path / "chat.zip")
    (content,) = members(tmp_path / "chat.zip").values()
    assert [text for _, text in convert(content)] == [
        "Name part 1 of the timer.",
        "Part 1 is the dial “1”.",
        "Name part 2 of the timer.",
        "Part 2 is the dial “2”.",
    ]
    assert [count for note, count in made["notes"].items() if "done token" in note] == [1]


async def test_a_chat_with_missing_messages_survives_camels_converter_whole(tmp_path: Path) -> None:
    whole = session(rounds=3)
    gaps = replace(whole, turns=tuple(turn for turn in whole.turns if turn.number not in (3, 4)))
    run = await make_run(tmp_path / "tea.db", [gaps])
    await handed(run, "camel-chat", tmp_path / "chat.zip")
    (content,) = members(tmp_path / "chat.zip").values()
    assert [text for _, text in convert(content)] == [
        "Name part 1 of the timer.",
        "Part 1 is the dial “1”.",
        "Name part 3 of the timer.",
        "Part 3 is the dial “3”.",
    ]


async def test_the_roles_of_code_are_language_and_field_as_in_camels_files(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "code.db", [CODE])
    await handed(run, "camel-chat", tmp_path / "code.zip")
    await handed(run, "camel-instructions", tmp_path / "code.json")
    (content,) = members(tmp_path / "code.zip").values()
    for row in (json.loads(content), json.loads((tmp_path / "code.json").read_text())[0]):
        assert (row["role_1"], row["role_2"]) == ("Java_RoleType.ASSISTANT", "Accounting_RoleType.USER")
    assert json.loads(content)["message_2"]["role_name"] == "Java Programmer"


SCIENCE = [
    ("Mathematician", "math"),
    ("Physicist", "physics"),
    ("Chemist", "chemistry"),
    ("Biologist", "biology"),
]


@pytest.mark.parametrize(("role", "name"), SCIENCE)
async def test_camels_science_comes_in_with_its_topics(tmp_path: Path, role: str, name: str) -> None:
    problem = {
        "role_1": f"{role}_RoleType.ASSISTANT",
        "topic;": "Optics",
        "sub_topic": "Mirrors",
        "message_1": "What is a mirror?",
        "message_2": "A surface.",
    }
    folder = tmp_path / name
    folder.mkdir()
    (folder / "007_001_002.json").write_text(json.dumps(problem))
    (found,), _ = await take(folder, tmp_path / "run.db")
    assert (found.id, found.assistant.name, find_kind(found)) == ("007_001_002", role, "answer")
    assert found.values == {"topic": "Optics", "sub_topic": "Mirrors"}
    assert found.ending is not None
    assert found.ending.code == "answered"
    await handed(tmp_path / "run.db", "camel-science", tmp_path / "again.zip")
    (content,) = members(tmp_path / "again.zip").values()
    assert json.loads(content) == problem | {"topic": "Optics"}


@pytest.mark.parametrize("first", [0, 1])
async def test_camels_instructions_become_conversations(tmp_path: Path, first: int) -> None:
    rows = [
        {
            "id": f"001_001_00{number}",
            "role_1": "Actor_RoleType.ASSISTANT",
            "role_2": "Blogger_RoleType.USER",
            "original_task": "Write a play",
            "specified_task": "Write a play about tea.",
            "role_1_response": "Thanks." if place else "",
            "role_1_message_id": first + 4 * place,
            "instruction": f"Name hero {place}.",
            "input": "None" if place else "She drinks tea.",
            "output": f"Hero {place}.",
            "termination_reason": "<CAMEL_TASK_DONE>",
        }
        for number in (1, 2)
        for place in (0, 1)
    ]
    path = tmp_path / "instructions.json"
    path.write_text(json.dumps(rows, indent=1))
    found, report = await take(path, tmp_path / "run.db")
    assert report.stored == 2
    assert [session.id for session in found] == ["001_001_001", "001_001_002"]
    merged = found[0]
    assert [turn.number for turn in merged.turns] == [1, 2, 5, 6]
    assert merged.turns[0].said == Instruction("Name hero 0.", "She drinks tea.")
    assert merged.turns[2].said == Instruction("Name hero 1.", None, "Thanks.")
    assert merged.ending is not None
    assert merged.ending.code == "task_done"
    await handed(tmp_path / "run.db", "camel-instructions", tmp_path / "again.json")
    again = json.loads((tmp_path / "again.json").read_text())
    assert again == [row | {"role_1_message_id": 1 + 4 * (place % 2)} for place, row in enumerate(rows)]


async def test_an_alpaca_row_of_another_program_is_a_question_and_its_answer(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Translate.", "input": "Tee", "output": "Tea", "source": "dictionary"},
        {"instruction": "Say hello.", "input": "", "output": "Hello.", "source": "manners"},
    ]
    path = tmp_path / "alpaca_data.json"
    path.write_text(json.dumps(rows))
    found, _ = await take(path, tmp_path / "run.db")
    assert [str(session.turns[0].text) for session in found] == ["Translate.\n\nTee", "Say hello."]
    assert [find_kind(session) for session in found] == ["answer", "answer"]
    await handed(tmp_path / "run.db", "alpaca", tmp_path / "again.json")
    again = json.loads((tmp_path / "again.json").read_text())
    assert [{key: row[key] for key in rows[0]} for row in again] == rows


@pytest.mark.parametrize(
    "name",
    ["ai_society_chat_de.zip", "de", "german", "translated/ai_society_chat_de.zip", "translated/german"],
)
async def test_camels_translations_keep_their_language_and_ids(tmp_path: Path, name: str) -> None:
    chat = {
        "role_1": "Actor_RoleType.ASSISTANT",
        "role_2": "Blogger_RoleType.USER",
        "id": "001_002_003",
        "original_task": "Write a play",
        "specified_task": "Write a play about tea.",
        "message_1": {
            "role_type": "USER",
            "role_name": "Blogger",
            "role": "user",
            "content": "Anweisung: Los.",
        },
        "termination_reason": "max_num_messages",
        "num_messages": 1,
    }
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as pack:
            pack.writestr("001_002_003.json", json.dumps(chat))
    else:
        path.mkdir()
        (path / "001_002_003.json").write_text(json.dumps(chat))
    start = tmp_path / "translated" if "/" in name else path
    (found,), _ = await take(start, tmp_path / "run.db")
    assert found.id == "de_001_002_003"
    assert find_kind(found) == "translation"
    assert found.values == {"language": "de", "source": "001_002_003"}
    assert found.provenance.language == "German"


async def test_a_translation_whose_language_nothing_names_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "1.json").write_text(json.dumps(_chat()))
    done = bactrian("import", "chats", "--run", "run.db", "--format", "camel-translated", cwd=tmp_path)
    assert done.returncode == 2
    assert "--language" in done.stderr
    done = bactrian(
        *("import", "chats", "--run", "run.db", "--format", "camel-translated", "--language", "nl"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (found,), _ = await take(folder, tmp_path / "run.db", "camel-translated", language="nl")
    assert found.values["language"] == "nl"


def _chat(**more: Any) -> dict[str, Any]:
    return {
        "role_1": "Actor_RoleType.ASSISTANT",
        "role_2": "Blogger_RoleType.USER",
        "id": "1",
        "original_task": "Write a play",
        "specified_task": "Write a play about tea.",
        "message_1": {
            "role_type": "USER",
            "role_name": "Blogger",
            "role": "user",
            "content": "Instruction: Go.",
        },
        "message_2": {
            "role_type": "ASSISTANT",
            "role_name": "Actor",
            "role": "user",
            "content": "Solution: Gone.",
        },
        "termination_reason": "max_num_messages",
        "num_messages": 2,
    } | more


STRANGE: dict[str, Any] = {
    "Rating": 5,
    "labels": ["a", {"b": None}],
    "note": "über\ud800\0",
    "far": float("inf"),
}
KEPT: dict[str, Any] = {"Rating": 5, "labels": ["a", {"b": None}], "note": "über\ufffd\\u0000", "far": None}


@pytest.mark.parametrize("form", FORMS)
async def test_unknown_keys_are_kept_and_exported_again(tmp_path: Path, form: Form) -> None:
    row: dict[str, Any] = {
        "camel-chat": _chat(),
        "camel-translated": _chat(),
        "camel-science": {"role_1": "Chemist", "message_1": "Why?", "message_2": "So.", "topic": "x"},
        "camel-instructions": {
            **_chat(),
            "role_1_message_id": 1,
            "instruction": "Go",
            "input": "None",
            "output": "x",
        },
        "alpaca": {"instruction": "Go", "input": "", "output": "Gone"},
        "messages": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
        "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]},
    }[form]
    if form == "camel-instructions":
        row = {key: value for key, value in row.items() if not key.startswith(("message_", "num_"))}
    row |= STRANGE
    inner = row.get("message_2") or (row.get("messages") or row.get("conversations") or [{}])[-1]
    if isinstance(inner, dict):
        inner["weight"] = 0.5
    path = tmp_path / ("de.json" if form == "camel-translated" else "rows.json")
    path.write_text(json.dumps(row))
    await take(path, tmp_path / "run.db", form)
    suffix = {"messages": "jsonl", "sharegpt": "jsonl", "alpaca": "json", "camel-instructions": "json"}.get(
        form, "zip"
    )
    await handed(tmp_path / "run.db", form, tmp_path / f"out.{suffix}")
    rows = read(tmp_path / f"out.{suffix}")
    again = next(iter(rows.values() if isinstance(rows, dict) else rows))
    assert {key: again[key] for key in STRANGE} == KEPT
    said = again.get("message_2") or (again.get("messages") or again.get("conversations") or [{}])[-1]
    assert not isinstance(said, dict) or said.get("weight", 0.5) == 0.5
    if form in ("camel-chat", "camel-translated", "messages", "sharegpt"):
        assert said["weight"] == 0.5


async def test_unknown_keys_are_redacted_like_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(_chat(contact={"mail": ["anna@mailbox.org"]})))
    await take(path, tmp_path / "run.db")
    await handed(tmp_path / "run.db", "camel-chat", tmp_path / "out.zip", redact=True)
    (content,) = members(tmp_path / "out.zip").values()
    assert json.loads(content)["contact"] == {"mail": ["<EMAIL>"]}


@pytest.mark.slow
async def test_a_large_array_is_read_one_row_at_a_time(tmp_path: Path) -> None:
    rows = 1500
    path = tmp_path / "instructions.json"
    with path.open("w") as file:
        file.write("[\n")
        for number in range(rows):
            row = {"instruction": f"Do {number}. " + "x" * 10_000, "input": "", "output": "Done."}
            file.write(json.dumps(row) + (",\n" if number < rows - 1 else "\n]"))
    tracemalloc.start()
    try:
        found = sum(isinstance(chat, Session) for chat in find_chats(path, None, Origin()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == rows
    assert peak < path.stat().st_size / 2


@pytest.mark.parametrize("end", ["", ",", ', {"instruction": "Cut', "}", "garbage"])
async def test_an_array_that_is_cut_or_damaged_gives_what_came_before(tmp_path: Path, end: str) -> None:
    row = json.dumps({"instruction": "Go", "input": "", "output": "Gone"})
    path = tmp_path / "rows.json"
    path.write_text(f"\ufeff[{row}{end}")
    found, report = await take(path, tmp_path / "run.db")
    assert len(found) == 1
    assert report.broken == 1


async def test_rows_of_all_kinds_in_one_array_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Go", "input": "", "output": "Gone"},
        7,
        {"role_1": "Chemist", "message_1": "Why?", "message_2": "So."},
        {"role_1": "Chemist", "message_1": "Why?", "message_2": 4},
        _chat(),
        {"messages": [{"role": "user", "content": "Hi"}]},
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    found, report = await take(path, tmp_path / "run.db")
    assert [session.provenance.prompts.removeprefix("imported from ") for session in found] == [
        "alpaca",
        "camel-science",
        "camel-chat",
        "messages",
    ]
    assert [fault.name for fault in report.named] == ["rows.json, row 2", "rows.json, row 4"]


@pytest.mark.parametrize("form", ["messages", "sharegpt"])
async def test_the_system_prompt_of_another_program_s_chat_is_exported_again(
    tmp_path: Path, form: Form
) -> None:
    said = [("system", "You are a teapot."), ("user", "Pour."), ("assistant", "I pour.")]
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    row: dict[str, Any] = {"messages": [{"role": role, "content": text} for role, text in said]}
    if form == "sharegpt":
        row = {"conversations": [{"from": names[role], "value": text} for role, text in said]}
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    await take(tmp_path / "in.jsonl", tmp_path / "run.db")
    await handed(tmp_path / "run.db", form, tmp_path / "out.jsonl")
    (made,) = lines(tmp_path / "out.jsonl")
    assert made["messages" if form == "messages" else "conversations"] == next(iter(row.values()))
    assert made.get("system_prompt", "as said") == "as said"
    await handed(tmp_path / "run.db", "messages", tmp_path / "user.jsonl", side="user")
    assert "teapot" not in (tmp_path / "user.jsonl").read_text()


async def test_the_system_prompt_of_our_own_chat_survives_an_import(tmp_path: Path) -> None:
    await make_run(tmp_path / "first.db", [session("001")])
    for side in ("assistant", "user"):
        out, again = tmp_path / f"{side}.jsonl", tmp_path / f"{side}-again.jsonl"
        await handed(tmp_path / "first.db", "messages", out, side=side)
        await take(out, tmp_path / f"{side}.db")
        await handed(tmp_path / f"{side}.db", "messages", again, side=side)
        assert lines(again)[0]["messages"][0] == lines(out)[0]["messages"][0]


@pytest.mark.parametrize("form", ["camel-instructions", "alpaca"])
async def test_the_rows_of_a_conversation_may_be_anywhere_in_the_file(tmp_path: Path, form: Form) -> None:
    sessions = [session(f"001_001_00{n}", task=f"Tea {n}", rounds=3) for n in range(1, 5)]
    await make_run(tmp_path / "first.db", sessions)
    await handed(tmp_path / "first.db", form, tmp_path / "out.json")
    rows = read(tmp_path / "out.json")
    shuffled = json.loads((tmp_path / "out.json").read_text())
    Random(3).shuffle(shuffled)
    (tmp_path / "shuffled.json").write_text(json.dumps(shuffled))
    stored, report = await take(tmp_path / "shuffled.json", tmp_path / "second.db", form)
    assert (len(stored), report.broken) == (4, 0)
    await handed(tmp_path / "second.db", form, tmp_path / "again.json")
    order = ("session", "id")
    place = lambda row: [row.get(key, "") for key in order] + [row.get("turn", row.get("role_1_message_id"))]  # noqa: E731
    assert sorted(read(tmp_path / "again.json"), key=place) == sorted(rows, key=place)


async def test_two_conversations_of_one_id_in_a_file_of_instructions_stay_two(tmp_path: Path) -> None:
    rows: list[Any] = []
    for task in ("Tea", "Cake"):
        await make_run(tmp_path / f"{task}.db", [session("001_001_001", task=task, rounds=2)])
        await handed(tmp_path / f"{task}.db", "camel-instructions", tmp_path / f"{task}.json")
        rows += json.loads((tmp_path / f"{task}.json").read_text())
    (tmp_path / "both.json").write_text(json.dumps(rows[::2] + rows[1::2]))
    stored, _ = await take(tmp_path / "both.json", tmp_path / "run.db")
    assert sorted(session.task.original for session in stored) == ["Cake", "Tea"]


@pytest.mark.parametrize("form", ["csv", "parquet", "hf"])
async def test_tables_have_the_unknown_keys_of_an_import(tmp_path: Path, form: str) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "Pour.", "weight": 2},
            {"role": "assistant", "content": "I pour."},
        ],
        "source": "a book",
    }
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    await take(tmp_path / "in.jsonl", tmp_path / "run.db")
    out = tmp_path / ("out.csv" if form == "csv" else "out")
    await handed(tmp_path / "run.db", form, out)
    polars = pytest.importorskip("polars")
    if form == "csv":
        with out.open(newline="") as file:
            first, second = csv.DictReader(file)
        extras = (first["extra"], first["message_extra"], second["message_extra"])
    elif form == "hf":
        (found,) = polars.read_parquet(next((out / "data").glob("*.parquet"))).to_dicts()
        extras = (
            found["extra"],
            json.dumps(json.loads(found["message_extra"])["1"], separators=(",", ":")),
            "",
        )
    else:
        messages = polars.read_parquet(out / "messages.parquet")["extra"].to_list()
        extras = (polars.read_parquet(out / "sessions.parquet")["extra"][0], *messages)
    assert extras == ('{"source":"a book"}', '{"weight":2}', "")
