"""The judge and other checks of detectors: verdicts on findings, a sample for recall, and findings for a person.

Its prompts are the templates ``judge_…`` of ``protocol/engine.toml``, with the definition of the behaviour, which the
detector uses, too (:func:`~bactrian.analyze.behaviours.load_definitions`).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from heapq import nsmallest
from itertools import groupby
from time import perf_counter
from typing import Any

from bactrian.analyze.aggregate import SessionSummary
from bactrian.analyze.behaviours import (
    DETECTORS,
    LIKELY,
    OwnBehaviour,
    find_behaviours,
    find_installed,
    load_definitions,
)
from bactrian.analyze.estimates import SessionSample, write_share
from bactrian.analyze.learned import OF_INSTRUCTIONS, PAPER, has_instructor
from bactrian.errors import ModelError
from bactrian.models.model import Model, Request, ResponseFormat, derive_sampling, get_traits
from bactrian.protocol.pack import render_prompt
from bactrian.records.run import BEHAVIOURS, Behaviour, Confirmation, Finding, FindingKey
from bactrian.records.session import HUMAN, Session, find_kind
from bactrian.records.text import Text, write_count
from bactrian.records.turn import Message, Sampling, Turn, Usage
from bactrian.stats.clusters import ClusterEstimate, ClusterTotals, estimate_ratio
from bactrian.stats.intervals import Stratum, estimate_prevalence
from bactrian.store import RunStore

JUDGE = "judge"
TURNS_SHOWN = 5  # the turn in question and those before it
# Tokens of a question besides these turns, mostly for the definition. An estimate, for forecasts.
QUESTION_TOKENS = 400
ANSWER_TOKENS = 40  # Estimated tokens of an answer
_LONGEST = 3000  # maximum characters of a turn in a question; of a longer turn, both ends are included
_ANSWER = re.compile(r"[*_#>\"' \t]*(yes|no)\b", re.IGNORECASE)
SAMPLING = Sampling(temperature=0.0, max_tokens=120)  # the judge's default sampling parameters


# The format is enforced only by grammar: other models' answers are parsed well enough without it.
_FORM = ResponseFormat(
    name="judgement",
    schema={"type": "string"},
    grammar='root ::= ("Yes" | "No") ". " [A-Z] [^\\n]{1,160} "."\n',
    read=str,
)


async def judge(
    model: Model,
    name: str,
    session: Session,
    finding: Finding,
    sampling: Sampling = SAMPLING,
    unread: str | None = None,
) -> Confirmation:
    """Ask ``model`` about ``finding``, again after an ``unread`` answer. Raises the model's errors."""
    correction: tuple[Message, ...] = ()
    if unread is not None:
        sampling = derive_sampling(sampling, JUDGE, finding.turn, 1)
        if unread.strip():
            correction = (
                Message("assistant", Text(unread)),
                Message("user", Text(render_prompt("judge_again"))),
            )
    request = Request(
        messages=(
            Message("system", Text(render_prompt("judge_system", definition=_definition(finding)))),
            Message("user", Text(_question(session.turns, finding))),
            *correction,
        ),
        sampling=sampling,
        response_format=_FORM if get_traits(model).constrained_by == "grammar" else None,
        session=session.id,
        agent=JUDGE,
        call_index=finding.turn,
    )
    begun = perf_counter()
    reply = await model.reply(request)
    return Confirmation(
        *finding.key,
        judge=name,
        holds=read_answer(reply.text),
        text=str(reply.text),
        usage=reply.usage,
        seconds=perf_counter() - begun,
        model=reply.model,
    )


def read_answer(text: str) -> bool | None:
    """Return True if an answer begins with yes, False if with no, else None."""
    match = _ANSWER.match(text)
    return None if match is None else match[1].lower() == "yes"


