"""A recipe says what it means, or where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from bactrian.errors import InputError, RecipeError
from bactrian.recipes.load import find_differences, list_recipes, load_recipe, read_recipe_content
from bactrian.recipes.schema import RolePlay, Translate, find_recipe_model

SIZES = {
    "ai-society": 25_000,
    "code": 50_000,
    "math": 50_000,
    "physics": 20_000,
    "chemistry": 20_000,
    "biology": 20_000,
    "misalignment": 25_000,
    "translate": 10,
}
RECIPE = """
name = "own"
[[axes]]
name = "role"
count = 2
given = ["Chef", "Pilot"]
[[axes]]
name = "task"
count = 3
per = ["role"]
ask = "List {{ count }} tasks for {{ role }}."
[role_play]
assistant = "{{ role }}"
user = "Student"
idea = "{{ task }}"
"""


def write_recipe(folder: Path, *changes: tuple[str, str]) -> str:
    text = RECIPE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "own.toml"
    path.write_text(text)
    return str(path)


def test_the_built_in_recipes_have_the_papers_sizes() -> None:
    assert {name: load_recipe(name).size for name in list_recipes()} == SIZES


def test_the_papers_lists_are_given_and_can_be_asked_for_anew() -> None:
    items = load_recipe("ai-society").axes[0].items
    assert items is not None
    assert (items[0], items[-1], len(items)) == ("Accountant", "Zoologist", 50)
    fresh = load_recipe("ai-society", ["fresh=true"])
    assert [axis.items for axis in fresh.axes] == [None, None, None]


def test_every_number_can_be_changed() -> None:
    changed = load_recipe(
        "code", ["programming_language.count=2", "axes.task.count=3", "word_limit=20", "plan=true"]
    )
    assert changed.size == 2 * 50 * 3
    job = changed.job
    assert isinstance(job, RolePlay)
    assert (job.word_limit, job.plan) == (20, True)


def numbers(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a recipe's content with the key that sets it."""
    for key, value in table.items():
        if key == "axes":
            for axis in value:
                yield from numbers(axis, f"{axis['name']}.")
        elif isinstance(value, dict):
            yield from numbers(cast("dict[str, Any]", value), f"{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield before + key, value


@pytest.mark.parametrize("name", list_recipes())
def test_every_number_of_a_built_in_recipe_can_be_changed(name: str) -> None:
    before = load_recipe(name).content()
    numbered = dict(numbers(before))
    assert len(numbered) >= 3
    for key, value in numbered.items():
        other = value - (1 if value > 1 else 0.1) if value else 1
        changed = dict(numbers(load_recipe(name, [f"{key}={other}"]).content()))
        assert {each for each in numbered if numbered[each] != changed[each]} == {key}


def test_the_papers_temperatures_can_be_changed() -> None:
    role_play = load_recipe("ai-society", ["temperature=0.7", "specify_temperature=1"]).job
    assert isinstance(role_play, RolePlay)
    assert (role_play.temperature, role_play.specify_temperature) == (0.7, 1)


def test_languages_can_be_added_to_a_translation() -> None:
    settings = ["languages.nl=Dutch", 'language.given=["nl", "zh"]', "language.count=2"]
    translate = load_recipe("translate", settings).job
    assert isinstance(translate, Translate)
    assert (translate.languages["nl"], translate.languages["zh"]) == ("Dutch", "Chinese")


def test_what_a_run_keeps_of_a_recipe_is_the_recipe() -> None:
    for name in list_recipes():
        recipe = load_recipe(name)
        assert read_recipe_content(json.loads(json.dumps(recipe.content()))) == recipe


def test_differences_name_what_changed() -> None:
    old, new = (
        load_recipe("ai-society", settings).content() for settings in ([], ["task.count=5", "plan=true"])
    )
    assert find_differences(old, new) == ["axes.task.count: 10 → 5", "role_play.plan: False → True"]


def test_a_list_may_stand_in_a_file_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "roles.txt").write_text("Chef\n\n Pilot \nNurse\n")
    recipe = load_recipe(write_recipe(tmp_path, ('given = ["Chef", "Pilot"]', 'file = "roles.txt"')))
    assert recipe.axes[0].items == ("Chef", "Pilot")
    assert recipe.content()["axes"][0]["given"] == ["Chef", "Pilot", "Nurse"]


