"""Progress and results of ``bactrian evaluate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bactrian.cli.terminal.console import open_progress, say
from bactrian.evaluate.code_judge import KINDS, Verdict
from bactrian.evaluate.code_scoring import PassAtK, Score
from bactrian.records.text import write_count


class JudgingView:
    """Shows how many solutions have been judged, and how many pass. Only on a terminal.

    Its context gives the function that counts a verdict.
    """

    def __init__(self, total: int, *, quiet: bool) -> None:
        columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        console = open_progress()
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal
        )
        self._task = self._progress.add_task("", total=total)
        self._passed = 0

    def __enter__(self) -> Callable[[Verdict], None]:
        self._progress.start()
        return self.add

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def add(self, verdict: Verdict) -> None:
        """Count a verdict. Called by several threads."""
        self._passed += verdict.passed
        self._progress.update(self._task, advance=1, description=f"{self._passed} passed")


def show_score(score: Score, verdicts: Path) -> None:
    """Print a score: pass@k with intervals, and the kinds of failures."""
    print(f"{write_count(score.problems, 'problem')}, {write_count(score.samples, 'sample')}")
    for one in score.passes:
        print(_describe(one))
    for name, passes in score.by_temperature.items():
        for one in passes:
            print(f"  temperature {name}: {_describe(one)}")
    for kind, count in score.kinds.items():
        print(f"{count:>7}  {kind:<12} {KINDS[kind]}")  # type: ignore[index]
    if score.left_out:
        named = ", ".join(f"pass@{k}" for k in score.left_out)
        say(f"{named}: not estimated, since a problem has fewer samples than k.")
    if score.missing:
        say(
            f"{write_count(score.missing, 'sample')} missing: the same command resumes; --retry-failed asks again."
        )
    say(f"Verdicts: {verdicts}")


def _describe(one: PassAtK) -> str:
    return f"pass@{one.k:<4} {one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"