def _definition(finding: Finding) -> str:
    if finding.behaviour not in DETECTORS:
        known = {behaviour.code: behaviour.description for behaviour in find_installed()}
        return known.get(finding.behaviour, finding.behaviour.replace("_", " "))
    return load_definitions()[finding.behaviour].strip()


def _question(turns: Sequence[Turn], finding: Finding) -> str:
    """Return the previous turns, then the turn in question."""
    shown = [turn for turn in turns if finding.turn - TURNS_SHOWN < turn.number <= finding.turn]
    speakers = [render_prompt("judge_speaker", speaker=turn.speaker, role=turn.role) for turn in shown]
    shown_turns = [
        render_prompt("judge_turn", turn=turn.number, speaker=speaker, text=_cut(turn.text))
        for turn, speaker in zip(shown, speakers, strict=True)
    ]
    return render_prompt(
        "judge_question",
        turns="\n\n".join(shown_turns),
        turn=finding.turn,
        speaker=speakers[-1],
        fault=finding.behaviour.replace("_", " "),
    )


def _cut(text: str) -> str:
    text = text.strip() or render_prompt("judge_nothing")
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}\n[…]\n{text[-half:]}"


# Asks a judge about the findings of a run, and stores each answer before the next question.


async def confirm_findings(
    store: RunStore,
    findings: Sequence[Finding],
    model: Model,
    name: str,
    *,
    sampling: Sampling = SAMPLING,
    at_once: int = 8,
    retry_unread: bool = False,
    on_answer: Callable[[Confirmation], bool] | None = None,
) -> dict[FindingKey, Confirmation]:
    """Ask the judge ``model``, named ``name``, about every finding that it has not answered before.

    Args:
        store: Opened for writing; an answer is on disk before ``on_answer`` is called.
        findings: In the order of their sessions.
        model: Its errors about every question stop the work: a reached budget, an endpoint that is down.
        name: Identifies stored answers when the work is resumed.
        sampling: Sampling parameters of the judge.
        at_once: Number of sessions that are judged concurrently.
        retry_unread: Whether it is asked again where its stored answer could not be read.
        on_answer: Called with each new answer; once it returns True, no further question is asked.
    """
    answers = {answer.key: answer for answer in await store.confirmations(name)}
    left = list_unasked(findings, [*answers.values()], retry_unread=retry_unread)
    unanswered = {finding.key: finding for finding in findings if finding.key in left}
    # One iterator for all workers: each takes the next session.
    waiting = groupby(list(unanswered.values()), key=lambda finding: finding.session)

    async def work() -> None:
        for session_id, group in waiting:
            some = list(group)  # before the next worker moves the iterator on
            session = await store.session(session_id)
            if session is None:
                continue
            for finding in some:
                await ask(session, finding)
                if on_answer is not None and on_answer(answers[finding.key]):
                    return

    async def ask(session: Session, finding: Finding) -> None:
        # An answer that replaces another one has the tokens of both, so that nothing paid for leaves the sums.
        paid = answers[finding.key].usage if finding.key in answers else Usage()
        unread: str | None = None
        refused = False
        for _ in range(2):
            try:
                answer = await judge(model, name, session, finding, sampling, unread)
            except ModelError as error:
                if error.endpoint_wide:
                    raise
                # A refusal is stored as an answer, so that it is not requested again.
                refused, used = True, Usage(*error.spent)
                answer = Confirmation(*finding.key, name, None, str(error), used, 0.0, name)
            paid += answer.usage
            answers[finding.key] = answer = replace(answer, usage=paid)
            await store.add_confirmation(answer)
            if refused or answer.holds is not None:
                return
            unread = answer.text

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    return answers


def list_unasked(
    findings: Sequence[Finding], answers: Sequence[Confirmation], *, retry_unread: bool = False
) -> set[FindingKey]:
    """Return the findings without an answer, and with ``retry_unread`` those whose answer could not be read."""
    answered = {answer.key for answer in answers if answer.holds is not None or not retry_unread}
    return {finding.key for finding in findings} - answered


