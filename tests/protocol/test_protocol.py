"""Reading and writing the inception protocol."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.protocol.markers import (
    DONE,
    find_instruction,
    is_done,
    read_instruction,
    read_solution,
    write_instruction,
    write_solution,
)
from bactrian.records.turn import Instruction, Solution
from tests.helpers.texts import CHARACTERS

MARKERS = ("Instruction:", "Input:", "Solution:", "Next request", "```", "~~~", DONE)


def says_something(text: str) -> bool:
    return any(character.isalnum() for character in text) and text == text.strip()


plain = (
    st.text(CHARACTERS, min_size=1)
    .filter(says_something)
    .filter(lambda text: not any(m in text for m in MARKERS))
)


@settings(max_examples=30)
@given(plain, plain.filter(lambda text: text.lower().strip(". ") not in ("none", "n/a")))
def test_an_instruction_is_read_as_it_was_written(instruction: str, given_input: str) -> None:
    assert read_instruction(write_instruction(instruction, given_input)) == Instruction(
        instruction, given_input
    )
    assert read_instruction(write_instruction(instruction)) == Instruction(instruction)


@given(plain)
def test_a_solution_is_read_as_it_was_written(solution: str) -> None:
    assert read_solution(write_solution(solution)) == Solution(solution, asks_next=True)


@given(st.text(CHARACTERS) | st.lists(st.sampled_from([*MARKERS, "\n", " ", "x"])).map("".join))
def test_any_text_can_be_read(text: str) -> None:
    for read in (read_instruction, read_solution, is_done, find_instruction):
        assert read(text) is not ...
    assert not (is_done(text) and read_instruction(text))


@given(st.text(alphabet=" \t\n"), st.text(alphabet=" \t\n"))
def test_the_done_token_alone_is_done_in_any_white_space(before: str, after: str) -> None:
    assert is_done(before + DONE + after)


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("Great work, we are through. <CAMEL_TASK_DONE>", True),
        ("**<CAMEL_TASK_DONE>**", True),
        ("“<CAMEL_TASK_DONE>”", True),
        ("„<CAMEL_TASK_DONE>“.", True),
        ("«\u00a0<CAMEL_TASK_DONE>\u00a0»", True),
        ("The word is “<CAMEL_TASK_DONE>”", False),
        ("I will say <CAMEL_TASK_DONE> when we are through.", False),
        ("Instruction: Say <CAMEL_TASK_DONE>\nInput: None", False),
        ("Instruction: One more thing.\nInput: None\n<CAMEL_TASK_DONE>", False),
        ("<CAMEL_TASK_DONE> Thank you, goodbye!", True),
        ("Great. <CAMEL_TASK_DONE> Thanks for all your help.", True),
        ("We are through, <CAMEL_TASK_DONE>, thank you.", True),
        ("Instruction: <CAMEL_TASK_DONE>\nInput: None", True),
        ("Instruction: <CAMEL_TASK_DONE> Thank you!\nInput: None", True),
        ("The last word is `<CAMEL_TASK_DONE>` then.", False),
        ('You read "<CAMEL_TASK_DONE>" in the rules.', False),
        ("> <CAMEL_TASK_DONE>\nIs that the word?", False),
        ("```\n<CAMEL_TASK_DONE>\n```\nThat is the word.", False),
        ("Do not write <CAMEL_TASK_DONE> yet.", False),
        ("CAMEL_TASK_DONE", False),
        ("", False),
    ],
)
def test_the_done_token_counts_in_a_turn_without_instruction_where_it_is_no_quotation(
    text: str, done: bool
) -> None:
    assert is_done(text) is done


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Instruction: Add a test. Input: None", Instruction("Add a test.")),
        ("**Instruction:** Add a test.\n**Input:** n/a", Instruction("Add a test.")),
        ("Good.\nInstruction: Add a test.", Instruction("Add a test.", None, "Good.")),
        ("Good. Instruction: Add it.\nInput: x = 1", Instruction("Add it.", "x = 1", "Good.")),
        ("Instruction: Run\n```\nInput: 3\n```\nInput: 4", Instruction("Run\n```\nInput: 3\n```", "4")),
        ("Follow my instruction now.", None),
        ("Instruction: <CAMEL_TASK_DONE>", None),
        ("Instruction:\nInput: None", None),
        ("```\nInstruction: quoted\n```", None),
    ],
)
def test_an_instruction_is_found_however_a_model_dresses_it(text: str, read: Instruction | None) -> None:
    assert read_instruction(text) == read


@pytest.mark.parametrize(
    ("text", "flips"),
    [
        ("Solution: done.\nInstruction: now you", True),
        ("  **Instruction:** now you", True),
        ("Solution: as your Instruction: said, done.", False),
        ("Solution: quoted\n```\nInstruction: x\n```\nNext request.", False),
        ("Solution: ```\nInstruction: x\n```\nNext request.", False),
        ("Solution: ```\nx\n```\nInstruction: now you", True),
    ],
)
def test_a_role_flip_is_a_line_that_begins_with_an_instruction(text: str, flips: bool) -> None:
    assert (find_instruction(text) is not None) is flips


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Instruction：写一个函数。\nInput：无", None),
        ("**Instruction**: Write it.\n**Input**: None", None),
        ("Instruction 2: Write it.\nInput: None", None),
        ("OK, Instruction: Write it.\nInput: None", None),
        ("Anweisung: Schreib es auf.\nEingabe: keine", "German"),
        ("指令：写一个函数。\n输入：无", "zh"),
        ("指示：関数を書く。\n入力：なし", "Japanese"),
        ("Instrucción: Escríbelo.\nEntrada: Ninguna", "Spanish (Mexico)"),
        ("Instruction : Écris-le.\nEntrée : aucune", "français"),
        ("التعليمات: اكتب دالة.\nالمدخلات: لا يوجد", "ar"),
        ("निर्देश: इसे लिखें।\nइनपुट: कोई नहीं", "Hindi"),
        ("Istruzione: Scrivilo.\nInput: nessuno", "it"),
        ("지시: 함수를 쓰세요.\n입력: 없음", "Korean"),
        ("Инструкция: Напиши это.\nВвод: нет", "ru"),
    ],
)
def test_what_is_an_instruction_of_the_user_is_a_flip_of_the_assistant(
    text: str, language: str | None
) -> None:
    read = read_instruction(text, language)
    assert read is not None
    assert read.input is None
    assert find_instruction(text, language)
    assert not is_done(f"{text}\n{DONE}", language)


def test_another_languages_marker_is_an_ordinary_word() -> None:
    assert read_instruction("Anweisung: Schreib es auf.") is None
    assert not find_instruction("Anweisung: Schreib es auf.", "French")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Solution：完成了。\nNext request。", None),
        ("Solution&Action:\n完成了。\nNext request.", None),  # CAMEL's agents that have tools
        ("**Solution & Action**: 完成了。\nNext request.", None),
        ("Lösung: Fertig.\nNächste Anfrage.", "German"),
        ("解决方案：完成了。\n下一个请求。", "Chinese"),
    ],
)
def test_a_solution_is_read_in_the_sessions_language(text: str, language: str | None) -> None:
    read = read_solution(text, language)
    assert read is not None
    assert read.asks_next
    assert read.solution in ("完成了。", "Fertig.")
