"""A turn chosen among several proposals: the paper's critic in the loop (section 3.2, appendix).

An agent calls its tools once, before it makes proposals: the effects of a call cannot be undone, so the critic never
chooses between calls. It chooses between the messages that follow the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter

from bactrian.errors import BactrianError, ContextFull, Filtered, ModelError, Refused
from bactrian.models.model import Model, Reply, Request
from bactrian.models.seeds import derive_sampling
from bactrian.protocol.pack import EnginePrompts, Pack, render_criticism
from bactrian.records.events import Chose, Proposed, Spoke
from bactrian.records.session import HUMAN, Role, Session
from bactrian.records.text import Text
from bactrian.records.turn import (
    CriticSettings,
    Decision,
    Deliberation,
    Message,
    Proposal,
    Sampling,
    Speaker,
    Turn,
    Usage,
    Use,
    group_rounds,
    to_messages,
)
from bactrian.roleplay.agent import Agent, View
from bactrian.roleplay.critic import (
    CRITIC,
    CriticAgent,
    CriticQuestion,
    Round,
    SessionCritic,
    list_options,
)
from bactrian.roleplay.endings import find_ending
from bactrian.roleplay.human import Human, HumanCritic
from bactrian.roleplay.tool_turns import ToolLoop
from bactrian.roleplay.turns import Scene, SessionState, TurnEvent, TurnStrategy


def choose_turns(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    settings: CriticSettings,
    known: Deliberation,
) -> dict[Speaker, TurnStrategy]:
    """Return how the agents of a role-play with a critic make their turns (paper, section 3.2).

    A search decides for all agents at once. Otherwise, the turns of a person are not chosen among proposals.

    Raises:
        PromptError: the pack cannot be rendered with this role or these criteria.
    """
    speakers: tuple[Speaker, ...] = ("user", "assistant")
    model = models[CRITIC]
    if isinstance(model, Human):  # A person chooses each turn, and would have to see every line of a search.
        critic = SessionCritic(
            HumanCritic(model.source), replace(settings, width=1, depth=1), known, pack.engine
        )
    else:
        agent = CriticAgent(
            role=Role(settings.role),
            system=Text(render_criticism(session, pack, role=settings.role, criteria=settings.criteria)),
            model=model,
            sampling=session.provenance.sampling.get(CRITIC, Sampling()),
            constrained=session.provenance.protocol == "enforced" or model.name.partition(":")[0] == "local",
            prompts=pack.engine,
        )
        critic = SessionCritic(agent, settings, known, pack.engine)
    if critic.settings.searches:
        return dict.fromkeys(speakers, BeamSearch(critic))
    return {name: Chosen(critic) for name in speakers if models[name].name != HUMAN}


# Requests several candidates for a turn: in one request if the model supports it, else in concurrent
# requests.


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """The candidates to request."""

    session: str
    call_index: int
    number: int
    """Number of the turn, from 1."""
    round: int
    have: Sequence[int]
    """Indices of the candidates that exist already."""
    notes: Sequence[Message]
    """Feedback on earlier rounds, for this turn only."""
    used: Sequence[Message] = ()
    """The agent's tool calls in this turn, with their results. Candidates make no further calls."""


