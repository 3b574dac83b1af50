"""Input that nobody can use: named in at most three lines, before anything is paid for or made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command import bactrian

RECIPE = """name = "tea"
[[axes]]
name = "idea"
count = 2
given = ["Boil", "Pour"]
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
max_messages = 2
"""
SCRIPT = '{"user": ["Instruction: Go.\\nInput: None"], "assistant": ["Solution: Gone."]}'
LONG = "x" * 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.json").write_text(SCRIPT)
    (tmp_path / "tea.toml").write_text(RECIPE)
    return tmp_path


def refused(folder: Path, *command: str) -> list[str]:
    """The lines of the error."""
    before = sorted(folder.iterdir())
    done = bactrian(*command, cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert sorted(folder.iterdir()) == before
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 3
    return lines


GENERATE = ("generate", "tea.toml", "--run", "run.db", "--model", "scripted:script.json")
RECIPES = [
    (("count = 2", "count = = 2"), "tea.toml:4:9: The recipe is not valid TOML", "count = = 2\n        ^ "),
    (("specify", "specfy"), "tea.toml:10:1: Unknown key 'specfy'. Did you mean 'specify'?", "Known keys:"),
    (
        ('user = "Guest"', 'user = "Guest"\nuser = "Host"'),
        "tea.toml:9:14: The recipe is not valid TOML",
        "^ ",
    ),
    (('"Pour"', '"Boil"'), "tea.toml:5:1: axes.idea.given: items 1 and 2 are both 'Boil'", ""),
    (('["Boil", "Pour"]', '["Th\u00e9", "The\u0301"]'), "items 1 and 2 are both", ""),
    (('"Pour"', '""'), "is empty or contains a NUL", ""),
    (('"Pour"', '"a\\u0000b"'), "is empty or contains a NUL", ""),
    (
        ("{{ idea }}", "{{ notion }}"),
        "the placeholder 'notion', which is not defined for it",
        "It may use: idea.",
    ),
    (("{{ idea }}", "{{ idea.__class__ }}"), "uses 'Getattr' which is not allowed in a template", ""),
    (("name", "a = " + "[" * 3_000 + "]" * 3_000 + "\nname"), "The recipe is nested too deeply", ""),
    (("name", "a = " + "9" * 9_999 + "\nname"), "not valid TOML: a number is too long", ""),
    (("name", "#" * 300_000 + "\nname"), "The recipe has 300,171 bytes; the limit is 262,144", ""),
]


@pytest.mark.parametrize(("change", "says", "then"), RECIPES, ids=[row[1][:40] for row in RECIPES])
def test_a_recipe_that_cannot_be_followed_is_shown_where(
    folder: Path, change: tuple[str, str], says: str, then: str
) -> None:
    (folder / "tea.toml").write_text(RECIPE.replace(*change, 1))
    told = refused(folder, *GENERATE)
    assert says in told[0]
    assert then in "\n".join(told[1:])


SETTINGS = [
    "task.count",
    "=",
    "nope=1",
    "idea.count=x",
    "idea.count=-1",
    "idea.count=1e9",
    "name=../x",
    "role_play={}",
]


@pytest.mark.parametrize("setting", [*SETTINGS, f"idea.count={'9' * 5_000}", 'idea.given=["A", "A"]'])
def test_a_setting_that_does_not_fit_is_refused(folder: Path, setting: str) -> None:
    assert "--set" in "".join(refused(folder, *GENERATE, "--set", setting))


def test_role_names_of_all_kinds_are_kept_and_never_become_paths(folder: Path) -> None:
    names = '["../../etc/passwd", "CON", "a\u202eb", "\U0001f468\u200d\U0001f373", "{0.__class__} {{ idea }}", "x. "]'
    (folder / "tea.toml").write_text(
        RECIPE.replace('["Boil", "Pour"]', names).replace("count = 2", "count = 6")
    )
    (folder / "script.json").write_text(SCRIPT)
    before = {path.name for path in folder.iterdir()}
    done = bactrian(*GENERATE, "--set", "role_play.assistant={{ idea }}", cwd=folder)
    assert done.returncode == 0, done.stderr
    out = bactrian("export", "run.db", "--format", "camel-chat", "--out", "tea", cwd=folder)
    assert out.returncode == 0, out.stderr
    made = {path.name for path in folder.iterdir()} - before
    assert made == {"run.db", "tea", "tea.manifest.json"}
    assert all(path.stem[:3].isdigit() for path in (folder / "tea").glob("0*.json"))
    told = bactrian("export", "run.db", "--format", "messages", "--out", "tea.jsonl", cwd=folder)
    assert told.returncode == 0
    written = (folder / "tea.jsonl").read_text()
    assert "../../etc/passwd" in written
    assert "{0.__class__} {{ idea }}" in written


LONG_PATHS = [
    ("generate", "tea.toml", "--run", LONG, "--model", "scripted:script.json"),
    ("generate", LONG, "--run", "run.db"),
    ("play", "tea", "--run", LONG, "--model", "scripted:script.json"),
    ("play", "tea", "--prompts", LONG),
    ("play", "tea", "--roles", LONG),
    ("play", "tea", "--society", LONG),
    ("play", "tea", "--tools", f"{LONG}.py", "--model", "scripted:script.json"),
    ("play", "tea", "--model", f"scripted:{LONG}"),
    ("play", "tea", "--model", f"recorded:{LONG}"),
    ("play", "tea", "--model", f"local:{LONG}"),
    ("export", LONG, "--format", "messages", "--out", "tea.jsonl"),
    ("import", LONG, "--run", "run.db"),
    ("analyze", LONG),
    ("verify", LONG),
    ("recover", "tea.toml", "--out", LONG),
]


@pytest.mark.parametrize("command", LONG_PATHS, ids=lambda command: " ".join(command).replace(LONG, "LONG"))
def test_a_path_that_is_too_long_is_named(folder: Path, command: tuple[str, ...]) -> None:
    told = refused(folder, *command)[0]  # Python 3.14 does not tell such a path from one that is missing
    assert "File name too long" in told or "There is no such" in told


def test_an_environment_file_that_is_no_text_is_named(folder: Path) -> None:
    (folder / ".env").write_bytes(b"\xff\xfe\x00")
    assert refused(folder, "models") == ["bactrian: .env: This is not UTF-8 text.", "Save it as UTF-8."]


def test_roles_that_are_nested_too_deeply_are_refused(folder: Path) -> None:
    (folder / "roles.jsonl").write_text("[" * 100_000)
    assert "This file does not contain roles." in refused(folder, "play", "tea", "--roles", "roles.jsonl")[0]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("play", "--model", "local", "--model", "openai:x"), "--model"),
        (("roles", "A garden", "--model", "local", "--model=openai:x"), "--model"),
        (("generate", "ai-society", "--run", "a.db", "--run", "b.db"), "--run"),
        (("export", "a.db", "--format", "messages", "--format", "alpaca", "--out", "x"), "--format"),
    ],
)
def test_a_flag_with_one_value_that_is_given_twice_is_refused(
    tmp_path: Path, words: tuple[str, ...], option: str
) -> None:
    done = bactrian(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{option} is given 2 times" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "BACTRIAN_TOOLS=evil.py",
        "BACTRIAN_MCP=touch done",
        "BACTRIAN_SOCIETY=evil.toml",
        "BACTRIAN_SET=tools.functions=evil.py",
        "BACTRIAN_SEND_KEYS_TO=http://evil.invalid",
        "BACTRIAN_YES=1",
        "BACTRIAN_UNSAFE_EXEC=1",
        "BACTRIAN_ACKNOWLEDGE_MISUSE=1",
        "OPENSSL_CONF=evil.cnf",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://evil.invalid",
        "HF_ENDPOINT=http://evil.invalid",
    ],
)
def test_an_environment_file_names_no_code_no_receiver_and_no_consent(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(line + "\n")
    (tmp_path / "evil.py").write_text("open('done', 'w')\ndef f(a: str) -> str:\n    return a\n")
    (tmp_path / "script.json").write_text('["Instruction: Go.\\nInput: None", "Solution: Done."]')
    words = ("play", "Tea", "--no-specify", "--max-messages", "2", "--model", "scripted:script.json")
    done = bactrian(*words, cwd=tmp_path)
    assert f".env cannot set {line.partition('=')[0]}" in done.stderr
    assert not (tmp_path / "done").exists()


ADDRESS = ("--base-url", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*GENERATE, *ADDRESS), "This is the address of openai:NAME"),
        (
            ("generate", "tea.toml", "--run", "r.db", "--model", "groq:a", *ADDRESS),
            "groq:a@http://127.0.0.1:9/v1",
        ),
        (("roles", "Tea", "--model", "groq:a", *ADDRESS), "groq:a@http://127.0.0.1:9/v1"),
        (("evaluate", "humaneval", "--model", "groq:a", *ADDRESS), "groq:a@http://127.0.0.1:9/v1"),
        (("evaluate", "questions", "tea", "--model", "groq:a", *ADDRESS), "groq:a@http://127.0.0.1:9/v1"),
        (
            (
                "evaluate",
                "pairwise",
                "groq:a",
                "groq:b",
                "--questions",
                "math",
                "--judge",
                "groq:c",
                *ADDRESS,
            ),
            "groq:a@http://127.0.0.1:9/v1",
        ),
        ((*GENERATE, "--set", "models.critic=local"), "This is for the critic, and there is no critic."),
        (
            (*GENERATE, "--set", "parameters.critic.temperature=0.5"),
            "This is for the critic, and there is no critic.",
        ),
        (
            (*GENERATE, "--set", "critic.role=human"),
            "The critic would be a person, and a run cannot ask one.",
        ),
        ((*GENERATE, "--user-model", "human"), "The user would be a person, and a run cannot ask one."),
        ((*GENERATE, "--keep-tasks"), "There are no tasks to keep without a fork."),
    ],
)
def test_what_no_model_or_critic_takes_is_refused(
    folder: Path, command: tuple[str, ...], message: str
) -> None:
    assert message in " ".join(refused(folder, *command))


def test_a_judge_whose_address_is_given_another_way_is_refused(folder: Path) -> None:
    done = bactrian("generate", *GENERATE[1:], "--limit", "1", cwd=folder)
    assert done.returncode in (0, 4), done.stderr
    assert "groq:a@http://127.0.0.1:9/v1" in " ".join(
        refused(folder, "analyze", "run.db", "--judge", "groq:a", *ADDRESS)
    )
