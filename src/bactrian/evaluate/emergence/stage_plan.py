"""Plans the comparison of a training's stages: the pairs to compare, and the recipe of their answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bactrian.errors import InputError
from bactrian.evaluate.agents.drawing import build_solution_recipe
from bactrian.evaluate.agents.paper_stages import PAPER_NAMES, STAGES
from bactrian.evaluate.agents.solution_jobs import Solutions
from bactrian.models.local.identity import identify_weights
from bactrian.models.registry import ModelOptions, open_model
from bactrian.recipes.schema import Recipe

_NAMED = re.compile(r"([a-z0-9][a-z0-9-]{0,63})=(.+)", re.S)


@dataclass(frozen=True, slots=True)
class StageModel:
    """A stage of a training, as a model that can be asked."""

    name: str
    model: str
    """As ``--model`` names it."""

    @property
    def title(self) -> str:
        """What a report calls it."""
        return "Base" if self.name == "base" else PAPER_NAMES.get(self.name, f"+ {self.name}")


def read_stages(given: Sequence[str], options: ModelOptions) -> tuple[StageModel, ...]:
    """Return the stages that a user gives as ``MODEL`` or ``NAME=MODEL``, the base first.

    Stages without a name are called as those of the paper, in their order.

    Raises:
        InputError: there are fewer than two, two have one name, or one is not a model.
    """
    stages: list[StageModel] = []
    for number, text in enumerate(given):
        named = _NAMED.fullmatch(text)
        usual = STAGES[number] if number < len(STAGES) else f"stage-{number}"
        stages.append(StageModel(named[1], named[2]) if named else StageModel(usual, text))
    names = [stage.name for stage in stages]
    if len(names) < 2 or len(set(names)) < len(names):
        few = "One stage alone adds nothing." if names else "There is nothing to ask."
        problem = "Two stages have one name." if len(names) > 1 else few
        raise InputError(
            problem,
            where="STAGES",
            next=f"Give the base and the stages after it, in order, as MODEL or NAME=MODEL; or --known-answers. "
            f"Usual names: {', '.join(STAGES)}.",
        )
    for stage in stages:
        open_model(stage.model, options)
    return tuple(stages)


def pair_stages(stages: Sequence[StageModel]) -> list[tuple[str, str]]:
    """Return the pairs of table 2: each stage with the one before, and the last one with the base."""
    names = [stage.name for stage in stages]
    pairs = list(pairwise(names))
    return pairs if len(names) == 2 else [*pairs, (names[0], names[-1])]


def build_stage_recipe(
    stages: Sequence[StageModel], question_set: str, questions: Sequence[str], max_tokens: int
) -> Recipe:
    """Return the recipe in which each stage answers each question, in at most ``max_tokens`` tokens.

    Raises:
        InputError: the weights of a local model cannot be read.
    """
    weights = {stage.name: found for stage in stages if (found := identify_weights(stage.model))}
    spec = Solutions(
        ways=tuple(stage.name for stage in stages),
        titles={stage.name: stage.title for stage in stages},
        weights=weights or None,
        question_set=question_set,
        task_label="question",
        max_tokens=max_tokens,
    )
    return build_solution_recipe(questions, spec)
