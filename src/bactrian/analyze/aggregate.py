"""What a part of a run adds to the report."""

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
"""The agent to whom the tokens of all that comes before the conversation are counted."""


@dataclass(slots=True)
class Aggregate:
    """Some sessions of a run, read."""

    facts: list[SessionSummary] = field(default_factory=list[SessionSummary])
    findings: list[Finding] = field(default_factory=list[Finding])
    """Only if they were asked for."""
    usage: defaultdict[tuple[str, str], Usage] = field(default_factory=lambda: defaultdict(Usage))
    """By agent and by its model, as the user named it (empty if nobody knows)."""
    seconds: defaultdict[str, StreamingQuantiles] = field(
        default_factory=lambda: defaultdict(StreamingQuantiles)
    )
    """How long replies took, by agent. Turns that nobody timed are left out."""
    growth: defaultdict[int, StreamingMean] = field(default_factory=lambda: defaultdict(StreamingMean))
    """Prompt tokens by number of the turn."""
    tasks: HashSample = field(default_factory=HashSample)
    instructions: HashSample = field(default_factory=HashSample)
    prompts: Counter[str] = field(default_factory=Counter[str])
    """Sessions by prompt pack."""
    tools: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Calls by name of the tool and by what went wrong; empty if nothing did."""
    marks: set[str] = field(default_factory=set[str])
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    """Those that were looked for."""

    def add(self, session: Session, own: Sequence[OwnBehaviour] = (), *, keep_findings: bool) -> None:
        """Read ``session`` for the behaviours of this program and for ``own``."""
        facts, findings = summarize(session, own)
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
        """Add what ``other`` has read."""
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
    """Read ``sessions`` for the behaviours of this program and for ``own``."""
    part = Aggregate(behaviours=(*BEHAVIOURS, *(one.code for one in own)))
    async for session in sessions:
        part.add(session, own, keep_findings=keep_findings)
    return part
