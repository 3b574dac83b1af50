"""The help: the same options everywhere, examples that can be given, and the fix for a wrong command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bactrian.cli.examples import EXAMPLES
from bactrian.cli.main import COMMANDS
from bactrian.cli.options import SHORT_NAMES
from tests.helpers.command import bactrian

NOT_FROM_THE_ENVIRONMENT = {"--help", "--verbose", "--unsafe-exec", "-k"}
"""What a person has to write each time, and what has no long name."""


def list_leaves() -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its words."""
    for name, lazy in COMMANDS.items():
        command = lazy.load(name)
        yield name, command
        for part, inner in getattr(command, "commands", {}).items():
            yield f"{name} {part}", inner


LEAVES = dict(list_leaves())


def list_options(words: str) -> list[Any]:
    return [one for one in LEAVES[words].params if one.param_type_name == "option" and not one.hidden]


@pytest.mark.parametrize("words", LEAVES)
def test_the_options_of_a_command_are_those_of_all_commands(words: str) -> None:
    for option in list_options(words):
        names = sorted(option.opts, key=len)
        if (long := names[-1]) in SHORT_NAMES:
            assert SHORT_NAMES[long] in names
        if long not in NOT_FROM_THE_ENVIRONMENT:
            assert option.envvar == f"BACTRIAN_{long.removeprefix('--').replace('-', '_').upper()}"
        assert option.help.strip().endswith("."), f"{long}: {option.help}"
        if option.multiple and long != "--critic":
            assert "repeated" in option.help, long
    used = [name for option in list_options(words) for name in option.opts]
    assert len(used) == len(set(used))


@pytest.mark.parametrize("words", LEAVES)
def test_a_default_is_what_its_option_makes_of_it(words: str) -> None:
    command = LEAVES[words]
    with command.make_context(words, [], resilient_parsing=True) as context:
        for one in command.params:
            if one.default is not None and not one.required and one.callback is None:
                made = type(one).process_value(one, context, one.default)
                assert (type(made), made) == (type(one.default), one.default), one.name


@pytest.mark.parametrize("words", LEAVES)
def test_the_help_of_a_command_is_whole_and_has_examples(tmp_path: Path, words: str) -> None:
    output = bactrian(*words.split(), "-h", cwd=tmp_path).stdout
    assert "..." not in re.sub(r"[A-Z0-9\]]\.\.\.", "", output), "a sentence is cut"
    assert not re.search(r"<\w+>|x>=|int range", output), output
    assert "-h, --help" in output
    assert "\nExamples:\n" in output


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_can_be_given(words: str) -> None:
    for line in EXAMPLES[words]:
        given = shlex.split(line.partition(" > ")[0])[1:]
        name = max((one for one in LEAVES if given[: len(one.split())] == one.split()), key=len)
        options = {one for option in LEAVES[name].params for one in (*option.opts, *option.secondary_opts)}
        used = {one for one in given if re.match(r"-{1,2}[a-z]", one)}
        assert used <= options | {"--help"}, line


def test_help_is_a_command_too(tmp_path: Path) -> None:
    assert (
        bactrian("help", "recipes", "show", cwd=tmp_path).stdout
        == bactrian("recipes", "show", "--help", cwd=tmp_path).stdout
    )
    assert "Make conversations:" in bactrian("help", cwd=tmp_path).stdout


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    def complete(words: str, index: int) -> list[str]:
        return bactrian(
            cwd=tmp_path, _BACTRIAN_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(index)
        ).stdout.split()

    assert complete("bactrian ex", 1) == ["export", "explore"]
    assert "--user-model" in complete("bactrian play --user", 2)
    assert complete("bactrian recipes s", 2) == ["show"]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("paly", "Did you mean 'play'?"),
        ("recipes shwo", "Did you mean 'show'?"),
        ("play build a bot", 'bactrian play "build a bot"'),
        ("roles plan a garden", 'bactrian roles "plan a garden"'),
        ("verify one.db two.db", "takes no further argument 'two.db'"),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_fix(tmp_path: Path, line: str, fix: str) -> None:
    result = bactrian(*line.split(), cwd=tmp_path)
    assert result.returncode == 2
    assert fix in result.stderr
    assert len(result.stderr.splitlines()) <= 3


def test_an_address_in_the_help_is_whole_and_its_value_has_a_name(tmp_path: Path) -> None:
    told = bactrian("explore", "--help", cwd=tmp_path).stdout
    assert "--host ADDRESS" in told
    assert "[default: 127.0.0.1]" in told
