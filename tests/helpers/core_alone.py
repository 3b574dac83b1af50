"""A program that uses the core and nothing else of the package; :mod:`tests.test_core` starts it in a copy.

It imports every module of the core, plays a session and carries out a run.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import sys
from pathlib import Path

from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.protocol.markers import DONE
from bactrian.recipes.load import load_recipe
from bactrian.runs.kinds import choose_models, make_plan
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run
from bactrian.store import open_store
from tests.helpers.scenes import played, rounds, scene, script

RECIPE = """
name = "tea"
[[axes]]
name = "idea"
count = 2
given = ["Boil", "Pour"]
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
max_messages = 4
"""
CORE = ("records", "protocol", "roleplay", "models", "store", "runs")


def import_core() -> None:
    for name in CORE:
        package = importlib.import_module(f"bactrian.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


async def run_recipe(folder: Path) -> list[int]:
    """The numbers of turns of the sessions of a run."""
    (folder / "tea.toml").write_text(RECIPE)
    Path("turns.json").write_text(json.dumps(rounds(4)))
    recipe = load_recipe(str(folder / "tea.toml"))
    plan = make_plan(recipe, choose_models(recipe, "scripted:turns.json", {}))
    meter = UsageMeter(None, None, {})
    order = RunOrder(plan, folder / "run.db", ModelOptions(), meter, RunLimits(), limit=2)
    async with prepare_run(order) as work:
        await work.run()
    async with open_store(folder / "run.db", read_only=True) as store:
        return [len(session.turns) async for session in store.sessions()]


async def main() -> None:
    turns, ending = await played(scene(script(*rounds(2), DONE)))
    sys.stdout.write(f"{len(turns)} {ending.code} {await run_recipe(Path(sys.argv[1]))}\n")


if __name__ == "__main__":
    import_core()
    asyncio.run(main())
