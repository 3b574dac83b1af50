"""The line that says which folder may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bactrian

SOURCE = Path(bactrian.__file__).parent
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors", "_version"),
    ("records", "files"),
    ("stats", "protocol", "options", "amounts"),
    ("blocks", "tables", "detect", "figures"),
    ("recipes", "models", "sandbox", "store"),
    ("analyze", "batches", "export", "ingest", "roleplay"),
    ("runs",),
    ("evaluate", "shared", "train"),
    ("api",),
    ("explore",),
    ("reproduce",),
    ("cli",),
    ("__init__", "__main__"),
)
"""From the lowest layer to the highest. A layer may import those below it, and never one beside it."""
MAY_IMPORT = {
    layer: {below for lower in ORDER[:height] for below in lower}
    for height, layers in enumerate(ORDER)
    for layer in layers
}
LAYERS = sorted(
    path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
)


def imported_layers(layer: str) -> set[str]:
    """Layers that any module of ``layer`` imports, inside functions and for type checking too."""
    names: set[str] = set()
    files = (SOURCE / layer).rglob("*.py") if (SOURCE / layer).is_dir() else [SOURCE / f"{layer}.py"]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "bactrian":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bactrian."):
                names.add(node.module.split(".")[1])
            elif isinstance(node, ast.Import):
                names |= {
                    alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bactrian.")
                }
    return names & set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_downwards(layer: str) -> None:
    assert imported_layers(layer) <= MAY_IMPORT[layer] | {layer}


def test_the_layers_are_found() -> None:
    assert {"cli", "roleplay", "models", "store", "protocol", "records", "errors"} <= set(LAYERS)
    assert "models" in imported_layers("roleplay")


def test_only_the_command_line_prints() -> None:
    printing = [
        file.relative_to(SOURCE)
        for file in SOURCE.rglob("*.py")
        if "cli" not in file.parts and "print" in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []
