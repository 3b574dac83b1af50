"""What is left out, taken out and set aside."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.errors import InputError
from bactrian.export.redact import Redactor
from bactrian.export.session_filters import Filters, Split, read_benchmark, read_split
from bactrian.records.session import Ending, Role
from bactrian.records.text import Text
from bactrian.records.turn import Instruction
from tests.helpers.exports import exported, lines
from tests.helpers.runs import answer, session


async def taken(folder: Path, sessions: list[Any], **filters: Any) -> tuple[list[str], dict[str, int]]:
    """Ids of the sessions that pass, and how many were left out for what."""
    out, made = await exported(folder, sessions, "messages", "tea.jsonl", filters=Filters(**filters))
    return [row["session"] for row in lines(out)], made["counts"]["left_out"]


async def test_only_sessions_with_the_endings_that_are_wanted_are_taken(tmp_path: Path) -> None:
    sessions = [session("done"), session("long", code="max_messages"), session("loop", code="repeat_loop")]
    found = await taken(tmp_path, sessions, endings=frozenset(("task_done", "repeat_loop")))
    assert found == (["done", "loop"], {"ending max_messages": 1})


async def test_sessions_with_too_few_rounds_are_left_out(tmp_path: Path) -> None:
    found = await taken(tmp_path, [session("1", rounds=1), session("2", rounds=2)], min_rounds=2)
    assert found == (["2"], {"too few rounds": 1})


@pytest.mark.parametrize("form", ["messages", "camel-chat", "sharegpt", "alpaca", "csv"])
async def test_a_session_is_a_duplicate_only_if_a_reader_of_the_format_sees_no_difference(
    tmp_path: Path, form: str
) -> None:
    first = session("1", texts=["Instruction: Go.\nInput: None", "Solution: Done."], code="max_messages")
    origin = first.provenance
    prompted = replace(origin, prompts="imported from messages", prompts_hash="")
    sessions = [
        first,
        replace(first, id="same", provenance=replace(origin, models={"user": "openai:other"})),
        replace(first, id="role", assistant=Role("Brewer")),
        replace(first, id="task", task=replace(first.task, original="Another task")),
        replace(
            first, id="case", turns=(first.turns[0], replace(first.turns[1], text=Text("Solution: done.")))
        ),
        replace(first, id="mark", mark="red-team"),
        replace(first, id="ending", ending=Ending("token_limit", 2, "user", "")),
        replace(
            first, id="prompt", provenance=replace(prompted, extra={"system": {"assistant": "Be brief."}})
        ),
        replace(
            first,
            id="other prompt",
            provenance=replace(prompted, extra={"system": {"assistant": "Be long."}}),
        ),
    ]
    left, made = await exported(
        tmp_path, sessions, form, "out" if form != "camel-chat" else "tea.zip", filters=Filters(dedup=True)
    )
    hidden = {"prompt": "1", "other prompt": "1"} if form not in ("messages", "sharegpt") else {}
    assert made["duplicates"] == {"same": "1", **hidden}
    assert list(made["counts"]["left_out"].values()) == [1 + len(hidden)]
    assert left.exists()


async def test_the_twin_of_a_session_that_is_left_out_is_taken(tmp_path: Path) -> None:
    sessions = [session("1", rounds=1), session("2", rounds=1)]
    found = await taken(tmp_path, sessions, dedup=True, reject={"marked": lambda of: of.id == "1"})
    assert found == (["2"], {"marked": 1})


async def test_a_predicate_of_the_callers_leaves_out_under_its_name(tmp_path: Path) -> None:
    reject = {"finding=flake_reply": lambda session: session.id == "2"}
    found = await taken(tmp_path, [session("1"), session("2")], reject=reject)
    assert found == (["1"], {"finding=flake_reply": 1})


async def test_unfinished_sessions_are_taken_if_they_are_wanted(tmp_path: Path) -> None:
    found = await taken(tmp_path, [session("1", code=None)], unfinished=True)
    assert found == (["1"], {})


async def test_filters_that_leave_nothing_say_what_they_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 too few rounds, 1 unfinished"):
        await taken(tmp_path, [session("1"), session("2", code=None)], min_rounds=9)


PROBLEM = {
    "task_id": "Test/0",
    "prompt": 'def brew(cups: list[int], limit: int) -> int:\n    """Count the cups that hold more tea than'
    ' the limit allows and give back their number as one whole number."""\n',
    "entry_point": "brew",
    "canonical_solution": "    return len([cup for cup in cups if cup > limit])\n",
    "test": "def check(candidate): pass",
}


@pytest.mark.parametrize("packed", [False, True])
async def test_a_session_that_quotes_the_benchmark_is_left_out_whatever_its_layout(
    tmp_path: Path, packed: bool
) -> None:
    path = tmp_path / ("humaneval.jsonl.gz" if packed else "humaneval.jsonl")
    text = json.dumps(PROBLEM).encode() + b"\n"
    path.write_bytes(gzip.compress(text) if packed else text)
    quotes = (
        "Solution: Count the cups, that hold MORE tea\n than the limit allows and give back their number!"
    )
    near = "Solution: Count the cups that hold more tea than the pot allows and give back their number."
    sessions = [
        session("quotes", texts=["Instruction: Go.", quotes], code="max_messages"),
        session("near", texts=["Instruction: Go.", near], code="max_messages"),
    ]
    benchmark = read_benchmark(path)
    assert benchmark.problems == 1
    found = await taken(tmp_path, sessions, benchmark=benchmark)
    assert found == (["near"], {f"quotes {path.name}": 1})


@pytest.mark.parametrize("text", ["", "not json\n", '{"question": "?"}\n', "[1]\n"])
def test_a_file_of_another_form_is_no_benchmark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(InputError):
        read_benchmark(path)


