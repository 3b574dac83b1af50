"""The paper's figures that an evaluation is shown beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One row of a table of the paper, in percent of its tasks or votes."""

    table: str
    data: str
    """Name of the recipe of its tasks."""
    judge: str
    other: str
    """The way of solving that CAMEL is compared with."""
    draw: float
    loss: float
    """Wins of the other way."""
    win: float
    """Wins of CAMEL."""

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON content."""
        return asdict(self)


FIGURES = (
    PaperFigure("Table 1", "ai-society", "people", "single_shot", 13.3, 10.4, 76.3),
    PaperFigure("Table 1", "ai-society", "GPT-4", "single_shot", 4.0, 23.0, 73.0),
    PaperFigure("Table 1", "code", "GPT-4", "single_shot", 0.0, 24.0, 76.0),
    PaperFigure("Table 8", "ai-society", "GPT-4", "chain_of_thought", 4.0, 28.0, 68.0),
    PaperFigure("Table 9", "ai-society", "GPT-4", "against", 0.0, 25.0, 75.0),
)
"""Tables 1, 8 and 9. The other way of table 9 are role-plays with ablated prompts (``--against``, pack ``ablated``)."""


def find_figures(pair: tuple[str, str], recipe: str, *, people: bool = False) -> Sequence[PaperFigure]:
    """Return the rows to compare with a pair of ways; for another recipe than the paper's, all with that pair."""
    if pair[0] != "extraction":
        return ()
    beside = [one for one in FIGURES if one.other == pair[1] and (one.judge == "people") == people]
    return [one for one in beside if one.data == recipe] or beside