def list_judged(
    name: str,
    findings: Sequence[Finding],
    answers: dict[FindingKey, Confirmation],
    facts: Sequence[SessionSummary],
) -> dict[str, Any]:
    """Return the report's part on the judge: the share of confirmed findings, and of sessions with any.

    Answers that could not be read widen the interval of the first to the worst case. The second is not known unless
    each finding of the behaviour has an answer that could be read.
    """
    behaviours: dict[str, Any] = {}
    sample = SessionSample(facts)
    total = ClusterTotals(sample.labels, name=sample.name)
    others = {finding.behaviour: None for finding in findings if finding.behaviour not in BEHAVIOURS}
    for behaviour in (*BEHAVIOURS, *others):
        keys = [finding.key for finding in findings if finding.behaviour == behaviour]
        asked = [answers[key] for key in keys if key in answers]
        unread = sum(answer.holds is None for answer in asked)
        upheld = {answer.session for answer in asked if answer.holds}
        kept = [label for of, label in zip(facts, sample.labels, strict=True) if of.id in upheld]
        share = write_share(len(kept), total.estimate(Counter(kept)), "sessions")
        if missing := len(keys) - len(asked) + unread:
            share |= {"rate": None, "low": None, "high": None}
            share["withheld"] = f"{write_count(missing, 'finding')} without an answer that could be read"
        behaviours[behaviour] = {
            "asked": len(asked),
            "unreadable": unread,
            "confirmed": _share_confirmed(asked),
            **share,
        }
    used = sum((answer.usage for answer in answers.values()), Usage())
    return {"judge": name, "tokens": used.total, "behaviours": behaviours}


def _share_confirmed(asked: Sequence[Confirmation]) -> dict[str, Any]:
    """Return the share of confirmed findings among those whose answer could be read, as JSON."""

    def estimate(held: Sequence[bool | None]) -> ClusterEstimate:
        right, read = Counter[str](), Counter[str]()
        for answer, holds in zip(asked, held, strict=True):
            if holds is not None:
                right[answer.session] += holds
                read[answer.session] += 1
        return estimate_ratio(((right[of], count) for of, count in read.items()), "share")

    held = [answer.holds for answer in asked]
    share = write_share(held.count(True), estimate(held))
    if None in held and share["low"] is not None:
        share["low"] = estimate([bool(holds) for holds in held]).low
        share["high"] = estimate([holds is not False for holds in held]).high
    return share


# A sample of turns for a judge, found and not found, and what its answers say of the whole run.
#
# Findings alone show how many of them are wrong, but not what the detector misses. A random sample of the
# other turns does, so that the corrected rate is right even where the detector is not.


# Behaviours that only the AI assistant can show.
_OF_ASSISTANT: tuple[Behaviour, ...] = ("repeats_instruction", "flake_reply")


@dataclass(frozen=True, slots=True)
class SampledPart:
    """A random sample of the turns that a detector treats alike."""

    asked: tuple[Finding, ...]  # of turns without a finding, with confidence 0
    turns: int  # of the run


# The parts `found`, `possible` and `other` of each behaviour: so those where the answer matters are asked about.
Samples = Mapping[Behaviour, Mapping[str, SampledPart]]