@pytest.mark.parametrize(
    ("lines", "items"),
    [("1. Chef\n2. 3D Artist\n", ("Chef", "3D Artist")), ("1. FC\n3. Liga\n", ("1. FC", "3. Liga"))],
)
def test_a_list_file_may_count_its_lines(tmp_path: Path, lines: str, items: tuple[str, ...]) -> None:
    (tmp_path / "roles.txt").write_text(lines)
    recipe = load_recipe(write_recipe(tmp_path, ('given = ["Chef", "Pilot"]', 'file = "roles.txt"')))
    assert recipe.axes[0].items == items


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"Chef\nPilot\n\xff\xfe", r"roles.txt: The list is not UTF-8 text"),
        (b"Chef\n" * 1_000_001, r"has 1,000,001 lines; the limit is 1,000,000"),
        (b"x" * (64 * 1024 * 1024 + 1), r"has 67,108,865 bytes; the limit is 67,108,864"),
    ],
)
def test_a_list_that_is_too_large_or_no_text_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "roles.txt").write_bytes(content)
    with pytest.raises(RecipeError, match=says):
        load_recipe(write_recipe(tmp_path, ('given = ["Chef", "Pilot"]', 'file = "roles.txt"')))


def test_an_axis_may_be_given_some_items_and_ask_for_the_others(tmp_path: Path) -> None:
    more = ('given = ["Chef", "Pilot"]', 'given = ["Chef"]\nask = "List {{ count }} roles."')
    axis = load_recipe(write_recipe(tmp_path, more)).axes[0]
    assert (axis.first, axis.items) == (("Chef",), None)


