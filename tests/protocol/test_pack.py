"""A pack is read strictly: what is wrong with it is said with its place, and before any model is asked."""

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from bactrian.errors import PromptError
from bactrian.protocol.pack import PLACEHOLDERS, list_packs, load_pack

GOOD = """\
# A pack for the tests.
name = "tests"

[templates]
task_specifier = '''
Make concrete: {{ task }}
'''
task_planner = "Plan {{ task }}"
assistant_system = "Solve {{ task }}"
user_system = "Instruct {{ task }}"
opening_request = "Start."
critic = "Choose for {{ task }}"
"""


def saved(folder: Path, content: str | bytes) -> Path:
    path = folder / "pack.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(folder: Path, content: str | bytes) -> PromptError:
    with pytest.raises(PromptError) as caught:
        load_pack(saved(folder, content))
    assert caught.value.exit_code == 2
    assert caught.value.next
    return caught.value


def with_template(source: str, template: str = "assistant_system") -> str:
    line = next(line for line in GOOD.splitlines() if line.startswith(template))
    return GOOD.replace(line, f"{template} = '''\n{source}\n'''")


def test_each_built_in_pack_can_be_loaded_by_its_name() -> None:
    assert "ai-society" in list_packs()
    for name in list_packs():
        assert load_pack(name).name == name


def test_a_pack_of_the_users_own_is_loaded_by_its_path(tmp_path: Path) -> None:
    pack = load_pack(saved(tmp_path, GOOD))
    values = dict.fromkeys(PLACEHOLDERS["task_specifier"], "") | {"task": "a bot"}
    assert pack.name == "tests"
    assert pack.render("task_specifier", **values) == "Make concrete: a bot"


def test_a_pack_cannot_be_changed(tmp_path: Path) -> None:
    pack = load_pack(saved(tmp_path, GOOD))
    with pytest.raises(FrozenInstanceError):
        pack.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        pack.templates["critic"] = "Choose me"  # type: ignore[index]


def test_importing_the_prompts_reads_no_pack() -> None:
    program = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "import bactrian.protocol.pack\n"
        "print([path for path in opened if path.endswith('.toml')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_hash_changes_with_any_word_of_a_template(tmp_path: Path) -> None:
    before = load_pack(saved(tmp_path, GOOD)).hash
    after = load_pack(saved(tmp_path, GOOD.replace("Start.", "Start now."))).hash
    assert len(before) == 64
    assert before != after


@pytest.mark.parametrize(
    "same",
    [
        GOOD.replace("\n", "\r\n"),
        GOOD + "\n# a comment\n",
        GOOD.replace('"tests"', '"renamed"'),
        GOOD.replace('critic = "Choose for {{ task }}"\n', "").replace(
            "[templates]\n", "[templates]\ncritic = 'Choose for {{ task }}'\n"
        ),
    ],
    ids=["Windows line ends", "a comment", "another name", "another order and other quotes"],
)
def test_the_hash_is_of_what_is_said_and_not_of_the_file(tmp_path: Path, same: str) -> None:
    before = load_pack(saved(tmp_path, GOOD)).hash
    assert load_pack(saved(tmp_path, same)).hash == before


def test_an_unknown_name_lists_the_built_in_packs_and_the_nearest() -> None:
    with pytest.raises(PromptError) as caught:
        load_pack("ai-socety")
    assert "Did you mean 'ai-society'?" in caught.value.what
    assert str(caught.value.next).startswith("Built-in packs: ")
    assert all(name in str(caught.value.next) for name in list_packs())


@pytest.mark.parametrize("path", [".", "a\0b"])
def test_a_path_that_cannot_be_read_says_why(path: str) -> None:
    with pytest.raises(PromptError, match="The prompt pack cannot be read: "):
        load_pack(path)


def test_bad_toml_is_shown_with_line_and_column(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace('"Start."', '"Start.'))
    assert str(error.where).endswith("pack.toml:11:26")


@pytest.mark.parametrize("content", ["a = " + "[" * 5000, "a = " + "9" * 5000, "name = 'a"])
def test_toml_made_to_hurt_is_refused_like_any_other(tmp_path: Path, content: str) -> None:
    refused(tmp_path, content)


def test_a_duplicate_key_is_an_error(tmp_path: Path) -> None:
    refused(tmp_path, GOOD + 'critic = "Choose {{ task }}"\n')


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.encode().replace(b"Start.", b"St\xe4rt."))
    assert str(error.where).endswith("pack.toml:11:22")
    assert "not UTF-8" in error.what


def test_a_file_of_a_megabyte_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "#" * 1_000_000)
    assert re.search(r"has 1,00\d,\d{3} bytes; the limit is 262,144", error.what)


def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_name(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("name =", "  nmae ="))
    assert "Unknown key 'nmae'. Did you mean 'name'?" in error.what
    assert str(error.where).endswith("pack.toml:2:3")


