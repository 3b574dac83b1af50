"""What a person sees of a conversation while it is being said."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bactrian.cli.view.conversation import ConversationView
from bactrian.records.events import Spoke, Started
from tests.helpers.runs import session, turn

WIDTH = 20
SAID = "Solution: ab cd efgh ij klmnop qrst uvw xy.\nNext request."


@pytest.mark.parametrize("size", [1, 3, len(SAID)])
def test_a_line_that_fills_the_width_is_followed_by_no_empty_one(size: int) -> None:
    seen = io.StringIO()
    out = Console(
        file=seen, force_terminal=True, color_system=None, width=WIDTH, soft_wrap=True, markup=False
    )
    screen = ConversationView(out, Console(file=io.StringIO()))
    screen.show(Started(session(texts=[])))
    for start in range(0, len(SAID), size):
        screen.hear("assistant", SAID[start : start + size])
    screen.show(Spoke(turn(2, SAID)))
    lines = seen.getvalue().partition("(AI assistant)\n")[2].splitlines()
    assert lines[:4] == ["Solution: ab cd efgh", "ij klmnop qrst uvw ", "xy.", "Next request."]
