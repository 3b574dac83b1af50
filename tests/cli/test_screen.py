"""What a person sees of a conversation while it is being said."""

from __future__ import annotations

import io
import sys
import time

import pytest
from rich.cells import cell_len
from rich.console import Console

from bactrian.analyze.report_tables import write_table
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import PrintableConsole, write_labelled
from bactrian.cli.view.conversation_view import ConversationView, hide_protocol, make_markdown, split_blocks
from bactrian.records.events import Spoke, Started
from tests.helpers.runs import session, turn

WIDTH = 20
REPLY = "Solution: ab cd efgh ij klmnop qrst uvw xy.\nNext request."


@pytest.mark.parametrize("size", [1, 3, len(REPLY)])
def test_a_line_that_fills_the_width_is_followed_by_no_empty_one(size: int) -> None:
    seen = io.StringIO()
    out = Console(
        file=seen, force_terminal=True, color_system=None, width=WIDTH, soft_wrap=True, markup=False
    )
    screen = ConversationView(out, Console(file=io.StringIO()), raw=True)
    screen.show(Started(session(texts=[])))
    for start in range(0, len(REPLY), size):
        screen.hear("assistant", REPLY[start : start + size])
    screen.show(Spoke(turn(2, REPLY)))
    lines = seen.getvalue().partition("(AI assistant)\n")[2].splitlines()
    assert lines[:4] == ["Solution: ab cd efgh", "ij klmnop qrst uvw ", "xy.", "Next request."]


def test_a_long_idea_is_a_short_paragraph_beside_its_label() -> None:
    seen = io.StringIO()
    out = Console(file=seen, force_terminal=True, color_system=None, width=40, markup=False)
    ConversationView(out, out).show(Started(session(texts=[], task="Plan tea. " * 500)))
    lines = [line.rstrip() for line in seen.getvalue().splitlines()]
    idea = lines[1 : next(number for number, line in enumerate(lines) if line.startswith("task "))]
    assert idea[0].startswith("idea Plan tea.")
    assert all(line.startswith("     ") for line in idea[1:])
    assert len(idea) < 25
    assert "… (5,000 characters)" in " ".join(" ".join(idea).split())


@pytest.mark.parametrize("width", [20, 41, 80])
def test_no_line_is_wider_than_the_terminal_in_any_script(width: int) -> None:
    text = "Solution: " + "漢字かな交じり文" * 9 + " 👩🏽‍🚀" * 15 + " e\u0301" * 40 + "\nNext request."
    lines = split_screen(text, width)
    assert max(map(cell_len, lines)) <= width


def split_screen(text: str, width: int) -> list[str]:
    seen = io.StringIO()
    Console(file=seen, color_system=None, width=width).print(make_markdown(hide_protocol(text)))
    return [line.rstrip() for line in seen.getvalue().splitlines()]


def test_the_words_of_the_protocol_are_hidden() -> None:
    assert hide_protocol("Instruction: Name **one**.\nInput: None") == "Name **one**."
    assert hide_protocol("Instruction: Sort it.\nInput: [3, 1]") == "Sort it.\nInput: [3, 1]"
    assert hide_protocol("Solution: Sencha.\n\nNext request.") == "Sencha."
    assert hide_protocol("Lösung: Sencha.\nNächste Anfrage.") == "Sencha."


def test_tags_and_line_breaks_survive_markdown() -> None:
    assert split_screen("Use <b> here.\nThen `a < b`.", 40) == ["Use <b> here.", "Then a < b."]


def test_a_block_of_code_is_never_divided() -> None:
    code = "Look:\n\n```python\na = 1\n\nb = 2\n"
    assert split_blocks(code) == ("Look:\n\n", "```python\na = 1\n\nb = 2\n")
    assert split_blocks(code + "```\n\nDone") == (code + "```\n\n", "Done")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def write_on(width: int, text: str) -> list[str]:
    seen = Terminal()
    PrintableConsole(file=seen, color_system=None, width=width, soft_wrap=True, markup=False).say(text)
    return seen.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_notes_break_between_words_and_leave_the_command_whole(width: int) -> None:
    command = f"bactrian resume {'long-' * 30}name 3f9a --max-messages 80"
    prose = "The conversation reached its limit of 40 messages, which is normal. To continue it:"
    *lines, last = write_on(width, f"{prose} {command}")
    assert last == f"  {command}"
    assert " ".join(lines) == prose
    assert max(map(cell_len, lines)) <= width


def test_a_command_between_backticks_is_never_divided() -> None:
    lines = write_on(24, "It makes many more, as `bactrian generate math` does, and so on.")
    assert any("`bactrian generate math`" in line for line in lines)


def test_notes_stay_on_one_line_where_no_person_reads_them() -> None:
    seen = io.StringIO()
    text = f"{'word ' * 60}To resume: bactrian resume a.db"
    PrintableConsole(file=seen, soft_wrap=True, markup=False).say(text)
    assert seen.getvalue() == f"{text}\n"


def test_facts_go_on_below_themselves() -> None:
    seen = Terminal()
    console = PrintableConsole(file=seen, color_system=None, width=30, soft_wrap=True, markup=False)
    write_labelled(
        console, [("cost", "$0.0134 so far (72,000 prompt tokens)"), ("go on", "bactrian resume a.db")], 8
    )
    assert seen.getvalue().splitlines() == [
        "cost    $0.0134 so far (72,000",
        "        prompt tokens)",
        "go on",
        "  bactrian resume a.db",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_table_of_numbers_is_never_broken_within_a_number(width: int) -> None:
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, color_system=None, width=width, markup=False)
    heads = (
        "assistant role",
        "sessions",
        "cooperation failed (95 %)",
        "of assistant's turns",
        "task done (95 %)",
    )
    write_table(console, heads, [("Chef", "4", "0.0% (0.0–49.0)", "12.5% (0.0–49.0)", "25.0% (4.6–69.9)")])
    lines = seen.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    for text in ("Chef", "(0.0–49.0)", "12.5%", "(4.6–69.9)"):
        assert any(text in line for line in lines)


def test_a_table_in_a_pipe_is_as_wide_as_it_must_be() -> None:
    seen = io.StringIO()
    write_table(
        PrintableConsole(file=seen, width=20), ("", "Draw", "A long name wins"), [("judge", "10", "90")]
    )
    assert "A long name wins" in seen.getvalue()


@pytest.mark.parametrize("quiet", [True, False])
def test_a_bar_is_drawn_on_a_terminal_and_not_if_it_is_to_be_quiet(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    with show_bar("Exporting", "sessions", quiet=quiet) as tell:
        tell(3, 8)
        time.sleep(0.15)
    assert ("3 of 8" in seen.getvalue()) is not quiet


def test_short_work_writes_nothing_where_no_person_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with show_bar("Exporting", "sessions") as tell:
        tell(3, 8)
    assert capfd.readouterr().err == ""
