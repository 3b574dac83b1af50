"""What docs/societies.md says is true."""

from __future__ import annotations

import re
from pathlib import Path

from bactrian.recipes.load import load_recipe
from bactrian.recipes.society_file import list_societies, load_society

PAGE = (Path(__file__).parents[2] / "docs" / "societies.md").read_text("utf-8")


def test_the_society_on_the_page_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"<!-- example -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "club.toml").write_text(example)
    society, prompts = load_society(str(tmp_path / "club.toml"))
    assert [stage.name for stage in society.stages] == ["talk", "essay"]
    assert prompts.task("essay", "Is he?", {"talk": "Host: Yes."}).endswith("said about it:\nHost: Yes.")


def test_every_shipped_society_is_on_the_page() -> None:
    assert all(f"| `{name}` |" in PAGE for name in list_societies())


def test_the_critics_table_fits_a_recipe(tmp_path: Path) -> None:
    (table,) = re.findall(r"```toml\n(\[critic\].*?)```", PAGE, re.DOTALL)
    society = load_recipe("ai-society")
    from bactrian.recipes.load import read_recipe_text

    (tmp_path / "with.toml").write_text(read_recipe_text("ai-society") + "\n" + table)
    critic = load_recipe(str(tmp_path / "with.toml")).critic
    assert society.critic is None
    assert critic is not None
    assert critic.proposals == 3
    (command,) = [line for line in PAGE.splitlines() if line.startswith("bactrian generate")]
    settings = re.findall(r"--set (\S+)", command)
    assert load_recipe("ai-society", settings).critic is not None
