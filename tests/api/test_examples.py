"""The examples, and those in the docstrings of the public names, run."""

from __future__ import annotations

import doctest
import inspect
import runpy
import sys
from pathlib import Path

import pytest

import bactrian as bt

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", [name for name in bt.__all__ if name != "__version__"])
def test_the_example_of_a_public_name_is_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(getattr(bt, name), name)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    tests = [one for one in found if one.examples]
    assert tests, f"{name} has no example"
    for one in tests:
        assert doctest.DocTestRunner(optionflags=flags).run(one).failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_package_gives_functions_and_not_folders_of_their_names() -> None:

    assert inspect.isfunction(bt.play)
    assert inspect.isfunction(bt.generate)
    assert "bactrian.play" in sys.modules


def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert (
        sum("text/html" in output.get("data", {}) for output in shown) == 4
    )  # one of them shows the progress
