"""What a person sees of a run while it is made."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from bactrian.api.progress_rows import write_line
from bactrian.cli.terminal.console import fit_facts
from bactrian.cli.view.progress_view import choose_progress_view, draw_progress
from bactrian.models.budget import UsageMeter
from bactrian.records.turn import Usage
from bactrian.runs.admission import Admission
from bactrian.runs.cost import Estimate, Outlook, SessionPrior
from bactrian.runs.progress import ProgressSnapshot, RunProgress, ShortList


def snapshot(**more: object) -> ProgressSnapshot:
    usual: dict[str, object] = {
        "total": 400,
        "done": 142,
        "failed": 2,
        "in_flight": 64,
        "endings": {"task_done": 120, "max_messages": 20, "failed": 2},
        "calls": 3021,
        "failed_calls": 3,
        "usage": Usage(1_250_000, 98_000, 600_000),
        "usd": 0.18,
        "run_usage": Usage(1_300_000, 100_000, 650_000),
        "run_usd": 0.1834,
        "seconds": 252.0,
        "calls_per_second": 12.1,
        "tokens_per_second": 4800.0,
        "seconds_left": 431.0,
        "closed_for": 0.0,
        "silent": False,
        "limit": 64,
        "changes": (),
        "max_usd": 0.5,
        "usd_expected": Estimate(0.49, 0.46, 0.52),
        "share_done": 0.41,
        "last": "task_done after 18 messages: 厨师 · Student · Bake bread",
    }
    return ProgressSnapshot(**(usual | more))  # type: ignore[arg-type]


def draw(now: ProgressSnapshot, width: int) -> list[str]:
    seen = io.StringIO()
    console = Console(file=seen, width=width, color_system=None, force_terminal=True, legacy_windows=False)
    console.print(draw_progress(now, width))
    return seen.getvalue().splitlines()


def test_only_conversations_that_the_budget_holds_up_are_called_paused() -> None:
    # Those that were stopped by Ctrl-C are open, too.
    assert not [line for line in draw(snapshot(open=6), 80) if "paused" in line]
    (line,) = [line for line in draw(snapshot(open=6, paused=2), 80) if "paused" in line]
    assert "2 conversations, until the budget pays for them" in line


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_display_fits_its_terminal_and_breaks_no_fact(width: int) -> None:
    lines = draw(snapshot(), width)
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    text = "\n".join(lines)
    for fact in (
        "142 of 400",
        "41 %",
        "about 7 min 10 s left",
        "$0.18 of $0.50",
        "1,300,000 prompt (50 % cached)",
        "task_done 120",
        "2 conversations",
    ):
        assert fact in text


def test_the_time_left_is_a_range_while_nobody_has_seen_how_long_conversations_are() -> None:
    assert "about 7 min 10 s left" in "\n".join(draw(snapshot(share_done=0.1), 120))
    early = "\n".join(draw(snapshot(share_done=0.05), 120))
    assert "3 min 40 s to 14 min left" in early


def test_a_price_that_is_not_known_is_no_zero() -> None:
    text = "\n".join(draw(snapshot(usd=None, run_usd=None, unpriced=("openai:any",), max_usd=None), 80))
    assert "unknown (no price of openai:any)" in text
    assert "$" not in text


def test_a_run_that_costs_nothing_says_nothing_of_money() -> None:
    now = snapshot(usd=0.0, run_usd=0.0, free=True, max_usd=None, usd_expected=Estimate(0, 0, 0))
    assert "$" not in write_line(now)


def test_a_budget_that_ends_the_run_says_for_how_many_it_is_enough() -> None:
    now = snapshot(usd_expected=Estimate(2.0, 1.8, 2.2), affordable=100)
    assert "enough for about 100 of 400" in write_line(now)


def test_a_long_fact_is_cut_at_the_width() -> None:
    assert fit_facts(["abc", "d" * 20], 10) == ["abc", "d" * 9 + "…"]
    assert [cell_len(line) for line in fit_facts(["厨" * 20], 9)] == [9]


def make_progress() -> RunProgress:
    """The progress of a run of three conversations that have all ended."""
    size, meter = Estimate(4, 2, 6), UsageMeter(unpriced={"m"})
    outlook = Outlook(SessionPrior(turns=size, prompt=size, completion=size))
    return RunProgress(meter, 3, admission=Admission(meter, outlook), done=3)


def test_a_step_of_a_longer_command_does_not_say_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    progress = make_progress()
    for noun, next_ in (("", True), ("task", False)):
        choose_progress_view(json=False, noun=noun).close(progress, tmp_path / "a" / "run.db")
        output, notes = capsys.readouterr()
        assert f"a/run.db: 3 of 3 {noun or 'conversation'}s" in output
        assert ("bactrian analyze" in notes) == next_


def test_lists_that_stayed_short_are_not_told_as_failures(capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress()
    progress.short["task@001"] = ShortList(4, 10, "No new items.")
    choose_progress_view(json=False).close(progress, Path("run.db"))
    notes = capsys.readouterr().err
    assert "0 failed" not in notes
    assert "--retry-failed asks for the rest of short lists." in notes
