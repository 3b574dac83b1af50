"""Bactrian: two agents role-play until a task is solved. Importing this package does no work."""

from importlib import import_module
from typing import TYPE_CHECKING

from bactrian._version import __version__

if TYPE_CHECKING:
    from bactrian.analyze.behaviours import behaviour
    from bactrian.api.code_evaluation import evaluate_humaneval, score_solutions
    from bactrian.api.conversation import Interrupted, play, stream
    from bactrian.api.dataset import generate, recipe
    from bactrian.api.model_arguments import load_model
    from bactrian.api.run_report import Report
    from bactrian.api.solution_comparison import compare_models, evaluate_agents, extract_solutions
    from bactrian.api.stored_run import Run, import_chats, open_run
    from bactrian.errors import BactrianError
    from bactrian.models.scripted import Scripted
    from bactrian.options import Critic
    from bactrian.records.session import Role, Session
    from bactrian.records.turn import Turn
    from bactrian.roleplay.endings import default_endings, ending

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
    "Critic": "options",
    "Interrupted": "api.conversation",
    "Report": "api.run_report",
    "Role": "records.session",
    "Run": "api.stored_run",
    "Scripted": "models.scripted",
    "Session": "records.session",
    "Turn": "records.turn",
    "behaviour": "analyze.behaviours",
    "compare_models": "api.solution_comparison",
    "default_endings": "roleplay.endings",
    "ending": "roleplay.endings",
    "evaluate_agents": "api.solution_comparison",
    "evaluate_humaneval": "api.code_evaluation",
    "extract_solutions": "api.solution_comparison",
    "generate": "api.dataset",
    "import_chats": "api.stored_run",
    "load_model": "api.model_arguments",
    "open_run": "api.stored_run",
    "play": "api.conversation",
    "recipe": "api.dataset",
    "score_solutions": "api.code_evaluation",
    "stream": "api.conversation",
}
"""The module of each public name, which is imported when the name is first used."""


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for, so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bactrian.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
