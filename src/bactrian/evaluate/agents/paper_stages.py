"""Table 2 of the paper: one stage of a training beside another, on sets of questions, judged by GPT-4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bactrian.evaluate.agents.paper import PaperFigure

STAGES = ("base", "ai-society", "code", "math", "science")
"""The stages of the paper; each adds its data to those before."""
PAPER_NAMES: Mapping[str, str] = {
    "base": "LLaMA-7B",
    "ai-society": "+ AI Society",
    "code": "+ Code",
    "math": "+ Math",
    "science": "+ Science",
}


@dataclass(frozen=True, slots=True)
class StageFigure:
    """One cell of table 2: how many questions each of two stages won."""

    first: str
    second: str
    questions: str
    """Name of the set."""
    draw: int
    first_wins: int
    second_wins: int

    @property
    def total(self) -> int:
        """Questions of the set."""
        return self.draw + self.first_wins + self.second_wins

    def to_figure(self) -> PaperFigure:
        """Return the cell as a row of a comparison, in percent."""
        draw, loss, win = (
            round(100 * count / self.total, 1) for count in (self.draw, self.second_wins, self.first_wins)
        )
        data = f"{PAPER_NAMES[self.first]}, {PAPER_NAMES[self.second]}"
        return PaperFigure("Table 2", data, "GPT-4", self.second, draw, loss, win)


_SETS = ("ai-society", "code", "math", "science")
_COUNTS: Mapping[tuple[str, str], Sequence[tuple[int, int, int]]] = {
    ("base", "ai-society"): ((0, 6, 14), (0, 0, 20), (9, 5, 6), (0, 13, 47)),
    ("ai-society", "code"): ((4, 8, 8), (1, 9, 10), (5, 8, 7), (1, 19, 40)),
    ("code", "math"): ((5, 6, 9), (1, 9, 10), (1, 3, 16), (3, 8, 49)),
    ("math", "science"): ((3, 1, 16), (1, 8, 11), (10, 5, 5), (9, 2, 49)),
    ("base", "science"): ((0, 0, 20), (0, 0, 20), (0, 0, 20), (0, 0, 60)),
}
TABLE_2 = tuple(
    StageFigure(*pair, questions, *counts)
    for pair, row in _COUNTS.items()
    for questions, counts in zip(_SETS, row, strict=True)
)
"""Draws, wins of the first and wins of the second stage, of 20 questions, and of 60 of science."""


def find_stage_figures(pair: tuple[str, str], questions: str) -> Sequence[PaperFigure]:
    """Return the row of table 2 for a pair of stages; for any two other models, all rows of the set."""
    rows = [one for one in TABLE_2 if one.questions == questions]
    exact = [one for one in rows if (one.first, one.second) == pair]
    return [one.to_figure() for one in exact or (rows if pair == ("first", "second") else ())]