async def sample_turns(store: RunStore, findings: Iterable[Finding], size: int) -> Samples:
    """Choose at most ``size`` findings, candidates and other turns, for each of the paper's behaviours.

    The choice is by hash, so that a resumed analysis asks about the same turns.
    """
    detected = {finding.key: finding for finding in findings if finding.behaviour in PAPER}
    other: dict[Behaviour, list[Finding]] = {behaviour: [] for behaviour in PAPER}
    counts = dict.fromkeys(PAPER, 0)
    async for session in store.sessions():
        if find_kind(session) == "talk":
            continue
        possible = [
            behaviour for behaviour in PAPER if behaviour not in OF_INSTRUCTIONS or has_instructor(session)
        ]
        for turn in session.turns:
            for behaviour in possible:
                if behaviour in _OF_ASSISTANT and turn.speaker != "assistant":
                    continue
                if (session.id, turn.number, behaviour) not in detected:
                    counts[behaviour] += 1
                    other[behaviour].append(Finding(session.id, turn.number, behaviour, 0.0, ""))
        for behaviour, turns in other.items():
            if len(turns) > 2 * size:
                other[behaviour] = nsmallest(size, turns, key=_hash)
    sample: dict[Behaviour, dict[str, SampledPart]] = {}
    for behaviour in PAPER:
        mine = [finding for finding in detected.values() if finding.behaviour == behaviour]
        sure = [finding for finding in mine if finding.confidence >= LIKELY]
        doubtful = [finding for finding in mine if finding.confidence < LIKELY]
        sample[behaviour] = {
            "found": _draw(sure, size, len(sure)),
            "possible": _draw(doubtful, size, len(doubtful)),
            "other": _draw(other[behaviour], size, counts[behaviour]),
        }
    return sample


def _draw(turns: Sequence[Finding], size: int, of: int) -> SampledPart:
    return SampledPart(tuple(nsmallest(size, turns, key=_hash)), of)


def list_questions(sample: Samples) -> list[Finding]:
    """Return all sampled turns in the order of their sessions."""
    every = [finding for of in sample.values() for part in of.values() for finding in part.asked]
    return sorted(every, key=lambda finding: (finding.session, finding.turn, finding.behaviour))


def correct_rates(sample: Samples, answers: Mapping[FindingKey, Confirmation]) -> dict[str, Any]:
    """Return, for each behaviour, the corrected share of turns, and precision and recall of the detector.

    Each has the ends of its 95 % interval. The judge's answers count as the truth; unreadable ones widen the interval
    to the worst case. A behaviour of which a part has no answer that could be read is left out.
    """
    corrected: dict[str, Any] = {}
    for behaviour, of in sample.items():
        strata = {name: _count_answers(part, answers) for name, part in of.items()}
        found, possible, other = strata.values()
        if any(part.items and not part.checked for part in strata.values()) or not other.items:
            continue
        corrected[behaviour] = {
            **{
                name: {
                    "turns": part.items,
                    "asked": part.checked + part.unread,
                    "unreadable": part.unread,
                    "confirmed": part.held,
                }
                for name, part in strata.items()
            },
            "detected_rate": found.items / max(1, found.items + possible.items + other.items),
            **asdict(estimate_prevalence(found, possible, other)),
        }
    return corrected


def _count_answers(part: SampledPart, answers: Mapping[FindingKey, Confirmation]) -> Stratum:
    holds = [answers[finding.key].holds for finding in part.asked if finding.key in answers]
    unread = holds.count(None)
    return Stratum(part.turns, len(holds) - unread, holds.count(True), unread)


def _hash(finding: Finding) -> bytes:
    return blake2b(f"{finding.session}\0{finding.turn}\0{finding.behaviour}".encode(), digest_size=8).digest()


# Findings that a person is asked about.


async def list_doubtful(
    store: RunStore, behaviour: Behaviour, custom: Sequence[OwnBehaviour], most: int
) -> list[tuple[Session, Finding]]:
    """Return the findings of a run, candidates too, that no person has read; those in most doubt come first."""
    known = {answer.key for answer in await store.confirmations(HUMAN)}
    chosen: list[tuple[Session, Finding]] = []
    codes = () if any(added.code == behaviour for added in custom) else (behaviour,)
    async for session in store.sessions():
        chosen += [
            (session, finding)
            for finding in find_behaviours(session, codes, custom=custom)
            if finding.behaviour == behaviour and finding.key not in known
        ]
        chosen.sort(key=lambda pair: (abs(pair[1].confidence - LIKELY), pair[0].id, pair[1].turn))
        del chosen[most:]
    return chosen