class Proposer:
    """Asks one agent for ``count`` candidates at a time.

    Each is yielded as soon as it arrives. If a server answers a request for several with a single one, the others
    are requested one by one, concurrently, and so are all later candidates.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._together = count > 1

    async def propose(self, view: View, needed: CandidateRequest) -> AsyncGenerator[Proposal]:
        """Yield the missing candidates, in any order.

        Raises:
            BactrianError: a call failed; all candidates that arrived have been yielded.
        """
        missing = [place for place in range(1, self._count + 1) if place not in needed.have]
        if self._together and len(missing) > 1:
            made = await self._ask_together(view, needed, missing)
            for proposal in made:
                yield proposal
            missing = missing[len(made) :]
            self._together = not missing
        waiting = {asyncio.create_task(self._ask(view, needed, [place])) for place in missing}
        fault: BactrianError | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        made = task.result()
                    except BactrianError as error:
                        fault = fault or error
                    else:
                        yield made[0]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if fault is not None:
            raise fault

    async def _ask_together(
        self, view: View, needed: CandidateRequest, places: Sequence[int]
    ) -> list[Proposal]:
        """Return the candidates of one request for several; an empty list if the model does not support it."""
        try:
            return await self._ask(view, needed, places)
        except Refused:
            return []  # Some servers refuse ``n``. If the cause is another one, the single requests fail too.

    async def _ask(self, view: View, needed: CandidateRequest, places: Sequence[int]) -> list[Proposal]:
        agent = view.agent
        attempt = (needed.round - 1) * self._count + places[0] - 1
        more = [*needed.used, *needed.notes]
        position = sum(message.role == "assistant" for message in (*view.messages, *needed.used))
        request = Request(
            messages=[*view.question(), *more] if more else view.question(),
            sampling=derive_sampling(agent.sampling, agent.speaker, needed.number, attempt),
            n=len(places),
            response_format=agent.form,
            tools=agent.toolbox.kit.tools if agent.toolbox else (),
            allow_tool_calls=False,
            session=needed.session,
            agent=agent.speaker,
            call_index=needed.call_index,
            replay_index=position,
            attempt=attempt,
        )
        begun = perf_counter()
        reply = await agent.model.reply(request)
        return _proposals(reply, needed, agent.speaker, places, perf_counter() - begun)


def _proposals(
    reply: Reply, needed: CandidateRequest, speaker: Speaker, places: Sequence[int], seconds: float
) -> list[Proposal]:
    # A server may return more than were requested.
    first, *others = [
        Proposal(
            number=needed.number,
            round=needed.round,
            place=place,
            speaker=speaker,
            text=choice.text,
            usage=Usage(),
            seconds=seconds,
            model=reply.model,
            finish="content_filter" if choice.refusal else choice.finish,
            lossy=choice.lossy,
            fingerprint=reply.fingerprint,
            thought=choice.thought,
        )
        for place, choice in zip(places, reply.choices, strict=False)
    ]
    return [replace(first, usage=reply.usage), *others]


class Chosen:
    """The agent makes proposals, and the critic chooses the one that is spoken."""

    def __init__(self, critic: SessionCritic) -> None:
        self.critic = critic
        self._proposer = Proposer(critic.settings.proposals)

    async def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Request rounds of proposals until the critic accepts one or the last round is over; then speak it."""
        settings, agent = self.critic.settings, state.view.agent
        tools = ToolLoop(state) if agent.toolbox is not None else None
        if tools is not None:
            async with aclosing(self._use_tools(tools, state)) as used:
                async for event in used:
                    yield event
        uses = tuple(tools.uses) if tools is not None else ()
        usage, seconds = (tools.usage, tools.seconds) if tools is not None else (Usage(), 0.0)
        notes: list[Message] = []
        for number in count(1):
            round_ = Round(*self.critic.known.of(state.number, number))
            if tools is not None and number == 1 and not round_.proposals:
                round_.proposals.append(_as_proposal(tools.draft()))
            async with aclosing(self._play_round(state, number, round_, notes, uses)) as events:
                async for event in events:
                    yield event
            usage, seconds = usage + round_.usage, seconds + round_.seconds
            chosen = _pick(list_options(round_.proposals), round_.decisions)
            last = round_.decisions[-1] if round_.decisions else None
            if number == settings.rounds or last is None or not last.feedback or last.instead is not None:
                yield Spoke(replace(agent.turn(chosen, usage=usage, seconds=seconds), uses=uses))
                return
            notes += _write_note(self.critic.prompts, chosen, last)

    async def _use_tools(self, tools: ToolLoop, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Call tools until a reply calls none; skip this if the resumed turn has proposals already."""
        if self.critic.known.of(state.number, 1)[0]:
            for event in tools.replay():
                yield event
            return
        async with aclosing(tools.run()) as events:
            async for event in events:
                yield event

    async def _play_round(
        self,
        state: SessionState,
        number: int,
        round_: Round,
        notes: Sequence[Message],
        uses: Sequence[Use],
    ) -> AsyncGenerator[Proposed | Chose]:
        """Request the missing proposals of ``round_``, and a decision unless it has a readable one."""
        settings, session = self.critic.settings, state.scene.session.id
        call_index = state.call_index + len(group_rounds(uses))
        for proposal in round_.proposals:
            yield Proposed(proposal)
        for decision in round_.decisions:
            yield Chose(decision)
        have = tuple(one.place for one in round_.proposals)
        missing = CandidateRequest(
            session, call_index, state.number, number, have, notes, used=to_messages(uses)
        )
        async with aclosing(self._proposer.propose(state.view, missing)) as proposals:
            async for proposal in proposals:
                yield Proposed(proposal)
                round_.proposals.append(proposal)
        question = CriticQuestion(
            session=session,
            call_index=call_index,
            turns=state.turns,
            speaker=state.view.agent,
            proposals=list_options(round_.proposals),
            heard=round_.decisions,
            feedback=number < settings.rounds,
            uses=uses,
        )
        if round_.must_ask(settings.unreadable):
            async with aclosing(self.critic.chooser.choose(question)) as decisions:
                async for decision in decisions:
                    yield Chose(decision)
                    round_.decisions.append(decision)
        round_.check_readable(settings.unreadable)


def _as_proposal(turn: Turn) -> Proposal:
    """Make the first proposal of the reply that followed the last tool call."""
    return Proposal(
        number=turn.number,
        round=1,
        place=1,
        speaker=turn.speaker,
        text=turn.text,
        usage=turn.usage,
        seconds=turn.seconds,
        model=turn.model,
        finish=turn.finish,
        lossy=turn.lossy,
        fingerprint=turn.fingerprint,
        thought=turn.thought,
    )


def _pick(options: Sequence[Proposal], decisions: Sequence[Decision]) -> Proposal:
    """Return the proposal to speak: the chosen one, or the first if no decision is readable."""
    first = options[0]
    if not decisions:
        return first
    last = decisions[-1]
    if last.instead is not None:
        return Proposal(
            number=first.number,
            round=first.round,
            place=len(options) + 1,
            speaker=first.speaker,
            text=last.instead,
            usage=Usage(),
            seconds=0.0,
            model=last.model,
            finish="stop",
        )
    return next((one for one in options if one.place == last.place), first)


def _write_note(prompts: EnginePrompts, chosen: Proposal, decision: Decision) -> list[Message]:
    """Return the critic's feedback as messages for the speaker's next round."""
    note = prompts.render("draft_note", critic=decision.chooser, feedback=decision.feedback)
    return [Message("assistant", chosen.text), Message("user", Text(note))]


# Beam search over the next turns: the paper calls its critic "tree-search-like" (appendix).
#
# From the end of the conversation, each of up to ``width`` lines is continued by several proposals, and a critic or a
# function ranks the lines. After ``depth`` turns the best line is spoken, and the search starts again from its end. It
# takes at most ``(1 + width * (depth - 1)) * proposals`` proposals and ``depth`` rankings for ``depth`` turns.
#
# The tree is stored: each proposal names its predecessor, and each decision the candidates that it keeps.


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
        self.critic = critic

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Proposed | Chose | Spoke]:
        """Search from the end of the conversation and speak the best line.

        In a session that was interrupted within a line, the search is repeated from the stored proposals, and the
        line's remaining turns are spoken.
        """
        scene, critic, turns = state.scene, self.critic, state.turns
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