@pytest.mark.parametrize("value", ["2\ncount = 5", "1" * 5000])
def test_a_setting_is_one_value(tmp_path: Path, value: str) -> None:
    with pytest.raises(RecipeError, match=r"axes.role.count"):
        load_recipe(write_recipe(tmp_path), [f"role.count={value}"])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("count = 3", "cuont = 3", r"own.toml:9:1: Unknown key 'cuont'. Did you mean 'count'"),
        ("count = 3", "count = 0", r"own.toml:9:1: axes.task.count"),
        ("count = 3", 'count = "3"', r"own.toml:9:1: axes.task.count"),
        ("count = 2", "count = 5", r"`count` is 5, 2 items are given, and no `ask` can get more"),
        ('"Pilot"', '"Chef"', r"items 1 and 2 are both 'Chef'"),
        ('"Pilot"', '" "', r"own.toml:6:1: axes.role.given.2: this is empty"),
        (
            'per = ["role"]',
            'per = ["rule"]',
            r"own.toml:10:1: axes.task.per: 'rule' is no.*Did you mean 'role'",
        ),
        ('name = "task"', 'name = "role"', r"the name 'role' is taken"),
        ("{{ role }}.", "{{ rule }}.", r"'ask', line 1, uses the placeholder 'rule'"),
        ("{{ role }}.", "{{ role.", r"own.toml:11:1: 'ask', line 1, is not valid Jinja"),
        ('idea = "{{ task }}"', "", r"'role_play.idea' is missing"),
        ('idea = "{{ task }}"', 'idea = "x"\npreamble = "y"', r"only for a recipe with red_team"),
        ("[role_play]", "[answer]\nrole='x'\nsystem='x'\nquestion='x'\n[role_play]", r"exactly one of"),
        ('given = ["Chef", "Pilot"]', "", r"needs `given`, `file` or `ask`"),
        ('given = ["Chef", "Pilot"]', 'file = "missing.txt"', r"'missing.txt' cannot be read"),
        ("count = 2", "count = = 2", r"own.toml:5:\d+: The recipe is not valid TOML"),
        ("count = 2", "count = 2\ncount = 3", r"own.toml:6:\d+: The recipe is not valid TOML"),
        ('name = "role"', "", r"own.toml:3:1: The key 'axes.1.name' is missing"),
        ('name = "own"', "", r"own.toml:1:1: The key 'name' is missing"),
        ('given = ["Chef", "Pilot"]', "given = []", r"own.toml:6:1: axes.role.given: this list is empty"),
        ('given = ["Chef", "Pilot"]', 'given = ["Chef", "Chef "]', r"own.toml:6:1: .*are both 'Chef'"),
        ('given = ["Chef", "Pilot"]', 'given = "Chef"', r"own.toml:6:1: axes.role.given: this is not a list"),
        ('per = ["role"]', 'per = ["role", "role"]', r"own.toml:10:1: axes.task.per: 'role' is named twice"),
        ('per = ["role"]', 'per = ["task"]', r"own.toml:10:1: axes.task.per: 'task' is not an earlier axis"),
        ("[role_play]", "[roleplay]", r"own.toml:12:1: Unknown key 'roleplay'. Did you mean 'role_play'"),
        ('user = "Student"', 'usr = "Student"', r"own.toml:14:1: Unknown key 'usr'. Did you mean 'user'"),
        ('user = "Student"', "user = 3", r"own.toml:14:1: role_play.user: this is not a string in quotes"),
        ("{{ task }}", "{{ tusk }}", r"own.toml:15:1: 'idea', line 1, uses the placeholder 'tusk'"),
        ("count = 2", "temperature = 9\ncount = 2", r"own.toml:5:1: axes.role.temperature"),
        ("count = 2", "count = 1000000000000", r"own.toml:5:1: axes.role.count"),
        ("count = 2", "count = -1", r"own.toml:5:1: axes.role.count"),
        ("count = 2", "count = 2.0", r"own.toml:5:1: axes.role.count: this is not an integer"),
        (
            'name = "own"',
            "name: own",
            r"own.toml:2:5: The recipe is not valid TOML[^\n]*\n.*\n.*This is YAML",
        ),
        (
            '\nname = "own"',
            '{"name": "own"}',
            r"own.toml:1:1: The recipe is not valid TOML[^\n]*\n.*\n.*This is JSON",
        ),
        ("count = 2", f"count = {'[' * 2000}{']' * 2000}", r"nested too deeply|not valid TOML"),
    ],
)
def test_a_faulty_recipe_names_the_fault_and_its_place(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        load_recipe(write_recipe(tmp_path, (old, new)))


def test_an_axis_counts_its_items_unless_a_model_is_asked_for_more(tmp_path: Path) -> None:
    roles, tasks = load_recipe(write_recipe(tmp_path, ("count = 2\n", ""))).axes
    assert (roles.count, tasks.count) == (2, 3)
    gaps = (("count = 3\n", ""), ('name = "own"', ""), ('idea = "{{ task }}"', ""))
    with pytest.raises(RecipeError, match="The keys 'name', 'axes.task.count', 'role_play.idea' are missing"):
        load_recipe(write_recipe(tmp_path, *gaps))


@pytest.mark.parametrize("setting", ["task.cout=5", "nothing=1", "task", "=3", "axes=3", "role.name.x=2"])
def test_a_setting_that_names_nothing_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match="settings"):
        load_recipe("ai-society", [setting])


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("task.count=0", "settings: axes.task.count"),
        ("task.count=five", "settings: axes.task.count: this is not an integer"),
        ("task.cuont=5", "settings: .*Did you mean 'task.count'"),
        ('task.per=["user_rol"]', "settings: axes.task.per: .*Did you mean 'user_role'"),
        ("task.ask={{ nope }}", "settings: 'ask', line 1, uses the placeholder 'nope'"),
        ("assistant_role.file=missing.txt", "settings: The list 'missing.txt' cannot be read"),
        ("fresh=perhaps", "settings: axes.assistant_role.fresh: this is neither true nor false"),
        ("role_play=3", "settings: The recipe has nothing named 'role_play'"),
    ],
)
def test_a_fault_that_was_set_is_not_sought_in_the_file(setting: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_recipe("ai-society", [setting])


def test_a_recipe_as_editors_on_windows_save_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbf" + RECIPE.replace("\n", "\r\n").encode())
    assert load_recipe(str(path)).size == 6


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (RECIPE.encode("utf-16"), r"own.toml:1:1: The recipe is not UTF-8 text"),
        (RECIPE.encode() + b"# \xff", r"own.toml:16:3: The recipe is not UTF-8 text"),
        (b"#" * 10_000_000, r"own.toml: The recipe has 10,000,000 bytes; the limit is 262,144"),
        (b"", r"own.toml:1:1: The keys 'name', 'axes' are missing"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "own.toml").write_bytes(content)
    with pytest.raises(RecipeError, match=says):
        load_recipe(str(tmp_path / "own.toml"))


@pytest.mark.parametrize("name", ["", "."])
def test_what_is_no_file_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="name of the recipe is empty|Is a directory"):
        load_recipe(name)


@pytest.mark.parametrize("axis", ["lang", "language"])
def test_the_languages_of_a_translation_are_given(tmp_path: Path, axis: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        f"""name = "own"
[[axes]]
name = "{axis}"
count = 2
ask = "List {{{{ count }}}} languages."
[translate]
system = "Into {{{{ language_name }}}}."
languages = {{ de = "German" }}
"""
    )
    with pytest.raises(RecipeError, match=r"own.toml:[23]:1: axes.*(its name is language|are given)"):
        load_recipe(str(path))


def test_a_name_that_is_no_recipe_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'physics'"):
        load_recipe("phisics")


def test_the_published_schema_is_that_of_the_program() -> None:
    published = Path(__file__).parents[2] / "docs" / "recipe.schema.json"
    assert json.loads(published.read_text()) == find_recipe_model().model_json_schema()
