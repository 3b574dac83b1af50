"""Others' conversations are taken in, and nothing that only looks like one does harm."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import random
import tarfile
import threading
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.errors import InputError
from bactrian.ingest.chats import LONGEST, Origin
from bactrian.ingest.importer import Form, ImportReport, find_chats, import_chats
from bactrian.records.session import Session
from bactrian.records.turn import Instruction, Solution
from bactrian.store import open_store
from bactrian.store.care import recover, verify
from tests.helpers.command import bactrian
from tests.helpers.disks import mounted
from tests.helpers.exports import handed
from tests.helpers.runs import make_run, session

REASONS = {
    "<CAMEL_TASK_DONE>": ("task_done", "user"),
    "user_no_instruct_threshold": ("user_no_instruct", "user"),
    "assistant_instruct_threshold": ("assistant_instruct", "assistant"),
    "RoleType.USER: max_tokens_exceeded": ("token_limit", "user"),
    "RoleType.ASSISTANT: max_tokens_exceeded": ("token_limit", "assistant"),
    "max_num_messages": ("max_messages", "assistant"),
    "repeat_word_threshold": ("repeat_loop", "assistant"),
    "something else": ("imported", "assistant"),
}


def chat(**more: Any) -> dict[str, Any]:
    """A chat in the shape of the released ones, whose ``role`` is wrong."""
    return {
        "role_1": "Actor_RoleType.ASSISTANT",
        "role_2": "Blogger_RoleType.USER",
        "id": "002_005_001",
        "original_task": "Write a play",
        "specified_task": "Write a play about tea.",
        "message_1": message("USER", "Blogger", "Instruction: Name the hero.\nInput: None"),
        "message_2": message("ASSISTANT", "Actor", "Solution: Darjeeling.\n\nNext request."),
        "termination_reason": "max_num_messages",
        "num_messages": 2,
    } | more


INSTRUCTION = {
    "id": "001_001_001",
    "role_1": "Actor_RoleType.ASSISTANT",
    "role_2": "Blogger_RoleType.USER",
    "original_task": "Write a play",
    "specified_task": "Write a play about tea.",
    "role_1_response": "",
    "role_1_message_id": 1,
    "instruction": "Name the hero.",
    "input": "",
    "output": "Darjeeling.",
    "termination_reason": "max_num_messages",
}
"""A row of CAMEL's instructions."""


def message(kind: str, name: str, text: str) -> dict[str, str]:
    return {"role_type": kind, "role_name": name, "role": "user", "content": text}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in files.items():
            pack.writestr(name, content)
    return path


