"""Settings: options that are not flags of `play` and `generate`, by `--set`, from a file, and from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.cli.help_form import load_verb
from bactrian.cli.settings import list_settings
from bactrian.cli.verbs import VERBS
from tests.helpers.command import bactrian

SCRIPT = {
    "user": ["Instruction: Name a tea.\nInput: None"],
    "assistant": ["Solution: Sencha.\nNext request."],
    "critic": ["Choice: 1\nShort."] * 2,
}
PLAY = (
    "play",
    "Tea",
    "--no-specify",
    "--max-messages",
    "2",
    "--run",
    "tea.db",
    "--model",
    "scripted:script.json",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    return tmp_path


@pytest.mark.parametrize("command", VERBS)
def test_a_command_has_at_most_forty_options_with_help(command: str) -> None:
    options = [param for param in load_verb(command).params if not getattr(param, "hidden", True)]
    assert len(options) <= 40


def test_the_common_options_come_first(tmp_path: Path) -> None:
    told = bactrian("play", "--help", cwd=tmp_path).stdout
    common = told.partition("Common:\n")[2].partition("\n\n")[0]
    assert common.count("--") >= 8
    assert told.index("Common:") < told.index("Roles:")
    assert "--criteria" not in told


@pytest.mark.parametrize("words", [("play", "x"), ("generate", "math", "--run", "x.db")])
def test_every_old_flag_is_refused_with_the_setting_that_it_has_become(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    for key, option in list_settings(load_verb(words[0]).params).items():
        if not option.hidden or key.startswith(
            ("parameters.user.", "parameters.task.", "parameters.critic.")
        ):
            continue  # those of one agent are alike
        value = () if option.is_flag else ("a=1",) if key.endswith("body") else ("3",)
        refused = bactrian(*words, option.flag, *value, cwd=tmp_path)
        assert refused.returncode == 2, option.flag
        assert f"{key}=" in refused.stderr, option.flag
    assert list(tmp_path.iterdir()) == []


def test_a_setting_on_the_command_line_outranks_the_environment_and_that_a_file(folder: Path) -> None:
    (folder / "mine.toml").write_text(
        '[critic]\nrole = "Host"\nrounds = 2\ncriteria = "taste"\n'
        '[role_play]\nuser_description = "Thirsty."\n[parameters]\ntop_p = 0.4\n'
        "[parameters.assistant]\nmax_tokens = 7\n[endpoint]\ntimeout = 9\n"
    )
    done = bactrian(
        *(*PLAY, "--set", "mine.toml", "--set", "critic.rounds=3", "--set", "temperature=0.3"),
        cwd=folder,
        BACTRIAN_CRITERIA="price",
        BACTRIAN_CRITIC_ROUNDS="5",
    )
    assert done.returncode == 0, done.stderr
    (session,) = bt.open_run(folder / "tea.db")
    critic, sampling = session.provenance.critic, session.provenance.sampling
    assert critic is not None
    assert (critic.role, critic.rounds, critic.criteria) == ("Host", 3, "price")
    assert session.user.description == "Thirsty."
    assert (sampling["user"].temperature, sampling["user"].top_p) == (0.3, 0.4)
    assert sampling["assistant"].max_tokens == 7


@pytest.mark.parametrize(
    ("setting", "complaint", "then"),
    [
        (
            "critic.round=2",
            "There is no setting 'critic.round'. Did you mean 'critic.rounds'?",
            "help settings",
        ),
        ("rounds=2", "Write critic.rounds or tools.rounds.", "help settings"),
        ("word_limit=0", "0 is not a whole number of at least 1.", "Word limit"),
        ("raw=7", "7 is neither true nor false.", "Write true or false."),
        ("unreadable=frist", "Did you mean 'first'?", "Choose first or fail."),
        ("nowhere.toml", "The settings cannot be read: No such file or directory.", "Name a .toml file"),
        ("bad.toml", "The settings file is not valid TOML", "shows an example"),
        ("list.toml", "There is no setting 'critics.role'. Did you mean 'critic.role'?", "help settings"),
        ("critic.rounds=2", "This is for the critic, and there is no critic.", "Give --critic ROLE, too."),
        ("tools.rounds=2", "This is for the tool, and there is no tool.", "Give --tools FILE.py, too."),
        ("word", "'word' is neither KEY=VALUE nor a .toml file.", "For example"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    folder: Path, setting: str, complaint: str, then: str
) -> None:
    (folder / "bad.toml").write_text("a = = 1")
    (folder / "list.toml").write_text('[critics]\nrole = "Host"')
    done = bactrian(*PLAY, "--set", setting, cwd=folder)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert then in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_a_society_refuses_settings_that_its_own_file_has(folder: Path) -> None:
    for words in (("--set", "word_limit=9"), ("--specify",), ("--set", "parameters.temperature=1")):
        done = bactrian("play", "--society", "panel", *words, cwd=folder)
        assert (done.returncode, "cannot be combined with --society" in done.stderr) == (2, True), done.stderr


def test_a_run_takes_a_file_of_changes_and_settings_of_its_endpoint(folder: Path) -> None:
    (folder / "less.toml").write_text(
        "[endpoint]\ntimeout = 9\n[role_play]\nmax_messages = 2\nspecify = false\n[task]\ncount = 1\n"
    )
    done = bactrian(
        *("generate", "ai-society", "--run", "tea.db", "--set", "less.toml", "--set", "task.given=['Tea']"),
        *("--model", "scripted:script.json", "--limit", "1", "--forecast", "--json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    refused = bactrian("generate", "ai-society", "--run", "a.db", "--set", "endpoint.timout=3", cwd=folder)
    assert "Did you mean 'endpoint.timeout'?" in refused.stderr
