"""Bactrian: two agents role-play until a task is solved. Importing this package does no work."""

from bactrian._version import __version__ as __version__

TYPE_CHECKING = False  # True for type checkers; to import it from typing would take ten times as long.
if TYPE_CHECKING:
    from bactrian.analyze.behaviours import behaviour as behaviour
    from bactrian.api.arguments import load_model as load_model
    from bactrian.api.conversation import Interrupted as Interrupted
    from bactrian.api.conversation import play as play
    from bactrian.api.conversation import stream as stream
    from bactrian.api.dataset import generate as generate
    from bactrian.api.dataset import recipe as recipe
    from bactrian.api.measurements import evaluate_humaneval as evaluate_humaneval
    from bactrian.api.measurements import score_solutions as score_solutions
    from bactrian.api.run_parts import merge as merge
    from bactrian.api.run_report import Report as Report
    from bactrian.api.solution_comparison import compare_models as compare_models
    from bactrian.api.solution_comparison import evaluate_agents as evaluate_agents
    from bactrian.api.solution_comparison import extract_solutions as extract_solutions
    from bactrian.api.stored_run import Run as Run
    from bactrian.api.stored_run import import_chats as import_chats
    from bactrian.api.stored_run import open_run as open_run
    from bactrian.errors import BactrianError as BactrianError
    from bactrian.models.scripted import Scripted as Scripted
    from bactrian.options import Critic as Critic
    from bactrian.records.session import Role as Role
    from bactrian.records.session import Session as Session
    from bactrian.records.turn import Turn as Turn
    from bactrian.roleplay.chosen_endings import ending as ending
    from bactrian.roleplay.endings import default_endings as default_endings

# The module of each public name, which is imported when the name is first used.
_HOMES = {
    name: home
    for home, names in {
        "_version": "__version__",
        "analyze.behaviours": "behaviour",
        "api.arguments": "load_model",
        "api.measurements": "evaluate_humaneval score_solutions",
        "api.conversation": "Interrupted play stream",
        "api.dataset": "generate recipe",
        "api.run_parts": "merge",
        "api.run_report": "Report",
        "api.solution_comparison": "compare_models evaluate_agents extract_solutions",
        "api.stored_run": "Run import_chats open_run",
        "errors": "BactrianError",
        "models.scripted": "Scripted",
        "options": "Critic",
        "records.session": "Role Session",
        "records.turn": "Turn",
        "roleplay.chosen_endings": "ending",
        "roleplay.endings": "default_endings",
    }.items()
    for name in names.split()
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # To a type checker, a misspelled name would be an object.

    def __getattr__(name: str) -> object:
        """Import a public name when it is asked for, so that importing the package costs nothing."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"bactrian.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