def test_an_unknown_template_is_refused_with_its_place_and_the_nearest_name(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("user_system =", "user_sytem ="))
    assert "Unknown template 'user_sytem'. Did you mean 'user_system'?" in error.what
    assert str(error.where).endswith("pack.toml:10:1")


def test_the_place_of_a_key_is_never_a_line_inside_a_text(tmp_path: Path) -> None:
    decoy = GOOD.replace("Make concrete: {{ task }}", "Make concrete: {{ task }}\nvoice = x")
    error = refused(tmp_path, decoy + 'voice = "deep"\n')
    assert str(error.where).endswith("pack.toml:14:1")


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace('opening_request = "Start."\n', ""))
    assert "lacks the template 'opening_request'" in error.what


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('name = "tests"', "", "lacks the key 'name'"),
        ('name = "tests"', "name = 7", "'name' is not a string"),
        ('name = "tests"', 'name = "../Tests"', "cannot be the name of a pack"),
        ('"Start."', "['Start.']", "'opening_request' is not a string"),
        ("[templates]", "[[templates]]", "'templates' is not a table"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert what in refused(tmp_path, GOOD.replace(old, new)).what


def test_an_unknown_placeholder_is_refused_with_what_the_template_may_use(tmp_path: Path) -> None:
    error = refused(tmp_path, with_template("Solve {{ task }}\nfor {{ budget }}"))
    assert "Template 'assistant_system', line 2, uses the placeholder 'budget'" in error.what
    assert str(error.where).endswith("pack.toml:9:1")
    assert all(name in str(error.next) for name in PLACEHOLDERS["assistant_system"])


def test_a_template_that_does_not_tell_the_task_is_refused_with_both_sets(tmp_path: Path) -> None:
    error = refused(tmp_path, with_template("Solve it for {{ user_role }}"))
    assert "lacks task" in error.what
    assert error.next == "It uses user_role; it must use task."


@pytest.mark.parametrize(
    "source", ["{{ task", "{% if task %}", "{{ task }}{% endif %}", "{{ task }} {% nonsense %}"]
)
def test_bad_jinja_is_refused(tmp_path: Path, source: str) -> None:
    assert "is not valid Jinja" in refused(tmp_path, with_template(source)).what


@pytest.mark.parametrize(
    "construct",
    [
        "{{ task.__class__ }}",
        "{{ task['__class__'] }}",
        "{{ task()  }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ 'x' * 10**9 }}",
        "{{ 'x' ~ task }}",
        "{{ task | center(1000000000) }}",
        "{{ task | attr('__class__') }}",
        "{{ task | unheard_of }}",
        "{% set task = 'mine' %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% macro m() %}x{% endmacro %}",
        "{% filter upper %}x{% endfilter %}",
        "{{ [task] }}",
        "{{ task if task else 'none' }}",
        "{% if 'x' in task %}x{% endif %}",
    ],
)
def test_a_construct_that_no_pack_needs_is_refused(tmp_path: Path, construct: str) -> None:
    error = refused(tmp_path, with_template("{{ task }}\n" + construct))
    assert "line 2, uses" in error.what


@pytest.mark.parametrize("name", ["range", "dict", "self", "loop", "cycler", "lipsum"])
def test_no_name_of_jinjas_own_can_be_reached(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path, with_template(f"{{{{ task }}}} {{{{ {name} }}}}"))
    assert f"uses the placeholder {name!r}" in error.what


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 20_000 + "task" + ")" * 20_000 + " }}",
        "{{ " + "not " * 500 + "task }}",
        "{% if task %}" * 150 + "{{ task }}" + "{% endif %}" * 150,
    ],
    ids=["parentheses", "not", "if"],
)
def test_a_template_nested_to_break_the_compiler_is_refused(tmp_path: Path, source: str) -> None:
    assert "nested more than 20 levels deep" in refused(tmp_path, with_template(source)).what


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_template_is_refused(tmp_path: Path, source: str) -> None:
    assert "is empty" in refused(tmp_path, with_template(source, "opening_request")).what


def test_a_nul_in_a_template_is_refused(tmp_path: Path) -> None:
    assert "NUL" in refused(tmp_path, GOOD.replace("Start.", r"Start\u0000")).what


def test_conditions_filters_and_raw_text_work(tmp_path: Path) -> None:
    source = (
        "{% if assistant_role == user_role %}\nTwo {{ user_role | lower }}s.\n"
        "{% elif language and not user_description %}\nIn {{ language }}.\n{% else %}\nNone.\n{% endif %}\n"
        "{# unseen #}{% raw %}{{ task }}{% endraw %} is {{ task | trim }}"
    )
    pack = load_pack(saved(tmp_path, with_template(source)))
    values = dict.fromkeys(PLACEHOLDERS["assistant_system"], "") | {"task": " it "}
    same = pack.render("assistant_system", **values | {"assistant_role": "Cook", "user_role": "Cook"})
    other = pack.render("assistant_system", **values | {"assistant_role": "Cook", "language": "Hindi"})
    assert same == "Two cooks.\n{{ task }} is it"
    assert other == "In Hindi.\n{{ task }} is it"
