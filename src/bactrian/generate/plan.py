"""What a run is made from: settled before its first call, and the same until its last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bactrian.errors import InputError
from bactrian.play.setup import RolePlaySetup
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.prompts.pack import Pack, load_pack
from bactrian.recipes.load import find_differences
from bactrian.recipes.schema import Recipe, ToolsSpec, to_critic_settings
from bactrian.recipes.society import Society, SocietyPrompts, load_society
from bactrian.records.session import Role
from bactrian.tables.lineage import to_compact_json


@dataclass(frozen=True, slots=True)
class Plan:
    """Recipe, models and seed."""

    recipe: Recipe
    models: Mapping[str, str]
    """Model name by agent."""
    seed: int | None = None

    @property
    def setup(self) -> RolePlaySetup:
        """What all role-plays of the run have in common. Only for a recipe that role-plays."""
        leaf = self.recipe.role_play
        assert leaf is not None
        critic = self.recipe.critic
        return RolePlaySetup(
            idea="",
            assistant=Role(""),
            user=Role(""),
            models={agent: name for agent, name in self.models.items() if agent != "lister"},
            specify=leaf.specify,
            word_limit=leaf.word_limit,
            plan=leaf.plan,
            protocol=leaf.protocol,
            paper_endings=leaf.endings == "paper",
            max_messages=leaf.max_messages,
            seed=self.seed,
            language=leaf.language,
            preamble=leaf.preamble,
            needs_code=leaf.needs_code,
            critic=critic and to_critic_settings(critic),
            temperatures={
                agent: temperature
                for agent, temperature in (
                    ("assistant", leaf.temperature),
                    ("user", leaf.temperature),
                    ("task_specifier", leaf.specify_temperature),
                )
                if temperature is not None
            },
        )

    def pack(self) -> Pack | None:
        """The prompt pack; None for a recipe that does not role-play. Raises PromptError if it cannot be read."""
        leaf = self.recipe.role_play
        return None if leaf is None else load_pack(leaf.prompts or self.setup.pack)

    def society(self) -> tuple[Society, SocietyPrompts] | None:
        """The society that does the jobs; None if none does. Raises InputError if it cannot be read."""
        leaf = self.recipe.society
        return None if leaf is None else load_society(leaf.file)

    def load_tools(self) -> Mapping[str, ToolsSpec]:
        """What agents may call, by agent. Raises InputError if the society cannot be read."""
        if (loaded := self.society()) is not None:
            return loaded[0].tools
        tools = self.recipe.tools
        return {} if tools is None else {tools.agent: tools}

    def content(self, pack: Pack | None, tools: Mapping[str, Toolbox] = NO_TOOLS) -> dict[str, Any]:
        """All of it, as it is frozen in the run, with the tools that were found."""
        offered = {
            agent: {tool.name: to_compact_json(asdict(tool)) for tool in box.kit.tools}
            for agent, box in tools.items()
        }
        loaded = self.society()
        return {
            **({"tools": offered} if offered else {}),
            "recipe": self.recipe.content(),
            **({"society": loaded[0].model_dump(mode="json", exclude_none=True)} if loaded else {}),
            "prompts": None if pack is None else {"name": pack.name, "hash": pack.hash},
            "models": dict(self.models),
            "seed": self.seed,
        }


def check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Refuse to go on with a run under another plan.

    Raises:
        InputError: with the differences.
    """
    if changed := find_differences(stored, wanted):
        listed = "; ".join(changed[:8]) + (f"; and {len(changed) - 8} more" if len(changed) > 8 else "")
        raise InputError(
            f"The run was begun with another plan: {listed}.",
            where=where,
            next="Use the plan it was begun with, or --fork NEW to begin another run from it.",
        )


def find_same_lists(stored: Mapping[str, Any], wanted: Recipe) -> frozenset[str]:
    """Names of the axes that another run has had in just the same way, those they depend on included."""
    before = {axis["name"]: axis for axis in stored["recipe"]["axes"]}
    same: set[str] = set()
    for axis in wanted.axes:
        unchanged = before.get(axis.name) == axis.model_dump(mode="json", exclude_none=True)
        if unchanged and same.issuperset(axis.per):
            same.add(axis.name)
    return frozenset(same)
