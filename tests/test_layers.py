"""The line that says which folder may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bactrian

SOURCE = Path(bactrian.__file__).parent
NOUNS = {"recipes", "prompts", "models", "sandbox", "store"}
SMALL_VERBS = {"analyze", "export", "ingest", "play"}
BELOW_GENERATE = SMALL_VERBS | NOUNS | {"records", "errors"}
MAY_IMPORT = {
    "errors": set[str](),
    "records": {"errors"},
    **{noun: {"records", "errors"} for noun in NOUNS},
    **{verb: NOUNS | {"records", "errors"} for verb in SMALL_VERBS},
    "generate": BELOW_GENERATE,
    "evaluate": BELOW_GENERATE | {"generate"},
    "train": BELOW_GENERATE | {"generate"},
    "explore": BELOW_GENERATE | {"generate", "evaluate", "train"},
    "cli": BELOW_GENERATE | {"generate", "evaluate", "train", "explore"},
}
LAYERS = sorted(path.stem for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists())


def imported_layers(layer: str) -> set[str]:
    """Layers that any module of ``layer`` imports, inside functions and for type checking too."""
    names: set[str] = set()
    for file in (SOURCE / layer).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bactrian"):
                names |= (
                    {f"bactrian.{alias.name}" for alias in node.names}
                    if node.module == "bactrian"
                    else {node.module}
                )
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names if alias.name.startswith("bactrian.")}
    return {
        name.split(".")[1] for name in names if "." in name and (SOURCE / name.split(".")[1]).exists()
    } | ({"errors"} if "bactrian.errors" in names else set())


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_downwards(layer: str) -> None:
    assert imported_layers(layer) <= MAY_IMPORT[layer] | {layer}


def test_the_layers_are_found() -> None:
    assert {"cli", "play", "models", "store", "prompts", "records"} <= set(LAYERS)
    assert "models" in imported_layers("play")


def test_only_the_command_line_prints() -> None:
    printing = [
        file.relative_to(SOURCE)
        for file in SOURCE.rglob("*.py")
        if "cli" not in file.parts
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []
