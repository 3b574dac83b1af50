"""The examples, and those in the docstrings of the public names, run."""

from __future__ import annotations

import doctest
import runpy
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.api.status import RunStatus
from bactrian.api.stored_run import SessionList
from bactrian.records.turn import Usage
from bactrian.runs.forecast import Forecast
from tests.helpers.sandbox import HAS_SANDBOX

SANDBOXED = ("evaluate_humaneval", "score_solutions")
"""Functions whose examples run programs of models."""
ROOT = Path(__file__).parent.parent.parent
RETURNED = {"Run": (RunStatus, SessionList, Forecast), "Session": (Usage,)}
"""Classes whose objects a public class returns; their examples use its example, too."""
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "ray_workers")
"""All but that of Ray's workers, which needs Ray and a database, and has tests of its own."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("Report", "Run") else ())
        for name in bt.__all__
        if name != "__version__"
    ],
)
def test_the_examples_of_a_public_name_and_its_methods_are_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples of methods use what the example of their class has made."""
    if name in SANDBOXED and not HAS_SANDBOX:
        pytest.skip("sandboxes need Linux")
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(exclude_empty=False)
    found = sorted(
        finder.find(getattr(bt, name), name), key=lambda test: test.name
    )  # a class before its methods
    for returned in RETURNED.get(name, ()):
        found += sorted(finder.find(returned, f"{name}.{returned.__name__}"), key=lambda test: test.name)
    public = [test for test in found if not test.name.rpartition(".")[2].startswith("_")]
    assert [test.name for test in public if not test.examples] == []

    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL, verbose=False
    )
    made: dict[str, object] = {}
    for test in public:
        test.globs = made
        assert runner.run(test, clear_globs=False).failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert (
        sum("text/html" in output.get("data", {}) for output in shown) == 4
    )  # one of them shows the progress
