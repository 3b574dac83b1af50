"""The label queues of the parts of a run, when these become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.invitations import invite_voters, read_invitations
from bactrian.evaluate.label_queues import (
    GivenLabels,
    create_queue,
    find_queues,
    make_queue,
    match_queues,
    merge_queues,
    read_given,
    read_queue,
    store_labels,
)
from tests.helpers.runs import make_run, session


async def test_the_whole_has_the_queues_of_its_parts(tmp_path: Path) -> None:
    parts = [tmp_path / "a.db", tmp_path / "b.db"]
    some = [session(f"s{number}", task="Tea" if number < 2 else f"Task {number}") for number in range(4)]
    whole = await make_run(tmp_path / "whole.db", some)
    for part, person, chosen in zip(parts, ("heron", "tern"), (some[:2], some[1:]), strict=True):
        folder = create_queue(part, "tone", make_queue({"kind": "It is kind."}, chosen, exclusive=False))
        invite_voters(folder, [person])
        store_labels(folder, read_queue(folder), GivenLabels("s1", person, {"kind": 0}), None)
    for _ in range(2):
        await merge_queues(match_queues(parts, whole), whole)
    folder = find_queues(whole)["tone"]
    queue = read_queue(folder)
    assert queue.sessions == ("s0", "s1", "s2", "s3")
    assert queue.clusters[0] == queue.clusters[1] != queue.clusters[2]
    assert [(answer.session, answer.person) for answer in read_given(folder)] == [
        ("s1", "heron"),
        ("s1", "tern"),
    ]
    assert [each.voter for each in read_invitations(folder)] == ["heron", "tern"]
    create_queue(parts[0], "odd", make_queue({"kind": ""}, some, exclusive=False))
    create_queue(parts[1], "odd", make_queue({"rude": ""}, some, exclusive=False))
    with pytest.raises(InputError, match="different labels"):
        match_queues(parts, whole)


async def test_an_answer_that_does_not_fit_its_queue_is_refused_and_not_stored(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [some := session("s1")])
    folder = create_queue(run, "tone", make_queue({"warm": "", "cold": ""}, [some], exclusive=True))
    for labels, problem in (
        ({"warm": 0, "cold": 0}, "Choose one"),
        ({}, "Choose one"),
        ({"rude": 0}, "no such"),
    ):
        with pytest.raises(InputError, match=problem):
            store_labels(folder, read_queue(folder), GivenLabels("s1", "heron", labels), None)
    assert read_given(folder) == []
