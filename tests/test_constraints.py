"""constraints.txt holds a version of everything that an installation brings."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LINES = [
    line
    for line in (Path(__file__).parent.parent / "constraints.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
KNOWN = {canonicalize_name(line.partition("==")[0]) for line in LINES}


def follow(requirement: Requirement, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Names of what ``requirement`` brings in this environment, its extras and their needs included."""
    name = canonicalize_name(requirement.name)
    for extra in {"", *requirement.extras}:
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            needs = requires(requirement.name) or []
        except PackageNotFoundError:
            continue
        yield name
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                yield from follow(need, seen)


def test_every_line_is_one_exact_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[a-z0-9-]+==[0-9][\w.+]*", line)] == []
    assert len(KNOWN) == len(LINES)


def test_everything_that_is_installed_for_development_has_its_version() -> None:
    installed = set(follow(Requirement("bactrian[dev]"), set())) - {"bactrian"}
    assert len(installed) > 50
    assert installed - KNOWN == set()


@pytest.mark.skipif(sys.platform != "linux", reason="the lines are those of Linux")
def test_no_line_is_left_over() -> None:
    assert KNOWN - set(follow(Requirement("bactrian[dev]"), set())) == set()
