"""The help: the same options everywhere, examples that can be given, and the fix for a wrong command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import bactrian as package
from bactrian.cli.commands.help import list_topics
from bactrian.cli.flags import SHORT_NAMES
from bactrian.cli.help_form import load_verb
from bactrian.cli.verbs import VERBS
from tests.helpers.command import bactrian

PACKAGE = Path(package.__file__).parent
NOT_FROM_THE_ENVIRONMENT = {"--help", "--verbose", "--unsafe-exec", "-k"}
"""What a person has to write each time, and what has no long name."""


LEAVES: dict[str, Any] = {words: load_verb(words) for words in VERBS}


def list_options(words: str) -> list[Any]:
    return [
        option for option in LEAVES[words].params if option.param_type_name == "option" and not option.hidden
    ]


@pytest.mark.parametrize("words", LEAVES)
def test_the_options_of_a_command_are_those_of_all_commands(words: str) -> None:
    for option in list_options(words):
        names = sorted(option.opts, key=len)
        if (long := names[-1]) in SHORT_NAMES:
            assert SHORT_NAMES[long] in names
        # BACTRIAN_TIER is the tier of the sandbox, and none of a provider.
        is_service_tier = long == "--tier" and "flex" in getattr(option.type, "choices", ())
        if long not in NOT_FROM_THE_ENVIRONMENT and not is_service_tier:
            assert option.envvar == f"BACTRIAN_{long.removeprefix('--').replace('-', '_').upper()}"
        assert option.help.strip().endswith("."), f"{long}: {option.help}"
        if option.multiple and long != "--critic":
            assert "repeated" in option.help, long
    used = [name for option in list_options(words) for name in option.opts]
    assert len(used) == len(set(used))


@pytest.mark.parametrize("words", LEAVES)
def test_the_help_of_a_command_is_whole_and_has_examples(tmp_path: Path, words: str) -> None:
    output = bactrian(*words.split(), "-h", cwd=tmp_path).stdout
    assert "..." not in re.sub(r"[A-Z0-9\]]\.\.\.", "", output), "a sentence is cut"
    assert not re.search(r"<\w+>|x>=|int range", output), output
    assert "-h, --help" in output
    assert "\nExamples:\n" in output


def test_a_summary_says_what_the_command_says_itself() -> None:
    told = {words: " ".join(command.help.partition("\n\n")[0].split()) for words, command in LEAVES.items()}
    assert {words: verb.summary for words, verb in VERBS.items() if not verb.hidden} == {
        words: text for words, text in told.items() if not VERBS[words].hidden
    }


@pytest.mark.parametrize("words", VERBS)
def test_an_example_can_be_given(words: str) -> None:
    for line in VERBS[words].examples:
        example = shlex.split(line.partition(" > ")[0])[1:]
        name = max((leaf for leaf in LEAVES if example[: len(leaf.split())] == leaf.split()), key=len)
        options = {flag for option in LEAVES[name].params for flag in (*option.opts, *option.secondary_opts)}
        used = {word for word in example if re.match(r"-{1,2}[a-z]", word)}
        assert used <= options | {"--help"}, line


def test_a_required_option_that_is_missing_is_named(tmp_path: Path) -> None:
    required = {
        words: [
            option.opts[-1]
            for option in command.params
            if option.required and option.param_type_name == "option"
        ]
        for words, command in LEAVES.items()
    }
    assert {"generate", "export", "import", "recover", "evaluate pairwise"} <= {
        words for words, options in required.items() if options
    }
    for words in (words for words, options in required.items() if options):
        arguments = ["x" for param in LEAVES[words].params if param.param_type_name == "argument"]
        refused = bactrian(*words.split(), *arguments, cwd=tmp_path)
        assert refused.returncode == 2, words
        assert "is missing" in refused.stderr, words
        assert required[words][0] in refused.stderr, words


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("--set=timeout=nan", "'nan' is not a number."),
        ("--set=timeout=0", "0 is not a number above 0."),
        ("--seed=2.5", "'2.5' is not a whole number."),
        ("--max-messages=0", "0 is not a whole number of at least 1."),
        ("--proposals=101", "101 is not a whole number from 1 to 100."),
        ("--budget=nan", "'nan' is not a number."),
    ],
)
def test_a_number_out_of_its_limits_is_refused(tmp_path: Path, value: str, why: str) -> None:
    refused = bactrian("play", "tea", value, cwd=tmp_path)
    assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr


def test_help_is_a_command_too(tmp_path: Path) -> None:
    assert (
        bactrian("help", "recipes", "show", cwd=tmp_path).stdout
        == bactrian("recipes", "show", "--help", cwd=tmp_path).stdout
    )
    overview = bactrian("help", cwd=tmp_path).stdout
    assert "Make conversations:" in overview
    assert overview.count("Join and copy runs:") == 1
    assert overview.index("Join and copy runs:") < overview.index("  merge ") < overview.index("  push ")
    assert overview.index("  push ") < overview.index("Check and repair:")


def test_every_page_that_a_message_names_can_be_read_without_a_checkout(tmp_path: Path) -> None:
    topics = list_topics()
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    named = {name for text in texts.values() for name in re.findall(r"`bactrian help ([\w.-]+)`", text)}
    assert {"settings", "recipes.md", "societies.md"} <= named
    assert named - topics.keys() - VERBS.keys() == {"PAGE"}
    messages = re.compile(r"(?:next|help|what)=f?\"[^\"]*\\bdocs/|FileKind\([^)]*docs/")
    assert [path for path, text in texts.items() if messages.search(text)] == []


def test_a_page_is_read_by_its_name_in_the_terminal(tmp_path: Path) -> None:
    page = bactrian("help", "budget", cwd=tmp_path).stdout
    assert page.startswith("# Budgets and forecasts\n")
    assert "](" not in page
    assert "<!--" not in page
    assert page == bactrian("help", "docs/howto/budget.md", cwd=tmp_path).stdout
    assert bactrian("help", "recipes.md", cwd=tmp_path).stdout.startswith("# Recipes")
    assert "bactrian help recipes.md" in bactrian("help", "recipes", cwd=tmp_path).stdout
    assert "tutorial" in bactrian("help", cwd=tmp_path).stdout
    assert "are in the source repository" in bactrian("help", "statistics", cwd=tmp_path).stdout
    assert "source repository" not in page
    wrong = bactrian("help", "tutoral", cwd=tmp_path)
    assert (wrong.returncode, "Did you mean 'tutorial'?" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "what", "then"),
    [
        ("play --modle x", "play: There is no option --modle. Did you mean --model?", "--help"),
        ("play --criterai x", "Did you mean --set critic.criteria=VALUE?", "--help"),
        (
            "play --protocol fre",
            "--protocol: 'fre' is not among its values. Did you mean 'free'?",
            "free or enforced",
        ),
        ("play --model", "play: --model lacks its value.", "Write --model MODEL."),
        ("play --json=3", "play: --json takes no value.", "Write --json alone."),
        ("generate", "generate: The argument RECIPE is missing.", "`bactrian generate RECIPE --run RUN`"),
        ("evaluate --nope", "evaluate: There is no option --nope.", "`bactrian evaluate --help`"),
        ("--nope", "There is no option --nope.", "`bactrian --help`"),
        ("recipes show", "recipes show: The argument", "Write `bactrian recipes show"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_wording(tmp_path: Path, line: str, what: str, then: str) -> None:
    result = bactrian(*line.split(), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert what in result.stderr.splitlines()[0]
    assert then in result.stderr
    assert "Usage" not in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_a_value_from_the_environment_is_refused_by_the_name_of_its_variable(tmp_path: Path) -> None:
    refused = bactrian("play", "tea", cwd=tmp_path, BACTRIAN_MAX_MESSAGES="x")
    assert refused.stderr.startswith("bactrian: BACTRIAN_MAX_MESSAGES: 'x' is not a whole number.")


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    def complete(words: str, index: int) -> list[str]:
        return (
            bactrian(
                cwd=tmp_path, _BACTRIAN_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(index)
            )
            .stdout.replace("plain,", "")
            .split()
        )

    assert complete("bactrian ex", 1) == ["explore", "export"]
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
    assert "[default: 127.0.0.1]" in " ".join(told.split())
