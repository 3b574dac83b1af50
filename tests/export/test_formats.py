"""Each format is what its readers take it for."""

from __future__ import annotations

import csv
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.amounts import write_percent
from bactrian.errors import InputError
from bactrian.export.manifest import TOOLS
from bactrian.export.session_filters import Filters, read_split
from bactrian.records.run import Finding
from bactrian.records.session import HUMAN, Session
from bactrian.records.turn import Preference
from bactrian.stats.intervals import Proportion
from bactrian.train.training_data import read_json_lines
from tests.helpers.exports import exported, lines, members
from tests.helpers.runs import ORIGIN, answer, session

MEMBERS = ("role_1", "topic", "topic;", "sub_topic", "message_1", "message_2")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real ``datasets.load_dataset``, without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()

    def opened(*what: str, **more: Any) -> Any:
        return datasets.load_dataset(*what, cache_dir=str(tmp_path / "cache"), **more)

    return opened


def three() -> list[Session]:
    """Sessions whose optional parts come late, so that a reader that guesses from the first row guesses wrong."""
    return [
        session("001_001_001", rounds=2),
        session("001_002_001", user="Guest", rounds=1, code="max_messages"),
        replace(session("002_001_001", user="Nurse"), mark="red-team", values={"topic": "tea"}),
    ]


async def test_messages_load_in_datasets(tmp_path: Path, load: Any) -> None:
    out, _ = await exported(tmp_path, three(), "messages", "tea.jsonl")
    rows = load("json", data_files=str(out), split="train")
    assert rows.column_names[0] == "messages"
    assert [row["mark"] for row in rows] == ["", "", "red-team"]
    assert rows[0]["messages"][1] == {"role": "user", "content": str(three()[0].turns[0].text)}


async def test_sharegpt_loads_in_datasets(tmp_path: Path, load: Any) -> None:
    out, _ = await exported(tmp_path, three(), "sharegpt", "tea.jsonl")
    rows = load("json", data_files=str(out), split="train")
    assert [said["from"] for said in rows[0]["conversations"]] == ["system", "human", "gpt", "human", "gpt"]
    assert set(rows[0]["conversations"][0]) == {"from", "value"}


async def test_a_file_that_is_called_json_is_json(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, three(), "messages", "tea.json")
    rows = json.loads(out.read_text("utf-8"))
    assert [talk.messages for talk in read_json_lines(out)] == [
        [{"role": said["role"], "content": said["content"]} for said in row["messages"]] for row in rows
    ]


async def test_alpaca_has_a_row_for_each_round_and_no_input_is_empty(tmp_path: Path, load: Any) -> None:
    texts = [
        "Instruction: Add them.\nInput: 1 and 2",
        "Solution: 3\nNext request.",
        "Instruction: And now?\nInput: None",
        "I have no marker.",
        "Instruction: Stop.",
        "Well. Solution: Stopped.",
    ]
    out, made = await exported(
        tmp_path, [session(texts=texts, code="max_messages"), answer("002")], "alpaca", "tea.json"
    )
    rows = load("json", data_files=str(out), split="train")
    found = [(row["instruction"], row["input"], row["output"], row["turn"]) for row in rows]
    assert found == [
        ("Add them.", "1 and 2", "3", 1),
        ("Stop.", "", "Stopped.", 5),
        ("Why is the sky blue?", "", "Because of scattering.", 1),
    ]
    assert made["counts"]["rows"] == {"train": 3}


async def test_a_folder_for_the_hub_loads_with_its_parts_and_its_card(tmp_path: Path, load: Any) -> None:
    sessions = [session(f"{n}", user=f"U{n}", code="task_done" if n % 4 else "failed") for n in range(40)]
    out, made = await exported(
        tmp_path, sessions, "hf", "tea", split=read_split(["validation=0.5"]), license="cc-by-4.0"
    )
    parts = load(str(out))
    assert {name: len(rows) for name, rows in parts.items()} == made["counts"]["rows"]
    assert sum(map(len, parts.values())) == 40
    assert parts["train"][0]["messages"][0]["role"] == "system"
    card = (out / "README.md").read_text("utf-8")
    assert 'license: "cc-by-4.0"' in card
    ends = Proportion(10, 40).interval
    assert ends is not None
    low, high = map(write_percent, ends)
    assert f"| `failed` | 10 | 25.0 % | {low} – {high} |" in card
    assert f"| pairs | {40} |" in card
    assert ORIGIN.prompts_hash in card
    assert "openai:two" in card
    assert json.loads((out / "manifest.json").read_bytes()) == made
    assert "README.md" in {Path(file["path"]).name for file in made["files"]}


