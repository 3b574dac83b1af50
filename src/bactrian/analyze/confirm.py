"""A judge's answers to the findings of a run, each kept before the next question goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from bactrian.analyze.judge import judge
from bactrian.analyze.report import to_object
from bactrian.errors import Filtered
from bactrian.models.model import Model
from bactrian.records.finding import BEHAVIOURS, Behaviour, Confirmation, Finding
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
    at_once: int = 8,
    on_answer: Callable[[Confirmation], None] | None = None,
) -> dict[Key, Confirmation]:
    """Ask the judge ``model``, called ``name``, about every finding that it has not answered before.

    Args:
        store: Opened for writing; an answer is on disk before ``on_answer`` is told of it.
        findings: In the order of their sessions.
        model: Raises what stops the work: a budget that is reached, an endpoint that is down.
        name: By which answers are known when the work is taken up again.
        at_once: Sessions whose findings are asked about at the same time.
        on_answer: Is told of each new answer.
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
                    answer = await judge(model, name, session, finding)
                except Filtered as error:
                    # An answer too: what was said is more than this endpoint wants to look at.
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
    """What a finding and the answer to it have in common."""
    return of.session, of.turn, of.behaviour


def list_unasked(findings: Sequence[Finding], answers: Sequence[Confirmation]) -> int:
    """How many findings have no answer yet."""
    return len({make_key(one) for one in findings} - {make_key(one) for one in answers})


def list_judged(
    name: str, findings: Sequence[Finding], answers: dict[Key, Confirmation], sessions: int
) -> dict[str, Any]:
    """What the judge said, as a part of the report: the share of findings it confirms, and of sessions then left."""
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
    """Findings without an answer, session by session. Several workers take from it in turn."""
    for session, some in groupby(findings, key=lambda finding: finding.session):
        left = {make_key(one): one for one in some if make_key(one) not in answers}
        if left:
            yield session, list(left.values())