SECRETS = {
    "mail to jane.doe@corp.io now": "mail to <EMAIL> now",
    "or to user@example.com, which may be a placeholder": "or to <EMAIL>, which may be a placeholder",
    "call +44 20 7946 0958 at noon": "call <PHONE> at noon",
    "card 4111 1111 1111 1111 please": "card <CARD> please",
    "pay to DE89 3704 0044 0532 0130 00 today": "pay to <IBAN> today",
    "key = AKIAIOSFODNN7EXAMPLQ": "key = <SECRET>",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "<SECRET>",
    "token ghp_" + "a1B2" * 9: "token <SECRET>",
}
INNOCENT = [
    "Version 1.2.3 of 2024-01-02 has 1234567890123 rows.",
    "x = 4111111111111112",
    "a @ b gives the matrix product, and @decorated is code",
    "Listen on 8.8.8.8 and read the APARTMENTBUILDING manual",
    "1 + 2 = 3, and 10 - 4 = 6",
    "sha256 = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "https://docs.python.org/3/library/json.html",
]


@pytest.mark.parametrize(("text", "expected"), SECRETS.items())
def test_what_is_private_is_taken_out(text: str, expected: str) -> None:
    assert Redactor().redact_text(text) == expected


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_private_stays(text: str) -> None:
    assert Redactor().redact_text(text) == text


async def test_redaction_reaches_every_text_and_reads_turns_again(tmp_path: Path) -> None:
    secret = "jane@corp.io"
    one = session(
        texts=[f"Instruction: Write to {secret}.\nInput: {secret}", "Solution: Done."], code="max_messages"
    )
    one = replace(
        one, task=replace(one.task, original=f"Ask {secret}", planned=secret), values={"task": secret}
    )
    out, made = await exported(tmp_path, [one], "parquet", "tea", redact=True)
    found = Redactor().redact_session(one)
    assert found.turns[0].said == Instruction("Write to <EMAIL>.", "<EMAIL>")
    for file in out.rglob("*.parquet"):
        import polars

        assert secret not in str(polars.read_parquet(file).rows())
    assert made["counts"]["redacted"]["EMAIL"] >= 5


def pairs_by_part(split: Split, count: int = 40) -> dict[str, set[tuple[str, str]]]:
    parts: dict[str, set[tuple[str, str]]] = {name: set() for name in split.names}
    for a in range(count):
        for u in range(count):
            for task in range(2):
                one = session(f"{a}_{u}_{task}", assistant=f"A{a}", user=f"U{u}", rounds=1, task=str(task))
                parts[split.find_part(one)].add((f"A{a}", f"U{u}"))
    return parts


def test_no_pair_is_in_two_parts_and_the_shares_are_about_right() -> None:
    parts = pairs_by_part(read_split(["validation=0.1", "test=0.2"]))
    assert sum(map(len, parts.values())) == 1600 == len(set().union(*parts.values()))
    assert 110 < len(parts["validation"]) < 210
    assert 260 < len(parts["test"]) < 380


def test_questions_of_one_topic_stay_together() -> None:
    split = read_split(["validation=0.5"])
    for topic in map(str, range(20)):
        parts = {split.find_part(answer(topic=topic, problem=f"Why {number}?")) for number in range(10)}
        assert len(parts) == 1


async def test_a_split_makes_a_folder_with_a_file_for_each_part(tmp_path: Path) -> None:
    sessions = [session(f"{n}", user=f"U{n}") for n in range(40)]
    out, made = await exported(tmp_path, sessions, "messages", "tea", split=read_split(["validation=0.5"]))
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "train.jsonl", "validation.jsonl"]
    train, validation = (
        {row["user_role"] for row in lines(out / f"{part}.jsonl")} for part in ("train", "validation")
    )
    assert train
    assert validation
    assert not train & validation
    assert made["counts"]["rows"] == {"train": len(train), "validation": len(validation)}


@pytest.mark.parametrize(
    "text", ["validation", "validation=x", "validation=1.5", "train=0.1", "a b=0.1", "=0.1"]
)
def test_a_split_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_split([text])


def test_shares_that_leave_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="nothing for training"):
        read_split(["validation=0.5", "test=0.5"])


async def test_a_smaller_sample_than_before_is_told_and_can_be_exported_alone(tmp_path: Path) -> None:
    teas = bt.recipe(
        "ai-society", assistant_role=["Host"], user_role=["Guest"], task=["Teas", "Cups", "Pots"]
    )
    script = bt.Scripted(
        {
            "task_specifier": ["Name a tea."],
            "user": ["Instruction: Name one.", "<CAMEL_TASK_DONE>"],
            "assistant": ["Solution: Sencha."],
        }
    )

    def export(*only: str) -> dict[str, Any]:
        return bt.open_run(tmp_path / "teas.db").export(
            "messages", tmp_path / "teas.jsonl", only=only, overwrite=True
        )

    def make() -> list[dict[str, Any]]:
        bt.generate(teas, run=tmp_path / "teas.db", model=script, limit=3)
        before = export()
        bt.generate(teas, run=tmp_path / "teas.db", model=script, limit=1)
        return [before, export(), export("asked")]

    before, whole, alone = await asyncio.to_thread(make)
    with pytest.raises(InputError, match=r"^only: 'askd' is not a valid filter\.\n.* or asked or runs\.$"):
        await asyncio.to_thread(export, "askd")
    assert [made["counts"]["sessions"] for made in (before, whole, alone)] == [3, 3, 1]
    assert before["notes"] == alone["notes"] == {}
    assert whole["notes"] == {
        "sessions are not of the jobs that the last command asked for: the filter `asked` leaves them out": 2
    }
    assert alone["counts"]["left_out"] == {"not asked": 2}