async def test_a_card_counts_sessions_that_still_play_apart_from_the_endings(tmp_path: Path) -> None:
    some = [session("1"), session("2", code=None)]
    out, _ = await exported(tmp_path, some, "hf", "tea", filters=Filters(unfinished=True))
    card = (out / "README.md").read_text("utf-8")
    assert "| `task_done` | 1 | 100 % | – |\n\nSessions that have not ended: 1." in card


async def test_a_card_says_what_people_did(tmp_path: Path) -> None:
    made = session(rounds=1, code="max_messages")
    first, *others = made.turns
    some = [replace(made, turns=(replace(first, model=HUMAN), *others)), session("2")]
    out, written = await exported(tmp_path, some, "hf", "tea", license="cc0-1.0")
    card = (out / "README.md").read_text("utf-8")
    assert "People took part in 1 of 2 conversations: they wrote 1 of 7 messages" in card
    assert "No humans" not in card
    assert "- Model of the assistant: `openai:two`\n" in card
    assert (written["counts"]["messages_by_people"], written["counts"]["sessions_with_people"]) == (1, 1)
    (tmp_path / "alone").mkdir()
    out, _ = await exported(tmp_path / "alone", [session("2")], "hf", "tea", license="cc0-1.0")
    assert "No humans took part" in (out / "README.md").read_text("utf-8")


async def test_a_card_of_marked_sessions_warns(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [replace(session(), mark="red-team")], "hf", "tea")
    card = (out / "README.md").read_text("utf-8")
    assert "> **red-team**" in card
    assert '"red-team"]' in card


async def test_tables_hold_every_session_message_and_finding(tmp_path: Path, load: Any) -> None:
    def findings(exported_session: Session) -> list[Finding]:
        return (
            [Finding(exported_session.id, 2, "flake_reply", 0.9, "I will")]
            if exported_session.user.name == "Guest"
            else []
        )

    out, _ = await exported(tmp_path, three(), "parquet", "tea", findings=findings)
    tables = {
        name: load("parquet", data_files=str(out / f"{name}.parquet"), split="train")
        for name in ("sessions", "messages", "findings")
    }
    assert tables["sessions"]["session"][:] == [session.id for session in three()]
    assert tables["sessions"]["values"][:] == ["{}", "{}", '{"topic":"tea"}']
    assert len(tables["messages"]) == sum(len(session.turns) for session in three())
    first = tables["messages"][0]
    assert (first["turn"], first["speaker"], first["instruction"]) == (1, "user", "Name part 1 of the timer.")
    assert (first["input"], first["solution"], first["prompt_tokens"]) == (None, None, 10)
    assert tables["findings"][0]["behaviour"] == "flake_reply"


async def test_without_a_finder_there_is_no_table_of_findings(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, three(), "parquet", "tea")
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "messages.parquet",
        "sessions.parquet",
    ]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\uff1d"])
async def test_no_cell_of_a_spreadsheet_is_a_formula(tmp_path: Path, start: str) -> None:
    bad = f"{start}HYPERLINK(1)"
    hostile = session(texts=[bad, "Solution: 1 = 1"], code="max_messages", task=bad, user=bad)
    out, _ = await exported(tmp_path, [hostile], "csv", "tea.csv")
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [f"'{bad}", "Solution: 1 = 1"]
    assert rows[0]["original_task"] == f"'{bad}"
    assert not [value for row in rows for value in row.values() if value.startswith(start)]


async def test_camels_instructions_have_camels_keys_and_the_number_of_the_message(tmp_path: Path) -> None:
    texts = ["Good. Instruction: Go.\nInput: None", "Solution: Gone.\nNext request."] * 2
    out, _ = await exported(
        tmp_path, [session(texts=texts, code="max_messages")], "camel-instructions", "t.json"
    )
    first, second = json.loads(out.read_bytes())
    assert list(first.items()) == [
        ("id", "001_001_001"),
        ("role_1", "Programmer_RoleType.ASSISTANT"),
        ("role_2", "Cook_RoleType.USER"),
        ("original_task", "Build a tea timer"),
        ("specified_task", "Build a tea timer for green tea."),
        ("role_1_response", "Good."),
        ("role_1_message_id", 1),
        ("instruction", "Go."),
        ("input", "None"),
        ("output", "Gone."),
        ("termination_reason", "max_num_messages"),
    ]
    assert second["role_1_message_id"] == 3


async def test_camels_problems_have_their_topic_twice(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [answer("001_002_003")], "camel-science", "physics.zip")
    with zipfile.ZipFile(out) as pack:
        assert pack.namelist() == ["001_002_003.json"]
        problem = json.loads(pack.read("001_002_003.json"))
    assert tuple(problem) == MEMBERS
    assert problem["role_1"] == "Physicist_RoleType.ASSISTANT"
    assert problem["topic"] == problem["topic;"] == "Optics"
    assert problem["message_1"] == "Why is the sky blue?"
    assert problem["message_2"] == "Because of scattering."


