"""``bactrian train`` as a person meets it, without PyTorch: its recipes and its errors."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from bactrian.train.training_folder import write_json
from bactrian.train.worker.__main__ import is_on_hub
from tests.helpers.command import bactrian


def test_the_command_shows_a_recipe_and_suggests_the_name_that_was_meant(tmp_path: Path) -> None:
    assert 'accelerate = "fsdp"' in bactrian("train", "camel-7b", "--show", cwd=tmp_path).stdout
    wrong = bactrian("train", "emergenc", cwd=tmp_path)
    assert (wrong.returncode, "Did you mean 'emergence'" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small", "--run", "nowhere.db"), "no such run"),
        (("emergence", "--run", "chat.jsonl"), "has 4 stages"),
        (("emergence", "--run", "cod=chat.jsonl"), "Did you mean 'code'"),
        (("small", "--run", "chat.jsonl", "--set", "epoch=1"), "Did you mean 'epochs'"),
    ],
)
def test_a_mistake_in_the_command_costs_nothing(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write_chat(tmp_path)
    done = bactrian("train", *arguments, cwd=tmp_path)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    assert [path.name for path in tmp_path.iterdir()] == ["chat.jsonl"]


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_command_says_what_to_install(tmp_path: Path) -> None:
    write_chat(tmp_path)
    done = bactrian("train", "small", "--run", "chat.jsonl", cwd=tmp_path)
    assert (done.returncode, "pip install 'bactrian[train]'" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("model", "expected"),
    [("built-in", False), ("owner/name", True), (None, False), (str(Path(__file__)), False)],
)
def test_only_a_name_of_the_hub_needs_the_network(tmp_path: Path, model: str | None, expected: bool) -> None:
    write_json(tmp_path / "plan.json", {"recipe": {"base": {"model": model}}})
    assert is_on_hub(tmp_path) is expected


def write_chat(folder: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    (folder / "chat.jsonl").write_text(json.dumps({"messages": messages}) + "\n", "utf-8")
