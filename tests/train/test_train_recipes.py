"""Training recipes: what they may say, and what is said when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError, RecipeError
from bactrian.train.training_recipe import add_data, list_train_recipes, load_train_recipe, parse_train_recipe

TEXT = """
name = "facts"
from = "checkpoint"
[base.new]
width = 64
[training]
epochs = 2
[[stages]]
name = "society"
data = "society.jsonl"
side = "user"
[[stages]]
name = "code"
data = ["code.db", {path = "more.jsonl", share = 0.5}]
"""


def test_a_recipe_names_its_stages_their_data_and_where_each_begins() -> None:
    recipe = parse_train_recipe(TEXT)
    assert recipe.origin == "checkpoint"
    assert [stage.name for stage in recipe.stages] == ["society", "code"]
    assert [(source.path, source.share) for source in recipe.stages[1].data] == [
        ("code.db", 1.0),
        ("more.jsonl", 0.5),
    ]


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "facts.toml"
    path.write_text(TEXT + 'held_out_files = ["q.jsonl"]', "utf-8")
    with pytest.raises(RecipeError, match="held_out_files"):  # it stands in the last stage's table
        load_train_recipe(str(path))
    path.write_text('held_out_files = ["q.jsonl"]\n' + TEXT, "utf-8")
    recipe = load_train_recipe(str(path))
    assert recipe.stages[0].data[0].path == str(tmp_path / "society.jsonl")
    assert recipe.held_out_files == (str(tmp_path / "q.jsonl"),)


@pytest.mark.parametrize("name", list_train_recipes())
def test_a_built_in_recipe_can_be_read(name: str) -> None:
    assert load_train_recipe(name).name == name


def test_camel_7b_has_the_settings_of_table_5() -> None:
    training = load_train_recipe("camel-7b").training
    assert (training.per_device, training.accumulation, training.devices) == (4, 8, 4)
    assert (training.epochs, training.learning_rate, training.warmup) == (3, 2e-5, 0.04)
    assert (training.schedule, training.weight_decay, training.max_length) == ("cosine", 0, 2048)
    assert (training.precision, training.tf32, training.checkpointing) == ("bf16", True, True)


def test_settings_change_the_training_and_the_base() -> None:
    recipe = parse_train_recipe(TEXT, settings=["epochs=5", "base.model=built-in", "from=union"])
    assert (recipe.training.epochs, recipe.base.model, recipe.base.new) == (5, "built-in", None)
    assert recipe.origin == "union"


def test_data_of_the_command_replaces_the_recipes() -> None:
    recipe = add_data(parse_train_recipe(TEXT), {"code": [Path("a.db"), Path("b.db")]})
    assert [source.path for source in recipe.stages[1].data] == ["a.db", "b.db"]
    assert recipe.stages[0].data[0].path == "society.jsonl"


def test_data_without_a_stage_is_that_of_the_only_one() -> None:
    assert add_data(load_train_recipe("small"), {"": [Path("a.db")]}).stages[0].data[0].path == "a.db"
    with pytest.raises(InputError, match="has 2 stages"):
        add_data(parse_train_recipe(TEXT), {"": [Path("a.db")]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("width = 64", "width = 65"), "multiple of heads"),
        (("[base.new]\nwidth = 64", "[base]"), "either a model or"),
        (("epochs = 2", "epoch = 2"), "Did you mean 'epochs'"),
        (("epochs = 2", "batch = 6\nper_device = 4"), "batch must be a multiple"),
        (("epochs = 2", "batch = 16\ndevices = 2"), "accelerate"),
        (('name = "code"', 'name = "society"'), "taken"),
        (('from = "checkpoint"', 'from = "start"'), "from"),
        (("epochs = 2", "epochs = inf"), "epochs"),
        (("epochs = 2", "[training.lora]\nrank = 100_000_000"), "rank"),
        (("width = 64", "layers = 1_000_000_000"), "at most a billion weights"),
        (('"code.db"', '"a\\u0000.db"'), "path"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_place(change: tuple[str, str], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        parse_train_recipe(TEXT.replace(*change), where="facts.toml")
    assert str(caught.value.where).startswith("facts.toml")


def test_a_setting_that_names_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="epoch") as caught:
        parse_train_recipe(TEXT, settings=["epoch=3"])
    assert caught.value.where == "settings"
    with pytest.raises(InputError, match="key=value"):
        parse_train_recipe(TEXT, settings=["epochs"])
