"""Count the code that a session and a run pass through: ``python -m tools.count_path``.

That is the nine files that docs/architecture.md begins with, and what they import from the packages of the core. Tools,
societies, embodied agents and models in this process are left out: a session without them does not enter these files.
The nine files do not import those that put them together (``WIRING``), though a session or a run passes them: they are
counted apart, and so is what only they import, such as the kinds of jobs, the lists, the critic and the limits of
requests.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from tools.count_code import count_lines

FIRST = (
    "roleplay.loop",
    "roleplay.turns",
    "roleplay.agent",
    "roleplay.endings",
    "roleplay.start",
    "models.openai",
    "store.store",
    "runs.scheduler",
    "runs.runner",
)
WIRING = ("roleplay.setup", "roleplay.role_play", "runs.wiring")
CORE = frozenset({"records", "protocol", "roleplay", "models", "store", "runs"})
LEFT_OUT = (
    "roleplay.tool",
    "roleplay.society",
    "roleplay.embodied",
    "roleplay.alone",
    "models.local",
    "models.text_tools",
)
_SOURCE = Path(__file__).parents[1] / "src" / "bactrian"


def list_imports(tree: ast.Module) -> set[str]:
    """Return the modules of the core that a module imports, also inside functions."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bactrian."):
            name = str(node.module).removeprefix("bactrian.")
            names = [name, *(f"{name}.{alias.name}" for alias in node.names)]
            imported |= {each for each in names if _find_file(each).exists()}
    return {name for name in imported if name.split(".")[0] in CORE and not name.startswith(LEFT_OUT)}


def count_path(first: Sequence[str] = FIRST) -> dict[str, int]:
    """Return the lines of the modules ``first``, by default the nine files, and of all that they import."""
    lines: dict[str, int] = {}
    left = list(first)
    while left:
        module = left.pop(0)
        if module not in lines:
            path = _find_file(module)
            tree = ast.parse(path.read_text("utf-8"))
            lines[module] = count_lines(path, tree)
            left += sorted(list_imports(tree))
    return lines


def _find_file(module: str) -> Path:
    path = _SOURCE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def main() -> None:
    """Print the lines of code of each file, and of all."""
    lines, wiring = count_path(), count_path(WIRING)
    for module, count in lines.items():
        print(f"{count:5} {'* ' if module in FIRST else '  '}{module}")
    first = sum(lines[module] for module in FIRST)
    print(f"{first:5} the nine files (*), {sum(lines.values())} with what they import, in {len(lines)} files")
    print(f"{sum(map(wiring.__getitem__, WIRING)):5} in {', '.join(WIRING)}, which put them together")
    others = {name: count for name, count in wiring.items() if name not in {*lines, *WIRING}}
    print(f"{sum(others.values()):5} in what only these import: {', '.join(sorted(others))}")


if __name__ == "__main__":
    main()
