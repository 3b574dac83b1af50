"""Workflows, hooks and citations say the same as the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import bactrian
from bactrian.cli.commands.doctor import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
YAML = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (".github/**/*.yml", ".pre-commit-config.yaml", "CITATION.cff")
    for path in ROOT.glob(pattern)
)


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


@pytest.mark.parametrize("name", YAML)
def test_every_yaml_file_can_be_read(name: str) -> None:
    assert isinstance(read(name), dict)


def test_the_workflow_runs_every_python_that_the_package_names() -> None:
    named = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    matrix = read(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"os": ["ubuntu-latest", "macos-latest"], "python": named}


def test_the_workflow_requires_the_sandbox_on_linux() -> None:
    steps = read(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    (setup,) = [step for step in steps if "bubblewrap" in step.get("run", "")]
    assert setup["if"] == "runner.os == 'Linux'"
    assert "BACTRIAN_REQUIRE_SANDBOX=1" in setup["run"]
    (tests,) = [step for step in steps if step.get("run", "").startswith("pytest")]
    assert steps.index(setup) < steps.index(tests)


def test_every_script_of_the_workflow_is_there_and_can_be_run() -> None:
    steps = [step for job in read(".github/workflows/ci.yml")["jobs"].values() for step in job["steps"]]
    scripts = [ROOT / step["run"] for step in steps if step.get("run", "").startswith(".ci/")]
    assert scripts
    assert all(script.stat().st_mode & 0o111 for script in scripts)


def test_the_citation_and_the_changelog_name_this_version() -> None:
    assert read("CITATION.cff")["version"] == bactrian.__version__
    assert f"\n## {bactrian.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_doctor_looks_for_every_optional_part() -> None:
    extras = PROJECT["optional-dependencies"]
    (named,) = extras["all"]
    assert sorted(EXTRAS) == sorted(named.removeprefix("bactrian[").removesuffix("]").split(","))
    for extra, (package, _) in EXTRAS.items():
        assert any(re.match(rf"{package}\b", need) for need in extras[extra]), extra


def test_pytorch_is_only_in_the_extras_for_training() -> None:
    extras = PROJECT["optional-dependencies"]
    heavy = {name for name, needs in extras.items() for need in needs if need.startswith(("trl", "torch"))}
    assert heavy == {"train", "trl"}
    assert not [
        need for name in ("all", "dev") for need in extras[name] if re.search(r"\[.*(trl|train)", need)
    ]
