"""Tables: a pipe gets each row as one line, a terminal wraps them to its width."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.table import Table

from bactrian.cli.commands.catalog import prompts
from bactrian.cli.terminal.console import PrintableConsole
from bactrian.protocol.pack import list_packs, load_pack

LONG = "a model whose name has more words than a line of eighty columns can show beside its numbers, by far"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_the_list_of_prompt_packs_has_one_line_for_each_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    prompts()
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == [*list_packs()]
    assert all(load_pack(name).description in row for name, row in zip(list_packs(), rows, strict=True))


def test_a_table_fits_the_terminal() -> None:
    table = Table("name", "text", box=None)
    table.add_row("one", LONG)
    file = Terminal()
    PrintableConsole(file=file, width=40, color_system=None, soft_wrap=True).print_table(table)
    assert max(map(len, file.getvalue().splitlines())) <= 40


def test_rows_are_whole_in_a_pipe_with_forced_colours() -> None:
    table = Table("name", "text", box=None)
    table.add_row("one", LONG)
    file = StringIO()
    PrintableConsole(file=file, width=40, force_terminal=True, soft_wrap=True).print_table(table)
    assert LONG in file.getvalue()
