"""Count the lines of code by package, without comments and docstrings: ``python -m tools.count_code [FOLDER]``."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path


def count_lines(path: Path, tree: ast.Module | None = None) -> int:
    """Return the lines of code in the Python file at ``path``, whose syntax tree may be given."""
    text = path.read_text("utf-8")
    prose: set[int] = set()
    data: set[int] = set()
    for node in ast.walk(tree or ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    prose.update(span(value))
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            data.update(
                span(node)
            )  # in a text of several lines, blank ones count, and those that look like comments
    filled = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if (code := line.strip()) and not code.startswith("#")
    }
    return len((filled | data) - prose)


def span(node: ast.expr) -> range:
    """Return the numbers of the lines of an expression."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def main() -> None:
    """Print the count of each package, and of all."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/bactrian")
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in root.rglob("*.py"):
        package = path.relative_to(root).parts[0]
        lines[package] += count_lines(path)
        files[package] += 1
    for package in sorted(lines):
        print(f"{package:20} {lines[package]:6} {files[package]:4}")
    print("total", sum(lines.values()), sum(files.values()))


if __name__ == "__main__":
    main()
