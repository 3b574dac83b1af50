"""Asks a judge about the findings of a run, and stores each answer before the next question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from bactrian.analyze.judging.judge import SAMPLING, judge
from bactrian.analyze.report import to_object
from bactrian.errors import ModelError
from bactrian.models.model import Model
from bactrian.records.finding import BEHAVIOURS, Behaviour, Confirmation, Finding
from bactrian.records.sampling import Sampling
from bactrian.records.usage import Usage
from bactrian.stats.proportion import Proportion
from bactrian.store import Store

Key = tuple[str, int, Behaviour]
"""Session, turn and behaviour of a finding."""


async def confirm_findings(
    store: Store,
    findings: Sequence[Finding],
    model: Model,
    name: str,
    *,
    sampling: Sampling = SAMPLING,
    at_once: int = 8,
    on_answer: Callable[[Confirmation], None] | None = None,
) -> dict[Key, Confirmation]:
    """Ask the judge ``model``, named ``name``, about every finding that it has not answered before.

    Args:
        store: Opened for writing; an answer is on disk before ``on_answer`` is called.
        findings: In the order of their sessions.
        model: Its errors about every question stop the work: a reached budget, an endpoint that is down.
        name: Identifies stored answers when the work is resumed.
        sampling: Sampling parameters of the judge.
        at_once: Number of sessions that are judged concurrently.
        on_answer: Called with each new answer.
    """
    answers = {make_key(one): one for one in await store.confirmations(name)}
    waiting = _open(findings, answers)

    async def work() -> None:
        for session_id, some in waiting:
            session = await store.session(session_id)
            if session is None:
                continue
            for finding in some:
                try:
                    answer = await judge(model, name, session, finding, sampling)
                except ModelError as error:
                    if error.endpoint_wide:
                        raise
                    # A refusal is stored as an answer, so that it is not requested again.
                    where = (session_id, finding.turn, finding.behaviour)
                    answer = Confirmation(*where, name, None, str(error), Usage(), 0.0, name)
                await store.add_confirmation(answer)
                answers[make_key(answer)] = answer
                if on_answer is not None:
                    on_answer(answer)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    return answers


def make_key(of: Finding | Confirmation) -> Key:
    """Return the key shared by a finding and the answer to it."""
    return of.session, of.turn, of.behaviour


def list_unasked(findings: Sequence[Finding], answers: Sequence[Confirmation]) -> int:
    """Return the number of findings without an answer."""
    return len({make_key(one) for one in findings} - {make_key(one) for one in answers})


def list_judged(
    name: str, findings: Sequence[Finding], answers: dict[Key, Confirmation], sessions: int
) -> dict[str, Any]:
    """Return the report's part on the judge: the share of confirmed findings, and of sessions with any."""
    behaviours: dict[str, Any] = {}
    own = {one.behaviour: None for one in findings if one.behaviour not in BEHAVIOURS}
    for behaviour in (*BEHAVIOURS, *own):
        asked = [
            one
            for one in (answers.get(make_key(each)) for each in findings if each.behaviour == behaviour)
            if one
        ]
        read = [one for one in asked if one.holds is not None]
        upheld = [one for one in read if one.holds]
        behaviours[behaviour] = {
            "asked": len(asked),
            "unreadable": len(asked) - len(read),
            "confirmed": to_object(Proportion(len(upheld), len(read))),
            **to_object(Proportion(len({one.session for one in upheld}), sessions), "sessions"),
        }
    used = sum((one.usage for one in answers.values()), Usage())
    return {"judge": name, "tokens": used.total, "behaviours": behaviours}


def _open(
    findings: Sequence[Finding], answers: dict[Key, Confirmation]
) -> Iterator[tuple[str, list[Finding]]]:
    """Yield findings without an answer, by session, for several workers."""
    for session, some in groupby(findings, key=lambda finding: finding.session):
        left = {make_key(one): one for one in some if make_key(one) not in answers}
        if left:
            yield session, list(left.values())
