"""Aggregated numbers of a part of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.analyze.sample import HashSample
from bactrian.analyze.session_summary import SessionSummary, summarize
from bactrian.records.finding import BEHAVIOURS, Behaviour, Finding
from bactrian.records.session import Session
from bactrian.records.tool import Use
from bactrian.records.turn import Instruction
from bactrian.records.usage import Usage
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles

PREPARATION = "task_specifier"
"""The name under which tokens used before the conversation are counted."""


@dataclass(slots=True)
class Aggregate:
    """The numbers of some sessions of a run."""

    facts: list[SessionSummary] = field(default_factory=list[SessionSummary])
    findings: list[Finding] = field(default_factory=list[Finding])
    """Only if requested."""
    usage: defaultdict[tuple[str, str], Usage] = field(default_factory=lambda: defaultdict(Usage))
    """By agent and by its model, as the user named it (empty if unknown)."""
    seconds: defaultdict[str, StreamingQuantiles] = field(
        default_factory=lambda: defaultdict(StreamingQuantiles)
    )
    """Durations of replies, by agent. Turns without a duration are left out."""
    growth: defaultdict[int, StreamingMean] = field(default_factory=lambda: defaultdict(StreamingMean))
    """Prompt tokens by number of the turn."""
    tasks: HashSample = field(default_factory=HashSample)
    instructions: HashSample = field(default_factory=HashSample)
    prompts: Counter[str] = field(default_factory=Counter[str])
    """Sessions by prompt pack."""
    tools: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Calls by name of the tool and by kind of failure; empty for success."""
    marks: set[str] = field(default_factory=set[str])
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    """The behaviours that were detected."""

    def add(self, session: Session, own: Sequence[OwnBehaviour] = (), *, keep_findings: bool) -> None:
        """Add ``session``, with findings of the built-in behaviours and of ``own``."""
        facts, findings = summarize(session, own, explain=keep_findings)
        self.facts.append(facts)
        if keep_findings:
            self.findings += findings
        models = session.provenance.models
        if session.preparation.total:
            self.usage[PREPARATION, models.get(PREPARATION, "")] += session.preparation
        for turn in session.turns:
            self.usage[turn.speaker, models.get(turn.speaker, "")] += turn.usage
            if turn.seconds > 0:
                self.seconds[turn.speaker].add(turn.seconds)
            self.tools.update((use.call.wanted.name, _problem(use)) for use in turn.uses)
            if turn.usage.prompt:
                self.growth[turn.number].add(turn.usage.prompt)
            if isinstance(turn.said, Instruction):
                self.instructions.add(f"{session.id} {turn.number}", turn.said.instruction)
        self.tasks.add(session.id, session.task.specified or session.task.original)
        self.prompts[session.provenance.prompts] += 1
        if session.mark:
            self.marks.add(session.mark)

    def merge(self, other: Aggregate) -> None:
        """Add the numbers of ``other``."""
        self.facts += other.facts
        self.findings += other.findings
        for key, used in other.usage.items():
            self.usage[key] += used
        for agent, spread in other.seconds.items():
            self.seconds[agent].merge(spread)
        for turn, mean in other.growth.items():
            self.growth[turn].merge(mean)
        self.tasks.merge(other.tasks)
        self.instructions.merge(other.instructions)
        self.prompts += other.prompts
        self.tools += other.tools
        self.marks |= other.marks
        self.behaviours = other.behaviours


def _problem(use: Use) -> str:
    return (use.result.problem if use.result else None) or ""


async def aggregate_slice(
    sessions: AsyncIterator[Session], own: Sequence[OwnBehaviour] = (), *, keep_findings: bool
) -> Aggregate:
    """Aggregate ``sessions``, with findings of the built-in behaviours and of ``own``."""
    part = Aggregate(behaviours=(*BEHAVIOURS, *(one.code for one in own)))
    async for session in sessions:
        part.add(session, own, keep_findings=keep_findings)
    return part
