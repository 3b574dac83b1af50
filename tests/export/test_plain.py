"""Chats without the words of the protocol, and parts of a split that would be empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.export.session_filters import read_split
from bactrian.protocol.markers import DONE
from bactrian.records.turn import Speaker
from tests.helpers.exports import exported, lines
from tests.helpers.runs import session

TALK = (
    "Instruction: Name a green tea.\nInput: None",
    "Solution: Sencha.\n\nNext request.",
    "Instruction: Translate it.\nInput: sencha",
    "Solution: 煎茶\nNext request.",
    DONE,
)


@pytest.mark.parametrize(
    ("side", "told"),
    [
        (
            "assistant",
            [
                ("user", "Name a green tea."),
                ("assistant", "Sencha."),
                ("user", "Translate it.\nsencha"),
                ("assistant", "煎茶"),
            ],
        ),
        (
            "user",
            [
                ("user", "Build a tea timer for green tea."),
                ("assistant", "Name a green tea."),
                ("user", "Sencha."),
                ("assistant", "Translate it.\nsencha"),
            ],
        ),
    ],
)
async def test_a_plain_chat_has_no_system_prompt_and_no_word_of_the_protocol(
    tmp_path: Path, side: Speaker, told: list[tuple[str, str]]
) -> None:
    path, _ = await exported(tmp_path, [session(texts=TALK)], "messages", "tea.jsonl", side=side, plain=True)
    (row,) = lines(path)
    said = [(message["role"], message["content"]) for message in row["messages"]]
    assert said == told
    assert row["system_prompt"] == "left out"


async def test_a_format_that_is_the_protocol_cannot_be_plain(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="camel-chat is not written from one side"):
        await exported(tmp_path, [session()], "camel-chat", "chat", side="user")
    with pytest.raises(InputError, match="camel-chat cannot be plain"):
        await exported(tmp_path, [session(texts=TALK)], "camel-chat", "tea", plain=True)


async def test_a_part_that_would_be_empty_is_refused_and_the_smallest_share_works(tmp_path: Path) -> None:
    talks = [session(f"00{n}_001_001", assistant=f"Role {n}", texts=TALK) for n in range(1, 5)]
    with pytest.raises(InputError) as refused:
        await exported(tmp_path, talks, "messages", "parts", split=read_split(["test=0.001"]))
    assert "2,995 pairs make a part of that size likely" in str(refused.value)
    assert not (tmp_path / "parts").exists()
    assert refused.value.next is not None
    enough = refused.value.next.split()[0]
    (tmp_path / "again").mkdir()
    path, made = await exported(tmp_path / "again", talks, "messages", "parts", split=read_split([enough]))
    assert sum(made["counts"]["rows"].values()) == 4
    assert lines(path / "test.jsonl")