def tarred(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as pack:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    return path


def foldered(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def encoded(*chats: dict[str, Any], folder: str = "") -> dict[str, bytes]:
    return {f"{folder}{chat['id']}.json": json.dumps(chat).encode() for chat in chats}


async def taken(
    path: Path, run: Path, form: Form | None = None, **origin: Any
) -> tuple[list[Session], ImportReport]:
    """What the run holds after an import, and its report."""
    source = find_chats(path, form, Origin(**origin))
    async with open_store(run) as store:
        report = await import_chats(store, source)
        return [session async for session in store.sessions()], report


async def one_chat(tmp_path: Path, **more: Any) -> Session:
    (found,), _ = await taken(foldered(tmp_path / "in", encoded(chat(**more))), tmp_path / "run.db")
    return found


@pytest.mark.parametrize("folder", ["", "camel_data/ai_society/"])
@pytest.mark.parametrize(("make", "name"), [(foldered, "in"), (zipped, "in.zip"), (tarred, "in.tar.gz")])
async def test_folders_and_archives_flat_or_nested_are_taken_in(
    tmp_path: Path, make: Any, name: str, folder: str
) -> None:
    chats = [chat(id=f"001_001_{number:03}") for number in range(250)]
    found, report = await taken(make(tmp_path / name, encoded(*chats, folder=folder)), tmp_path / "run.db")
    assert (report.stored, report.already, report.broken, report.messages) == (250, 0, 0, 500)
    assert [session.id for session in found] == [chat["id"] for chat in chats]


@pytest.mark.parametrize(("make", "name"), [(foldered, "in"), (zipped, "in.zip"), (tarred, "in.tar.gz")])
async def test_lines_of_json_in_folders_and_archives_are_taken_in(
    tmp_path: Path, make: Any, name: str
) -> None:
    lines = [json.dumps(chat(id=f"001_001_00{number}")).encode() for number in (1, 2, 3)]
    files = {"a.jsonl": b"\n".join(lines[:2]), "b.json": lines[2], "c.jsonl": b"not JSON"}
    found, report = await taken(make(tmp_path / name, files), tmp_path / "run.db")
    assert ([session.id[-1] for session in found], report.broken) == (["1", "2", "3"], 1)


async def test_a_chat_becomes_a_session_with_its_turns_read_by_the_protocol(tmp_path: Path) -> None:
    found = await one_chat(tmp_path)
    assert (found.assistant.name, found.user.name) == ("Actor", "Blogger")
    assert (found.task.original, found.task.specified) == ("Write a play", "Write a play about tea.")
    first, second = found.turns
    assert (first.speaker, first.role, first.said) == ("user", "Blogger", Instruction("Name the hero."))
    assert (second.speaker, second.role, second.said) == (
        "assistant",
        "Actor",
        Solution("Darjeeling.", asks_next=True),
    )
    assert first.usage.estimated


@pytest.mark.parametrize(("reason", "ending"), REASONS.items())
async def test_camels_reasons_are_our_endings(tmp_path: Path, reason: str, ending: tuple[str, str]) -> None:
    found = await one_chat(tmp_path, termination_reason=reason)
    assert found.ending is not None
    assert (found.ending.code, found.ending.speaker) == ending


async def test_a_chat_without_a_reason_ends_as_it_shows_itself(tmp_path: Path) -> None:
    done = chat(id="1", message_3=message("USER", "Blogger", "<CAMEL_TASK_DONE>"))
    silent = chat(id="2")
    long = chat(
        id="3", **{f"message_{n}": message("USER" if n % 2 else "ASSISTANT", "x", "y") for n in range(1, 41)}
    )
    for talk in (done, silent, long):
        del talk["termination_reason"]
    found, _ = await taken(foldered(tmp_path / "in", encoded(done, silent, long)), tmp_path / "run.db")
    assert [session.ending and session.ending.code for session in found] == [
        "task_done",
        "imported",
        "max_messages",
    ]


async def test_keys_and_role_types_may_have_any_case_and_the_role_is_not_trusted(tmp_path: Path) -> None:
    shouted = {key.upper(): value for key, value in chat().items()}
    shouted["MESSAGE_1"]["role_type"] = "user"
    shouted["MESSAGE_2"]["role_type"] = "RoleType.ASSISTANT"
    path = foldered(tmp_path / "in", {"a.json": json.dumps(shouted).encode()})
    (found,), _ = await taken(path, tmp_path / "run.db")
    assert [turn.speaker for turn in found.turns] == ["user", "assistant"]


async def test_a_chat_without_messages_is_kept(tmp_path: Path) -> None:
    empty = chat(num_messages=0)
    del empty["message_1"], empty["message_2"]
    path = foldered(tmp_path / "in", encoded(empty))
    (found,), _ = await taken(path, tmp_path / "run.db")
    assert found.turns == ()
    assert found.ending is not None
    assert found.ending.turn == 0


async def test_gaps_keep_their_numbers_and_order_does_not_matter(tmp_path: Path) -> None:
    gap = chat(message_10=message("ASSISTANT", "Actor", "ten"), message_9=message("USER", "Blogger", "nine"))
    del gap["message_2"]
    (found,), _ = await taken(foldered(tmp_path / "in", encoded(gap)), tmp_path / "run.db")
    assert [(turn.number, turn.text[:3]) for turn in found.turns] == [(1, "Ins"), (9, "nin"), (10, "ten")]


async def test_a_missing_role_name_is_that_of_the_role(tmp_path: Path) -> None:
    found = await one_chat(tmp_path, message_1=message("USER", "", "Instruction: Go."))
    assert found.turns[0].role == "Blogger"


async def test_broken_files_are_named_and_counted_and_the_rest_is_stored(tmp_path: Path) -> None:
    files = {
        "a.json": b"{",
        "b.json": b"[1]",
        "c.json": json.dumps({"role_1": "x"}).encode(),
        "d.json": json.dumps(chat(message_1="a problem")).encode(),
        "e.json": json.dumps(chat(message_1=message("USER", "x", "y") | {"content": None})).encode(),
        "f.json": json.dumps(chat(role_1="_RoleType.ASSISTANT")).encode(),
        "g.json": json.dumps(chat(original_task="", specified_task="")).encode(),
        "h.json": b"\xff\xfe\x00",
        "i.json": b"[" * 100_000,
        "j.json": json.dumps(chat(message_0=message("USER", "x", "y"))).encode(),
        "README.txt": b"not looked at",
        "z.json": json.dumps(chat()).encode(),
    }
    found, report = await taken(zipped(tmp_path / "in.zip", files), tmp_path / "run.db")
    assert len(found) == report.stored == 1
    assert [fault.name.partition(",")[0] for fault in report.named] == [
        f"{letter}.json" for letter in "abcdefghij"
    ]
    assert report.broken == 10
    assert all(fault.problem for fault in report.named)


async def test_taking_in_twice_stores_once(tmp_path: Path) -> None:
    path = zipped(tmp_path / "in.zip", encoded(*(chat(id=f"{number}") for number in range(5))))
    first, _ = await taken(path, tmp_path / "run.db")
    again, report = await taken(path, tmp_path / "run.db")
    assert again == first
    assert (report.stored, report.already) == (0, 5)


async def test_what_was_broken_off_is_completed(tmp_path: Path) -> None:
    path = foldered(tmp_path / "in", encoded(chat()))
    whole = await one_chat(tmp_path)
    await make_run(tmp_path / "half.db", [])
    async with open_store(tmp_path / "half.db") as store:
        source = find_chats(path, None, Origin())
        (unfinished,) = [found for found in source if isinstance(found, Session)]
        await store.begin(unfinished)
        await store.add_turn(unfinished.id, unfinished.turns[0])
    (found,), report = await taken(path, tmp_path / "half.db")
    assert found == whole
    assert report.stored == 1


async def test_chats_of_two_data_sets_with_the_same_id_are_both_kept_once(tmp_path: Path) -> None:
    one = zipped(tmp_path / "ai_society.zip", encoded(chat()))
    two = zipped(tmp_path / "code.zip", encoded(chat(role_1="Python_RoleType.ASSISTANT")))
    for source in (one, two, one):
        await taken(source, tmp_path / "run.db")
    found, _ = await taken(two, tmp_path / "run.db")
    assert [session.assistant.name for session in found] == ["Actor", "Python"]
    assert found[0].id == "002_005_001"
    assert found[1].id.startswith("002_005_001-")


async def test_two_versions_of_a_chat_in_one_archive_are_both_kept(tmp_path: Path) -> None:
    other = chat(message_2=message("ASSISTANT", "Actor", "Solution: Assam."))
    path = zipped(tmp_path / "in.zip", encoded(chat()) | encoded(other, folder="v2/"))
    found, _ = await taken(path, tmp_path / "run.db")
    assert sorted(session.turns[1].text for session in found) == [
        "Solution: Assam.",
        "Solution: Darjeeling.\n\nNext request.",
    ]
    again, report = await taken(path, tmp_path / "run.db")
    assert again == found
    assert report.stored == 0


def links(path: Path) -> None:
    with tarfile.open(path, "w:gz") as pack:
        for number, (kind, target) in enumerate(
            [
                (tarfile.SYMTYPE, "/etc/passwd"),
                (tarfile.LNKTYPE, "../../x"),
                (tarfile.FIFOTYPE, ""),
                (tarfile.CHRTYPE, ""),
            ]
        ):
            info = tarfile.TarInfo(f"{number}.json")
            info.type, info.linkname = kind, target
            pack.addfile(info)
        content = json.dumps(chat()).encode()
        info = tarfile.TarInfo("good.json")
        info.size = len(content)
        pack.addfile(info, io.BytesIO(content))


async def test_links_and_devices_in_an_archive_are_passed_over(tmp_path: Path) -> None:
    links(tmp_path / "in.tar.gz")
    found, report = await taken(tmp_path / "in.tar.gz", tmp_path / "run.db")
    assert len(found) == 1
    assert report.broken == 4


async def test_links_and_pipes_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    path = foldered(tmp_path / "in", encoded(chat()))
    (path / "link.json").symlink_to("/etc/passwd")
    (path / "loop").symlink_to(path)
    os.mkfifo(path / "pipe.json")
    found, report = await taken(path, tmp_path / "run.db")
    assert len(found) == 1
    assert report.broken == 2


@pytest.mark.parametrize(("make", "name"), [(zipped, "in.zip"), (tarred, "in.tar.gz")])
async def test_names_that_lead_out_of_the_archive_write_nothing(tmp_path: Path, make: Any, name: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    content = json.dumps(chat(id="../../../evil")).encode()
    names = ("../../evil.json", "/tmp/evil-bactrian.json", "..\\evil.json")
    await taken(make(inside / name, dict.fromkeys(names, content)), inside / "run.db")
    assert sorted(
        path.name for path in tmp_path.rglob("*") if path.is_file() and "run.db" not in path.name
    ) == [name]
    assert not Path("/tmp/evil-bactrian.json").exists()
    async with open_store(inside / "run.db", read_only=True) as store:
        assert [session.id async for session in store.sessions()] == ["evil"]


async def test_a_file_that_unfolds_to_too_much_is_named_and_not_read(tmp_path: Path) -> None:
    files = {"bomb.json": bytes(LONGEST + 1), "good.json": json.dumps(chat()).encode()}
    for make, name in ((zipped, "in.zip"), (tarred, "in.tar.gz")):
        found, report = await taken(make(tmp_path / name, files), tmp_path / f"{name}.db")
        assert len(found) == 1
        assert report.named[0].name == "bomb.json"


def lying_zip(path: Path) -> None:
    """A member of 40 MB that claims to have 10 bytes."""
    zipped(path, {"liar.json": bytes(40 * 1024 * 1024), "good.json": json.dumps(chat()).encode()})
    content = path.read_bytes()
    true, claimed = (40 * 1024 * 1024).to_bytes(4, "little"), (10).to_bytes(4, "little")
    path.write_bytes(content.replace(true, claimed))


async def test_an_archive_that_lies_about_a_size_cannot_fill_the_memory(tmp_path: Path) -> None:
    lying_zip(tmp_path / "in.zip")
    found, report = await taken(tmp_path / "in.zip", tmp_path / "run.db")
    assert len(found) == 1
    assert report.named[0].name == "liar.json"


async def test_a_member_of_ten_gigabytes_ends_the_reading_and_keeps_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "in.tar.gz"
    content = json.dumps(chat()).encode()
    with gzip.open(path, "wb", compresslevel=1) as file:
        for name, size in (("good.json", len(content)), ("huge.json", 10 * 1024**3)):
            info = tarfile.TarInfo(name)
            info.size = size
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            if name == "good.json":
                file.write(content + bytes(-len(content) % 512))
        file.write(bytes(1024 * 1024))
    found, report = await taken(path, tmp_path / "run.db")
    assert len(found) == 1
    assert "unpacks" in report.named[0].problem


@pytest.mark.parametrize(("make", "name"), [(zipped, "in.zip"), (tarred, "in.tar.gz")])
async def test_a_damaged_archive_gives_what_it_still_holds_or_says_so(
    tmp_path: Path, make: Any, name: str
) -> None:
    noise = random.Random(1)
    chats = [chat(id=f"{n}", original_task=noise.randbytes(2000).hex()) for n in range(50)]
    path = make(tmp_path / name, encoded(*chats))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    if name.endswith(".zip"):
        with pytest.raises(InputError):
            await taken(path, tmp_path / "run.db")
        assert not (tmp_path / "run.db").exists()
    else:
        found, report = await taken(path, tmp_path / "run.db")
        assert 10 < len(found) < 40
        assert "damaged" in report.named[-1].problem


@pytest.mark.parametrize("side", ["assistant", "user"])
@pytest.mark.parametrize("form", ["messages", "sharegpt"])
async def test_our_own_chats_come_back_with_the_sides_where_they_were(
    tmp_path: Path, form: Any, side: Any
) -> None:
    original = session("001_002_003", rounds=3)
    run = await make_run(tmp_path / "tea.db", [original])
    await handed(run, form, tmp_path / "tea.jsonl", side=side)
    (found,), _ = await taken(tmp_path / "tea.jsonl", tmp_path / "back.db")
    expected = original.turns if side == "user" else original.turns[:-1]
    assert [(turn.number, turn.speaker, turn.text, turn.said) for turn in found.turns] == [
        (turn.number, turn.speaker, turn.text, turn.said) for turn in expected
    ]
    assert (found.id, found.assistant, found.user, found.task) == (
        original.id,
        original.assistant,
        original.user,
        original.task,
    )
    assert found.ending is not None
    assert found.ending.code == "task_done"


async def test_our_own_camel_chats_come_back_as_they_were(tmp_path: Path) -> None:
    sessions = [session("001_001_001"), session("001_002_001", user="Guest", code="repeat_loop")]
    run = await make_run(tmp_path / "tea.db", sessions)
    await handed(run, "camel-chat", tmp_path / "tea.tar.gz")
    found, _ = await taken(tmp_path / "tea.tar.gz", tmp_path / "back.db")
    for back, original in zip(found, sessions, strict=True):
        assert (back.id, back.assistant, back.user, back.task) == (
            original.id,
            original.assistant,
            original.user,
            original.task,
        )
        assert [turn.text for turn in back.turns] == [turn.text for turn in original.turns]
        assert back.ending is not None
        assert original.ending is not None
        assert back.ending.code == original.ending.code


async def test_others_chats_need_no_names_and_repeat_speakers_leave_gaps(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "a"}] * 2},
        {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    ]
    path = tmp_path / "chats.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    found, _ = await taken(path, tmp_path / "run.db", model="gpt-x")
    numbers = [[turn.number for turn in session.turns] for session in found]
    assert numbers == [[1], [2, 3, 4, 5], [1, 3]]
    assert (found[0].assistant.name, found[0].user.name, found[0].task.original) == (
        "Assistant",
        "User",
        "Hi",
    )
    assert found[0].provenance.models == {"assistant": "gpt-x", "user": "gpt-x"}


async def test_detectors_read_a_chat_with_gaps_as_one_without(tmp_path: Path) -> None:
    texts = ("I begin.", "<CAMEL_TASK_DONE>", "Here is the whole plan: 3 beds, 2 trees.", "Thanks!")
    roles = ("assistant", "user")
    rows = [{"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]}]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(rows[0]))
    (gaps,), _ = await taken(path, tmp_path / "run.db", model="gpt-x")
    assert [turn.number for turn in gaps.turns] == [2, 3, 4, 5]
    plain = replace(gaps, turns=tuple(replace(turn, number=turn.number - 1) for turn in gaps.turns))
    found, expected = (
        [(finding.turn - shift, finding.behaviour) for finding in find_behaviours(of)]
        for of, shift in ((gaps, 1), (plain, 0))
    )
    assert found == expected
    assert found


async def test_a_file_that_breaks_off_gives_what_it_holds(tmp_path: Path) -> None:
    noise = random.Random(1)
    rows = [{"messages": [{"role": "user", "content": noise.randbytes(500).hex()}]} for _ in range(50)]
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (tmp_path / "c.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found, report = await taken(tmp_path / "c.jsonl.gz", tmp_path / "run.db")
    assert 10 < len(found) < 40
    assert [fault.name for fault in report.named] == ["c.jsonl.gz"]


async def test_broken_lines_are_named_by_their_number(tmp_path: Path) -> None:
    good = json.dumps({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]})
    bad = [
        "{",
        "[]",
        '{"conversations": 1}',
        '{"conversations": [{"from": "tool", "value": "x"}]}',
        '{"conversations": [{"from": ["x"], "value": "x"}]}',
        '{"conversations": [{"from": "gpt", "value": 1}]}',
        '{"conversations": []}',
    ]
    (tmp_path / "c.jsonl").write_text("\n".join([good, *bad, "", good]))
    found, report = await taken(tmp_path / "c.jsonl", tmp_path / "run.db", "sharegpt")
    assert len(found) == 1
    assert [fault.name for fault in report.named] == [f"c.jsonl, line {number}" for number in range(2, 9)]


async def test_a_line_that_is_too_long_cannot_fill_the_memory(tmp_path: Path) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    with (tmp_path / "c.jsonl").open("w") as file:
        file.write(good + "\n" + "x" * (2 * LONGEST + 7) + "\n" + good.replace("Hi", "Ho") + "\n")
    found, report = await taken(tmp_path / "c.jsonl", tmp_path / "run.db")
    assert [session.turns[0].text for session in found] == ["Hi", "Ho"]
    assert [fault.name for fault in report.named] == ["c.jsonl, line 2"]


@pytest.mark.parametrize("name", ["nothing", "empty", "notes.txt", "notes.jsonl", "notes.json"])
async def test_what_holds_no_conversation_makes_no_run(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "empty":
        path.mkdir()
    elif name != "nothing":
        path.write_text("These are notes.\n")
    with pytest.raises(InputError):
        await taken(path, tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


async def test_lone_surrogates_and_nuls_are_replaced_and_marked(tmp_path: Path) -> None:
    found = await one_chat(tmp_path, message_1=message("USER", "x", "a\ud800b\0"), original_task="t\ud800")
    assert found.turns[0].text == "a\ufffdb\\u0000"
    assert found.turns[0].lossy
    assert found.task.original == "t\ufffd"


def stuffed_tar(path: Path, kind: bytes, size: int) -> Path:
    """A tar with two chats, and between them a header of ``size`` zeros that pack to next to nothing."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, size
    with gzip.open(path, "wb", compresslevel=1) as file:
        for name, content in encoded(chat()).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.write(info.tobuf() + content + bytes(-len(content) % 512))
        file.write(header.tobuf())
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
        file.write(bytes(1024))
    return path


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
async def test_a_header_of_any_size_cannot_fill_the_memory(tmp_path: Path, kind: bytes) -> None:
    pack = stuffed_tar(tmp_path / "chats.tar.gz", kind, 64 * 2**20)
    tracemalloc.start()
    try:
        sessions, report = await taken(pack, tmp_path / "run.db")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sessions) == 1
    assert "header" in report.named[0].problem
    assert peak < 32 * 2**20


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_first_header_of_any_size_cannot_fill_the_memory(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, 64 * 2**20
    with gzip.open(tmp_path / "chats.tar.gz", "wb", compresslevel=1) as file:
        file.write(header.tobuf() + bytes(64 * 2**20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="a header has"):
            list(find_chats(tmp_path / "chats.tar.gz", None, Origin()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


async def test_many_short_headers_cannot_fill_the_memory_either(tmp_path: Path) -> None:
    path = tmp_path / "chats.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as pack:
        for number in range(450):
            info = tarfile.TarInfo(f"{number}.txt")
            info.pax_headers = {"comment": f"{number}" + "x" * 50_000}
            pack.addfile(info)
        for name, content in encoded(chat()).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            pack.addfile(info, io.BytesIO(content))
    tracemalloc.start()
    try:
        sessions, _ = await taken(path, tmp_path / "run.db")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sessions) == 1
    assert peak < 24 * 2**20


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", [None, "messages"])
async def test_a_pipe_loses_nothing(tmp_path: Path, packed: bool, form: Form | None) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Why {n}?"},
                {"role": "assistant", "content": "So. " * 100},
            ]
        }
        for n in range(300)
    ]
    content = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(content) if packed else content,))
    writer.start()
    sessions, report = await taken(pipe, tmp_path / "run.db", form)
    writer.join()
    assert report.stored == len(sessions) == 300


def test_an_archive_from_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "chats.zip"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="from a pipe or a device"):
        find_chats(pipe, "camel-chat", Origin())


@pytest.mark.slow
def test_a_full_folder_for_temporary_files_is_named_and_the_same_command_goes_on(tmp_path: Path) -> None:
    rows = [
        {**INSTRUCTION, "id": f"001_001_{number:03}", "output": f"{number} " * 350_000}
        for number in range(24)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    words = ("import", "rows.json", "--run", "tea.db", "--format", "camel-instructions")
    with mounted(tmp_path / "small", "size=1m") as small:
        # SQLite reads TMPDIR when it starts; a variable of Python's makes the command a process of its own.
        done = bactrian(*words, cwd=tmp_path, TMPDIR=str(small), PYTHONUTF8="1")
        assert done.returncode == 1
        assert "set TMPDIR to a folder with more" in done.stderr
    done = bactrian(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert verify(tmp_path / "tea.db").sessions == len(rows)


async def test_chats_that_differ_in_their_end_alone_are_all_kept_and_no_second_import_adds_one(
    tmp_path: Path,
) -> None:
    reasons = ["max_num_messages", "<CAMEL_TASK_DONE>", "user_no_instruct_threshold", "max_num_messages"]
    files = {
        f"{number}/one.json": json.dumps(chat(termination_reason=reason)).encode()
        for number, reason in enumerate(reasons)
    }
    path = foldered(tmp_path / "chats", files)
    first, report = await taken(path, tmp_path / "run.db")
    assert (report.stored, report.already) == (3, 1)
    for _ in range(2):
        again, report = await taken(path, tmp_path / "run.db")
        assert (report.stored, report.already) == (0, 4)
        assert again == first


async def test_two_messages_of_one_number_are_no_chat(tmp_path: Path) -> None:
    twice = chat(message_02=message("ASSISTANT", "Actor", "Solution: Assam."))
    _, report = await taken(foldered(tmp_path / "in", encoded(twice, chat(id="x"))), tmp_path / "run.db")
    assert report.named[0].problem == "it has two messages 2"
    assert report.stored == 1


async def test_an_imported_chat_with_gaps_does_not_look_damaged(tmp_path: Path) -> None:
    gaps = chat(message_7=message("USER", "Blogger", "Instruction: Go on."))
    run = tmp_path / "run.db"
    await taken(foldered(tmp_path / "in", encoded(gaps)), run)
    assert verify(run).faults == ()


async def test_recovery_keeps_what_comes_after_a_gap_of_an_imported_chat(tmp_path: Path) -> None:
    gaps = chat(message_7=message("USER", "Blogger", "Instruction: Go on."))
    run, new = tmp_path / "run.db", tmp_path / "new.db"
    await taken(foldered(tmp_path / "in", encoded(gaps)), run)
    report = recover(run, new)
    assert (report.sessions, report.turns, report.opened) == (1, 3, 0)
    async with open_store(run, read_only=True) as before, open_store(new, read_only=True) as after:
        assert [session async for session in after.sessions()] == [
            session async for session in before.sessions()
        ]


@pytest.mark.parametrize("name", ["run.db.lock", "run.db-wal", "link", "hard"])
def test_what_belongs_to_the_run_is_not_imported_into_it(tmp_path: Path, name: str) -> None:
    lock = tmp_path / "run.db.lock"
    content = json.dumps(chat()).encode()
    lock.write_bytes(content)
    (tmp_path / "run.db-wal").write_bytes(content)
    (tmp_path / "link").symlink_to(lock)
    os.link(lock, tmp_path / "hard")
    done = bactrian("import", name, "--run", "run.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "This is the input file" in done.stderr or "belongs to" in done.stderr
    assert lock.read_bytes() == (tmp_path / "run.db-wal").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "chosen", "license_name"),
    [
        ("ai_society_chat.zip", [], "CC-BY-NC-4.0"),
        ("code_chat (1).tar.gz", [], "CC-BY-NC-4.0"),
        ("mine.zip", [], None),
        ("mine.zip", ["--license", "CC-BY-4.0"], "CC-BY-4.0"),
    ],
)
def test_the_licence_of_a_known_source_is_carried_to_every_export(
    tmp_path: Path, name: str, chosen: list[str], license_name: str | None
) -> None:
    run = asyncio.run(make_run(tmp_path / "made.db", [session()]))
    asyncio.run(handed(run, "camel-chat", tmp_path / "out.zip"))
    (tmp_path / "out.zip").rename(tmp_path / name) if name.endswith(".zip") else asyncio.run(
        handed(run, "camel-chat", tmp_path / name)
    )
    (tmp_path / f"{name}.manifest.json").unlink(missing_ok=True)
    done = bactrian("import", name, "--run", "camel.db", *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ("Licence" in done.stderr) == (license_name is not None)
    made = asyncio.run(handed(tmp_path / "camel.db", "hf", tmp_path / "set"))
    assert made["license"] == license_name
    card = (tmp_path / "set" / "README.md").read_text("utf-8")
    assert f'license: "{(license_name or "").lower()}"' in card or license_name is None
    # Our own manifest hands it on.
    asyncio.run(handed(tmp_path / "camel.db", "messages", tmp_path / "again.jsonl"))
    bactrian("import", "again.jsonl", "--run", "again.db", cwd=tmp_path)
    made = asyncio.run(handed(tmp_path / "again.db", "messages", tmp_path / "third.jsonl", license="MIT"))
    assert made["license"] == (f"MIT AND {license_name}" if license_name else "MIT")
