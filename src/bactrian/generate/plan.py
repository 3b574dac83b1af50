"""The plan of a run, fixed before its first call."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.models.seeds import SCHEME
from bactrian.play.endings.own import find_code
from bactrian.play.endings.rules import Rule
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.recipes.load import find_differences
from bactrian.recipes.parameters import SamplingSpec
from bactrian.recipes.schema import Recipe
from bactrian.tables.lineage import to_compact_json

RED_TEAM = "red-team"
"""The mark of a session generated to study misuse."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Recipe, models and seed."""

    recipe: Recipe
    models: Mapping[str, str]
    """Model name by agent."""
    seed: int | None = None
    endings: tuple[Rule, ...] = ()
    """The user's own parameters, in addition to those of the recipe."""
    distrusted: frozenset[str] = frozenset()
    """Model names that come from a file and not from the user. Keys are never sent to an address in such a name."""
    earlier_models: Mapping[str, str] | None = None
    """The models that earlier versions chose for the same request, so that their runs resume; None if the same."""

    @property
    def axis_names(self) -> frozenset[str]:
        """Names of the recipe's axes, or of the columns of its table of jobs."""
        return frozenset(name for axis in self.recipe.axes for name in axis.names)

    @property
    def parameters(self) -> dict[str, tuple[SamplingSpec, ...]]:
        """The recipe's sampling parameters by agent."""
        return self.recipe.parameters.by_agent() if self.recipe.parameters else {}

    @property
    def mark(self) -> str | None:
        """The mark of each session, or None for ordinary sessions."""
        return RED_TEAM if self.recipe.red_team else None

    def content(self, own: Mapping[str, Any], tools: Mapping[str, Toolbox] = NO_TOOLS) -> dict[str, Any]:
        """Return the content that is frozen in the run, with the job kind's ``own`` content and the tools found."""
        offered = {
            agent: {tool.name: to_compact_json(asdict(tool)) for tool in box.kit.tools}
            for agent, box in tools.items()
        }
        return {
            **({"tools": offered} if offered else {}),
            "recipe": self.recipe.content(),
            **own,
            **({"endings": [find_code(rule) for rule in self.endings]} if self.endings else {}),
            "models": dict(self.models),
            "seed": self.seed,
            **({} if self.seed is None else {"seeds": SCHEME}),
        }


def check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Check that a run is resumed under the same plan.

    Raises:
        InputError: the plans differ; the message lists the differences.
    """
    if "seeds" not in stored:  # The run dates from when there was a single seed scheme, and keeps it.
        wanted = {key: value for key, value in wanted.items() if key != "seeds"}
    before, now = (str(plan["recipe"].get("name")) for plan in (stored, wanted))
    if before != now:
        raise InputError(
            f"This run is {before}, and the command is for {now}.",
            where=where,
            next=f"`bactrian resume {shlex.quote(where)}` resumes it; another --run begins a new one.",
        )
    if changed := find_differences(stored, wanted):
        listed = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
        raise InputError(
            f"The run was begun with another plan: {listed}.", where=where, next=_explain_next(changed)
        )


def is_other_limit(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if two contents are the same but for the limit of messages."""
    return stored != wanted and _drop_limit(stored) == _drop_limit(wanted)


def _drop_limit(content: Mapping[str, Any]) -> dict[str, Any]:
    recipe: dict[str, Any] = dict(content.get("recipe", {}))
    for key, value in recipe.items():
        if not isinstance(value, Mapping):
            continue
        table = dict(cast("Mapping[str, Any]", value))
        table.pop("max_messages", None)
        if isinstance(endings := table.get("endings"), str):
            table["endings"] = re.sub(r"max_messages=\d+", "max_messages", endings)
        recipe[key] = table
    return {**content, "recipe": recipe}


def _explain_next(changed: Sequence[str]) -> str:
    if all(".max_messages: " in line for line in changed):
        return (
            "A run continues with a larger limit of messages, never with a smaller one. Use --fork NEW to make its "
            "conversations again."
        )
    return "Use the plan it was begun with, or --fork NEW to begin another run from it."


def find_same_lists(stored: Mapping[str, Any], wanted: Recipe) -> frozenset[str]:
    """Return the axes that are identical in the stored run, as are all axes that they depend on."""
    before = {axis["name"]: _ignore_rule(axis) for axis in stored["recipe"]["axes"]}
    same: set[str] = set()
    for axis in wanted.axes:
        unchanged = before.get(axis.name) == _ignore_rule(axis.model_dump(mode="json", exclude_none=True))
        if unchanged and same.issuperset(axis.per):
            same.add(axis.name)
    return frozenset(same)


def _ignore_rule(axis: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the frozen rule of one question per item, which runs of earlier versions lack."""
    alone = axis.get("each") and axis.get("earlier") == 0
    return {key: value for key, value in axis.items() if not (alone and key == "earlier")}
