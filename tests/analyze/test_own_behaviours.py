"""Behaviours of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bactrian.analyze.aggregate import measure
from bactrian.analyze.behaviours import behaviour, find_behaviours, read_behaviours
from bactrian.analyze.report import build_report, compare_reports
from bactrian.analyze.report_page import render_report
from bactrian.api.status import describe_usage
from bactrian.errors import InputError
from bactrian.records.run import BEHAVIOURS, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Turn
from bactrian.store import open_store
from tests.helpers.runs import make_run
from tests.helpers.runs import session as conversation


@behaviour("The assistant says dial.")
def says_dial(turn: Turn) -> str | None:
    return "dial" if turn.speaker == "assistant" and "dial" in turn.text else None


class Odd:
    """The session has an odd number of turns."""

    code = "odd_session"

    def detect(self, session: Session) -> Iterator[Finding]:
        if len(session.turns) % 2:
            yield Finding(session.id, len(session.turns), self.code, 0.9, "")


async def test_a_report_counts_them_beside_the_built_in_ones(tmp_path: Path) -> None:
    run = await make_run(
        tmp_path / "run.db", [conversation("1"), conversation("2", rounds=3, code="max_messages")]
    )
    own = read_behaviours([says_dial, Odd(), "role_flip"])
    async with open_store(run, read_only=True) as store:
        whole = await measure(store, custom=own, processes=1)
        report = build_report("run", whole, await describe_usage(store))
    assert list(report["behaviours"]) == [*BEHAVIOURS, "says_dial", "odd_session"]
    shown = {code: of["sessions"] for code, of in report["behaviours"].items() if code not in BEHAVIOURS}
    assert shown == {"says_dial": 2, "odd_session": 1}
    assert "says_dial" in compare_reports(whole, whole)["behaviours"]
    assert "odd_session" in render_report([report], [])


def test_a_finding_quotes_the_words_that_the_function_returned() -> None:
    found = find_behaviours(conversation("1"), (), custom=(says_dial,))
    assert [(finding.turn, finding.quote) for finding in found] == [(2, "dial"), (4, "dial")]


def test_a_function_that_fails_is_named_with_its_session() -> None:
    @behaviour("Fails.")
    def broken(turn: Turn) -> bool:
        return bool(1 / 0)

    with pytest.raises(InputError, match="'broken' failed in session 1: ZeroDivisionError"):
        find_behaviours(conversation("1"), (), custom=(broken,))


def test_a_built_in_code_is_taken_and_an_unknown_one_is_named() -> None:
    with pytest.raises(InputError, match="'role_flip' is the code of a built-in"):
        behaviour("Mine.", code="role_flip")(lambda turn: True)
    with pytest.raises(InputError, match="no behaviour 'role_flop'.*role_flip"):
        read_behaviours(["role_flop"])
