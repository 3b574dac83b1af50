"""``bactrian models``: what can be copied from the list is never divided."""

from __future__ import annotations

from io import StringIO

import pytest

from bactrian.cli.commands.catalog import write_providers
from bactrian.cli.terminal.console import PrintableConsole
from bactrian.models.providers import load_providers

ROWS = list(load_providers().values())


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(file: StringIO, width: int) -> list[str]:
    write_providers(PrintableConsole(file=file, width=width, color_system=None, soft_wrap=True), ROWS)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_addresses_names_and_variables_are_whole_at_any_width(width: int) -> None:
    words = {word for line in lines_of(Terminal(), width) for word in line.split()}
    for row in ROWS:
        assert {row.name, row.key or row.name, row.address or row.name} <= words


def test_a_terminal_of_eighty_columns_has_room_for_every_line() -> None:
    assert max(map(len, lines_of(Terminal(), 80))) <= 80


def test_a_pipe_gets_a_line_for_each_provider_at_any_width() -> None:
    piped = lines_of(StringIO(), 40)
    assert [line.split()[0] for line in piped[1:]] == [row.name for row in ROWS]
    assert len({line.index("http") for line in piped if "http" in line}) == 1
