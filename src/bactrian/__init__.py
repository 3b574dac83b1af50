"""Bactrian: two agents role-play until a task is solved. Importing this package does no work."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from bactrian._version import __version__

if TYPE_CHECKING:
    from bactrian.analyze.behaviours.own import behaviour
    from bactrian.api.arguments import Critic
    from bactrian.api.evaluation.code import evaluate_humaneval, score_solutions
    from bactrian.api.evaluation.comparison import compare_models, evaluate_agents, extract_solutions
    from bactrian.api.generate import generate, recipe
    from bactrian.api.ingest import import_chats
    from bactrian.api.models import load_model
    from bactrian.api.play import Interrupted, play, stream
    from bactrian.api.report import Report
    from bactrian.api.run import Run, open_run
    from bactrian.errors import BactrianError
    from bactrian.models.scripted import Scripted
    from bactrian.play.endings.own import ending
    from bactrian.play.endings.rules import default_endings
    from bactrian.records.session import Role, Session
    from bactrian.records.turn import Turn

__all__ = [
    "BactrianError",
    "Critic",
    "Interrupted",
    "Report",
    "Role",
    "Run",
    "Scripted",
    "Session",
    "Turn",
    "__version__",
    "behaviour",
    "compare_models",
    "default_endings",
    "ending",
    "evaluate_agents",
    "evaluate_humaneval",
    "extract_solutions",
    "generate",
    "import_chats",
    "load_model",
    "open_run",
    "play",
    "recipe",
    "score_solutions",
    "stream",
]
_HOMES = {
    "BactrianError": "errors",
    "Critic": "api.arguments",
    "Interrupted": "api.play",
    "Report": "api.report",
    "Role": "records.session",
    "Run": "api.run",
    "Scripted": "models.scripted",
    "Session": "records.session",
    "Turn": "records.turn",
    "behaviour": "analyze.behaviours.own",
    "compare_models": "api.evaluation.comparison",
    "default_endings": "play.endings.rules",
    "ending": "play.endings.own",
    "evaluate_agents": "api.evaluation.comparison",
    "evaluate_humaneval": "api.evaluation.code",
    "extract_solutions": "api.evaluation.comparison",
    "generate": "api.generate",
    "import_chats": "api.ingest",
    "load_model": "api.models",
    "open_run": "api.run",
    "play": "api.play",
    "recipe": "api.generate",
    "score_solutions": "api.evaluation.code",
    "stream": "api.play",
}
"""The module of each public name, which is imported when the name is first used."""


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for, so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bactrian.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package. Its functions ``play`` and ``generate`` are named as two of its folders are.

    Importing a folder would put the module in the place of the function: it stays out, and is imported as ever.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
