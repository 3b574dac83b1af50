"""Beam search over the next turns: the paper calls its critic "tree-search-like" (appendix).

From the end of the conversation, each of up to ``width`` lines is continued by several proposals, and a critic or a
function ranks the lines. After ``depth`` turns the best line is spoken, and the search starts again from its end. It
takes at most ``(1 + width * (depth - 1)) * proposals`` proposals and ``depth`` rankings for ``depth`` turns.

The tree is stored: each proposal names its predecessor, and each decision the candidates that it keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from bactrian.errors import BactrianError, ContextFull, Filtered, ModelError
from bactrian.play.agent import Agent, View
from bactrian.play.critic.candidates import CandidateRequest, Proposer
from bactrian.play.critic.choosing import CriticQuestion, Round, SessionCritic, list_options
from bactrian.play.endings.rules import find_ending
from bactrian.play.scene import Scene
from bactrian.play.turns.state import SessionState
from bactrian.records.candidate import Decision, Proposal
from bactrian.records.events import Chose, Proposed, Spoke
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


@dataclass(slots=True)
class _SearchLine:
    """A possible continuation of the conversation."""

    turns: list[Turn]
    """All turns, from the first of the session."""
    place: int | None = None
    """Index of its last proposal; None for the line from which all others start."""
    over: bool = False
    """True if it has reached an ending, or cannot be continued."""
    fault: ModelError | None = None
    """The error that prevents its continuation."""


class BeamSearch:
    """The agents propose possible continuations, and the critic chooses the line that is spoken."""

    def __init__(self, critic: SessionCritic) -> None:
        self._critic = critic

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Proposed | Chose | Spoke]:
        """Search from the end of the conversation and speak the best line.

        In a session that was interrupted within a line, the search is repeated from the stored proposals, and the
        line's remaining turns are spoken.
        """
        scene, critic, turns = state.scene, self._critic, state.turns
        depth, calls_before = critic.settings.depth, state.call_index - len(turns)
        start = len(turns) // depth * depth
        lines = [_SearchLine(list(turns[:start]))]
        levels: list[Round] = []
        for number in range(start + 1, start + depth + 1):
            keep = 1 if number == start + depth else critic.settings.width
            level = Round()
            levels.append(level)
            new_lines: list[_SearchLine] = []
            async with aclosing(
                _grow(scene, critic, lines, number, calls_before, level, new_lines)
            ) as proposals:
                async for event in proposals:
                    yield event
            async with aclosing(
                _rank(scene, critic, new_lines, start, keep, calls_before, level)
            ) as decisions:
                async for event in decisions:
                    yield event
            lines = _list_kept(new_lines, level.decisions, keep)
            if all(line.over for line in lines):
                break
        best = lines[0]
        spoken = len(turns)
        for turn in best.turns[spoken:]:
            level = levels[turn.number - start - 1]
            yield Spoke(replace(turn, usage=level.usage, seconds=level.seconds))
        if best.fault is not None:
            raise best.fault
        if len(best.turns) == spoken:
            raise ModelError(
                f"The search does not lead beyond its {spoken} stored turns.",
                next="The run's proposals may be damaged; restore it from a copy.",
            )


async def _grow(
    scene: Scene,
    critic: SessionCritic,
    lines: Sequence[_SearchLine],
    number: int,
    calls_before: int,
    level: Round,
    new_lines: list[_SearchLine],
) -> AsyncGenerator[Proposed]:
    """Continue each line by proposals, all concurrently. ``new_lines`` receives the longer lines, ordered by index."""
    width = critic.settings.proposals
    known, level.decisions = critic.known.of(number, 1)
    for proposal in known:
        yield Proposed(proposal)
    level.proposals = known

    def propose(index: int, line: _SearchLine) -> AsyncGenerator[Proposal]:
        first = index * width
        have = tuple(one.place - first for one in known if first < one.place <= first + width)
        agent = scene.agents[scene.order.next_speaker(line.turns)]
        request = CandidateRequest(scene.session.id, calls_before + number - 1, number, 1, have, ())
        return _renumber(Proposer(width).propose(View(agent, line.turns), request), first, line.place)

    open_lines = [(index, line) for index, line in enumerate(lines) if not line.over]
    faults: dict[int, BactrianError] = {}
    async with aclosing(
        _merge({index: propose(index, line) for index, line in open_lines}, faults)
    ) as proposals:
        async for proposal in proposals:
            yield Proposed(proposal)
            level.proposals.append(proposal)
    for index, line in enumerate(lines):
        if index in faults:
            # One line of several may have filled the window; any other fault concerns all lines.
            fault = faults[index]
            if len(lines) == 1 or not isinstance(fault, ContextFull | Filtered):
                raise fault
            line.over, line.fault = True, fault
        if line.over:
            new_lines.append(replace(line, place=len(lines) * width + index + 1))
            continue
        agent = scene.agents[scene.order.next_speaker(line.turns)]
        own = [one for one in level.proposals if index * width < one.place <= (index + 1) * width]
        new_lines += [_extend(scene, line, agent, one) for one in list_options(own)]


async def _rank(
    scene: Scene,
    critic: SessionCritic,
    new_lines: Sequence[_SearchLine],
    start: int,
    keep: int,
    calls_before: int,
    level: Round,
) -> AsyncGenerator[Chose]:
    """Rank the lines, unless all of them are kept and their order does not matter yet."""
    for decision in level.decisions:
        yield Chose(decision)
    first = level.proposals[0]
    ways = {line.place: line.turns[start:] for line in new_lines if line.place is not None}
    matters = len(ways) > keep
    if not matters or not level.must_ask(critic.settings.unreadable):
        level.check_readable(critic.settings.unreadable)
        return
    question = CriticQuestion(
        session=scene.session.id,
        call_index=calls_before + first.number - 1,
        turns=new_lines[0].turns[:start],
        speaker=scene.agents[first.speaker],
        proposals=level.proposals,
        heard=level.decisions,
        feedback=False,
        keep=keep,
        ways=ways,
    )
    async with aclosing(critic.chooser.choose(question)) as decisions:
        async for decision in decisions:
            yield Chose(decision)
            level.decisions.append(decision)
    level.check_readable(critic.settings.unreadable)


def _list_kept(
    new_lines: Sequence[_SearchLine], decisions: Sequence[Decision], keep: int
) -> list[_SearchLine]:
    """Return the lines to continue, best first; the first ones if no ranking is readable."""
    by_place = {line.place: line for line in new_lines}
    last = decisions[-1] if decisions else None
    if last is None or last.place is None:
        return list(new_lines[:keep])
    places = last.kept or (last.place,)
    return [by_place[place] for place in places if place in by_place] or list(new_lines[:keep])


def _extend(scene: Scene, line: _SearchLine, agent: Agent, proposal: Proposal) -> _SearchLine:
    turn = agent.turn(proposal, usage=Usage(), seconds=0.0)
    turns = [*line.turns, turn]
    return _SearchLine(turns, proposal.place, over=find_ending(scene.rules, turns) is not None)


async def _renumber(
    proposals: AsyncGenerator[Proposal], before: int, parent: int | None
) -> AsyncGenerator[Proposal]:
    """Yield the ``proposals`` of one line with their indices among those of all lines."""
    async with aclosing(proposals):
        async for proposal in proposals:
            yield replace(proposal, place=before + proposal.place, parent=parent)


async def _merge(
    sources: dict[int, AsyncGenerator[Proposal]], faults: dict[int, BactrianError]
) -> AsyncGenerator[Proposal]:
    """Yield the items of all sources as they arrive. A source's error is added to ``faults``; the others continue."""
    ready: asyncio.Queue[Proposal | None] = asyncio.Queue()

    async def drain(index: int, source: AsyncGenerator[Proposal]) -> None:
        try:
            async with aclosing(source):
                async for proposal in source:
                    ready.put_nowait(proposal)
        except BactrianError as error:
            faults[index] = error
        finally:
            ready.put_nowait(None)

    tasks = [asyncio.create_task(drain(index, source)) for index, source in sources.items()]
    try:
        left = len(tasks)
        while left:
            proposal = await ready.get()
            if proposal is None:
                left -= 1
            else:
                yield proposal
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