@pytest.mark.parametrize("name", ["translated", "translated.zip"])
async def test_translations_lie_by_language_under_their_originals_names(tmp_path: Path, name: str) -> None:
    origin = replace(ORIGIN, models={"translator": "openai:one"}, language="Hindi")
    sessions = [
        replace(
            session(
                f"{code}_001", texts=["Instruction: चाय\nInput: None", "Solution: ठीक"], code="max_messages"
            ),
            provenance=origin,
            values={"language": code, "source": "001_001_001"},
        )
        for code in ("hi", "ru")
    ]
    out, made = await exported(tmp_path, sessions, "camel-translated", name)
    if name.endswith(".zip"):
        files = members(out)
        assert sorted(files) == ["hi/001_001_001.json", "ru/001_001_001.json"]
        content = files["hi/001_001_001.json"]
    else:
        assert sorted(path.name for path in out.iterdir()) == ["tea_chat_hi.zip", "tea_chat_ru.zip"]
        ((file, content),) = members(out / "tea_chat_hi.zip").items()
        assert file == "001_001_001.json"
    text = content.decode()
    assert "चाय" in text
    assert json.loads(text)["id"] == "001_001_001"
    assert made["notes"] == {}


async def test_a_choice_becomes_a_pair_with_each_other_candidate(tmp_path: Path, load: Any) -> None:
    original = session(rounds=2)
    choices = [
        Preference(
            2, "assistant", ("Solution: A dial.", "Solution: A bell.", "No."), 1, "critic", "It rings."
        ),
        Preference(3, "user", ("Instruction: Go.", "Instruction: Go."), 0, "human"),
        Preference(4, "user", ("one", "two"), 0, "critic"),
        Preference(9, "user", ("one", "two"), 0, "critic"),
    ]
    out, made = await exported(tmp_path, [original], "preference", "tea.jsonl", choices=lambda _: choices)
    rows = load("json", data_files=str(out), split="train")
    assert len(rows) == made["counts"]["rows"]["train"] == 2
    first = rows[0]
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert first["prompt"][1]["content"] == original.turns[0].text
    assert first["chosen"] == [{"role": "assistant", "content": "Solution: A bell."}]
    assert [row["rejected"][0]["content"] for row in rows] == ["Solution: A dial.", "No."]


async def test_a_choice_of_the_users_is_seen_from_the_users_side(tmp_path: Path) -> None:
    choice = Preference(3, "user", ("Instruction: Stop.", "Instruction: Go."), 0, "critic")
    out, _ = await exported(tmp_path, [session()], "preference", "tea.jsonl", choices=lambda _: [choice])
    (row,) = lines(out)
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "user"]


async def test_llama_factory_gets_an_entry_and_keeps_its_others(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text('{"theirs": {"file_name": "x.json"}}')
    for form, messages in (("messages", "messages"), ("sharegpt", "conversations")):
        await exported(tmp_path, three(), form, f"{form}.jsonl", tool="llama-factory")
        known = json.loads((tmp_path / "dataset_info.json").read_bytes())
        assert known["theirs"] == {"file_name": "x.json"}
        assert known[form]["file_name"] == f"{form}.jsonl"
        assert known[form]["columns"] == {"messages": messages}
    assert set(known) == {"theirs", "messages", "sharegpt"}


@pytest.mark.parametrize("tool", ["trl", "axolotl"])
async def test_a_configuration_names_the_data_and_its_parts(tmp_path: Path, tool: Any) -> None:
    yaml = pytest.importorskip("yaml")
    split = read_split(["validation=0.5"])
    sessions = [session(f"{n}", user=f"U{n}") for n in range(9)]
    out, _ = await exported(tmp_path, sessions, "messages", "tea", tool=tool, split=split)
    known = yaml.safe_load((out / f"tea.{tool}.yaml").read_text("utf-8"))
    (entry,) = known["datasets"]
    if tool == "trl":
        assert entry == {
            "path": "json",
            "data_files": "train.jsonl",
            "split": "train",
            "columns": ["messages"],
        }
    else:
        assert entry["path"] == "train.jsonl"
        assert (entry["type"], entry["field_messages"]) == ("chat_template", "messages")
        assert known["test_datasets"][0]["path"] == "validation.jsonl"


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_that_does_not_read_the_format_is_refused(tmp_path: Path, tool: Any) -> None:
    with pytest.raises(InputError, match="does not read camel-chat"):
        await exported(tmp_path, three(), "camel-chat", "tea.zip", tool=tool)


async def test_a_list_of_data_sets_that_cannot_be_read_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text("{")
    with pytest.raises(InputError, match="LLaMA-Factory's list"):
        await exported(tmp_path, three(), "messages", "tea.jsonl", tool="llama-factory")
    assert (tmp_path / "dataset_info.json").read_text() == "{"
    assert not (tmp_path / "tea.jsonl").exists()
