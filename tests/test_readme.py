"""The README's Python example runs on the built-in model, and the changelog names every command."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import bactrian
from bactrian.cli.verbs import list_verbs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_python_example_runs_on_the_built_in_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two short messages are enough: the whole conversation takes more than a minute."""
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(
        bactrian, "play", partial(bactrian.play, max_messages=2, parameters={"max_tokens": 8})
    )
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    assert shown.startswith("Python Programmer × Stock Trader\nidea: Develop a trading bot\n")


def test_the_changelog_and_the_package_agree_on_verbs() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert all(f"bactrian {verb}" in changelog for verb in list_verbs())
    assert bactrian.__version__
