"""A turn chosen among several proposals, or by a beam search: the paper's critic in the loop (section 3.2).

An agent calls its tools once, before it makes proposals: the effects of a call cannot be undone, so the critic never
chooses between calls. It chooses between the messages that follow the results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter

from bactrian.errors import BactrianError, ContextFull, Filtered, ModelError, Refused
from bactrian.models.model import Model, Request, derive_sampling
from bactrian.protocol.pack import Pack, render_session
from bactrian.records import turn as records
from bactrian.records.events import Chose, Proposed, Spoke
from bactrian.records.session import HUMAN, Role, Session
from bactrian.records.text import Text
from bactrian.roleplay.agent import View
from bactrian.roleplay.critic import (
    CRITIC,
    CriticAgent,
    CriticQuestion,
    HumanCritic,
    Round,
    SessionCritic,
    copy_reply,
    list_options,
    make_proposed_turn,
)
from bactrian.roleplay.endings import find_ending
from bactrian.roleplay.human import Human
from bactrian.roleplay.tool_turns import ToolLoop, run_together
from bactrian.roleplay.turns import Scene, SessionState, TurnEvent, TurnStrategy


def choose_turns(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    settings: records.CriticSettings,
    known: records.Deliberation,
) -> dict[records.Speaker, TurnStrategy]:
    """Return how the agents of a role-play with a critic make their turns (paper, section 3.2).

    A search decides for all agents at once. Otherwise, the turns of a person are not chosen among proposals.

    Raises:
        PromptError: the pack cannot be rendered with this role or these criteria.
    """
    speakers: tuple[records.Speaker, ...] = ("user", "assistant")
    model = models[CRITIC]
    if isinstance(model, Human):  # A person chooses each turn, and would have to see every line of a search.
        settings = replace(settings, width=1, depth=1)
        critic = SessionCritic(HumanCritic(model.source), settings, known, pack.engine)
    else:
        agent = CriticAgent(
            role=Role(settings.role),
            system=Text(
                render_session("critic", session, pack, critic_role=settings.role, criteria=settings.criteria)
            ),
            model=model,
            sampling=session.provenance.sampling.get(CRITIC, records.Sampling()),
            constrained=session.provenance.protocol == "enforced" or model.name.partition(":")[0] == "local",
            prompts=pack.engine,
        )
        critic = SessionCritic(agent, settings, known, pack.engine)
    if critic.settings.searches:
        return dict.fromkeys(speakers, BeamSearch(critic))
    return {name: Chosen(critic) for name in speakers if models[name].name != HUMAN}


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """The candidates to request for turn ``number``."""

    session: str
    call_index: int
    number: int
    round: int = 1
    have: Sequence[int] = ()  # Indices of the candidates that exist already.
    notes: Sequence[records.Message] = ()  # Feedback on earlier rounds, for this turn only.
    used: Sequence[records.Message] = ()
    """The agent's tool calls in this turn, with their results. Candidates make no further calls."""


class Proposer:
    """Asks one agent for ``count`` candidates at a time: in one request if the model supports it, else in several.

    Each is yielded as soon as it arrives. If a server answers a request for several with a single one, the others
    are requested one by one, concurrently, and so are all later candidates.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._together = count > 1

    async def propose(self, view: View, needed: CandidateRequest) -> AsyncGenerator[records.Proposal]:
        """Yield the missing candidates, in any order.

        Raises:
            BactrianError: a call failed; all candidates that arrived have been yielded.
        """
        missing = [number for number in range(1, self._count + 1) if number not in needed.have]
        if self._together and len(missing) > 1:
            made: list[records.Proposal] = []
            # Some servers refuse ``n``. If the cause is another one, the single requests fail too.
            with suppress(Refused):
                made = await self._ask(view, needed, missing)
            for proposal in made:
                yield proposal
            missing = missing[len(made) :]
            # Each endpoint shows here whether it has `n`, so no list of servers is needed.
            self._together = not missing
        fault: BactrianError | None = None
        async with aclosing(run_together([self._ask(view, needed, [number]) for number in missing])) as asked:
            async for _, task in asked:
                try:
                    (proposal,) = task.result()
                except BactrianError as error:
                    fault = fault or error
                else:
                    yield proposal
        if fault is not None:
            raise fault

    async def _ask(
        self, view: View, needed: CandidateRequest, places: Sequence[int]
    ) -> list[records.Proposal]:
        agent = view.agent
        attempt = (needed.round - 1) * self._count + places[0] - 1
        more = [*needed.used, *needed.notes]
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
            replay_index=sum(message.role == "assistant" for message in (*view.messages, *needed.used)),
            attempt=attempt,
        )
        begun = perf_counter()
        reply = await agent.model.reply(request)
        seconds = perf_counter() - begun
        return [
            records.Proposal(
                number=needed.number,
                round=needed.round,
                place=position,
                speaker=agent.speaker,
                text=choice.text,
                usage=reply.usage if position == places[0] else records.Usage(),
                seconds=seconds,
                model=reply.model,
                finish="content_filter" if choice.refusal else choice.finish,
                lossy=choice.lossy,
                fingerprint=reply.fingerprint,
                thought=choice.thought,
            )
            for position, choice in zip(places, reply.choices, strict=False)  # A server may return too many.
        ]


class Chosen:
    """The agent makes proposals, and the critic chooses the one that is spoken."""

    def __init__(self, critic: SessionCritic) -> None:
        self.critic = critic
        self._proposer = Proposer(critic.settings.proposals)

    async def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Request rounds of proposals until the critic accepts one or the last round is over; then speak it."""
        settings, known, agent = self.critic.settings, self.critic.known, state.view.agent
        uses: tuple[records.Use, ...] = ()
        usage, seconds = records.Usage(), 0.0
        notes: list[records.Message] = []
        for number in count(1):
            level = Round(*known.of(state.number, number))
            if agent.toolbox is not None and number == 1:
                tools, proposes = ToolLoop(state), not level.proposals
                # A resumed turn that has proposals has made its calls.
                async with aclosing(tools.run(asks=proposes)) as events:
                    async for event in events:
                        yield event
                uses, usage, seconds = tuple(tools.uses), tools.usage, tools.seconds
                if proposes:  # The reply that followed the last tool call.
                    draft = tools.draft()
                    cost = {"usage": draft.usage, "seconds": draft.seconds}
                    level.proposals.append(records.Proposal(round=1, place=1, **cost, **copy_reply(draft)))
            async with aclosing(self._play_round(state, number, level, notes, uses)) as made:
                async for event in made:
                    yield event
            usage, seconds = usage + level.usage, seconds + level.seconds
            chosen = _pick(list_options(level.proposals), level.decisions)
            last = level.decisions[-1] if level.decisions else None
            if number == settings.rounds or last is None or not last.feedback or last.instead is not None:
                turn = make_proposed_turn(agent, chosen, usage=usage, seconds=seconds)
                yield Spoke(replace(turn, uses=uses))
                return
            note = self.critic.prompts.render("draft_note", critic=last.chooser, feedback=last.feedback)
            notes += [records.Message("assistant", chosen.text), records.Message("user", Text(note))]

    async def _play_round(
        self,
        state: SessionState,
        number: int,
        level: Round,
        notes: Sequence[records.Message],
        uses: Sequence[records.Use],
    ) -> AsyncGenerator[Proposed | Chose]:
        """Request the missing proposals of ``level``, and a decision unless it has a readable one."""
        session = state.scene.session.id
        call_index = state.call_index + len(records.group_rounds(uses))
        for proposal in level.proposals:
            yield Proposed(proposal)
        for decision in level.decisions:
            yield Chose(decision)
        have = tuple(proposal.place for proposal in level.proposals)
        missing = CandidateRequest(
            session, call_index, state.number, number, have, notes, used=records.to_messages(uses)
        )
        async with aclosing(self._proposer.propose(state.view, missing)) as proposals:
            async for proposal in proposals:
                yield Proposed(proposal)
                level.proposals.append(proposal)
        options = list_options(level.proposals)
        firsts = {option.text: option for option in options}
        question = CriticQuestion(
            session=session,
            call_index=call_index,
            turns=state.turns,
            speaker=state.view.agent,
            proposals=options,
            answers=level.decisions,
            feedback=number < self.critic.settings.rounds,
            uses=uses,
            repeated={str(each.place): firsts[each.text] for each in level.proposals if each.text in firsts},
        )
        async with aclosing(self.critic.decide(question, level)) as decisions:
            async for event in decisions:
                yield event


def _pick(options: Sequence[records.Proposal], decisions: Sequence[records.Decision]) -> records.Proposal:
    """Return the proposal to speak or to improve: the chosen one, or the first if none was chosen."""
    first = options[0]
    if not decisions:
        return first
    last = decisions[-1]
    if last.instead is not None:
        return records.Proposal(
            number=first.number,
            round=first.round,
            place=len(options) + 1,
            speaker=first.speaker,
            text=last.instead,
            usage=records.Usage(),
            seconds=0.0,
            model=last.model,
            finish="stop",
        )
    return next((proposal for proposal in options if proposal.place == last.place), first)


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

    turns: list[records.Turn]  # All turns, from the first of the session.
    position: int | None = None  # Of its last proposal; None for the line from which all others start.
    over: bool = False  # True if it has reached an ending, or cannot be continued.
    fault: ModelError | None = None  # The error that prevents its continuation.


@dataclass(slots=True)
class _Level:
    """The next turn of all lines: its proposals, and the choice of the lines that go on."""

    number: int
    call_index: int
    keep: int  # How many lines go on.
    made: Round
    faults: dict[int, BactrianError] = field(default_factory=dict[int, BactrianError])
    """By the index of the line that could not be continued."""


class BeamSearch:
    """The agents propose possible continuations, and the critic chooses the line that is spoken."""

    def __init__(self, critic: SessionCritic) -> None:
        self.critic = critic

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Proposed | Chose | Spoke]:
        """Search from the end of the conversation and speak the best line.

        In a session that was interrupted within a line, the search is repeated from the stored proposals, and the
        line's remaining turns are spoken.
        """
        scene, settings, turns = state.scene, self.critic.settings, state.turns
        calls_before, spoken = state.call_index - len(turns), len(turns)
        start = settings.count_settled(len(turns))
        lines = [_SearchLine(list(turns[:start]))]
        levels: dict[int, Round] = {}
        for number in range(start + 1, start + settings.depth + 1):
            keep = 1 if number == start + settings.depth else settings.width
            made = levels[number] = Round(*self.critic.known.of(number, 1))
            level = _Level(number, calls_before + number - 1, keep, made)
            async with aclosing(self._grow(scene, lines, level)) as proposals:
                async for event in proposals:
                    yield event
            lines = self._extend(scene, lines, level)
            async with aclosing(self._rank(scene, lines, start, level)) as decisions:
                async for event in decisions:
                    yield event
            lines = _list_kept(lines, made.decisions, keep)
            if all(line.over for line in lines):
                break
        best = lines[0]
        for turn in best.turns[spoken:]:
            made = levels[turn.number]
            yield Spoke(replace(turn, usage=made.usage, seconds=made.seconds))
        if best.fault is not None:
            raise best.fault
        if len(best.turns) == spoken:
            raise ModelError(
                f"The search does not lead beyond its {spoken} stored turns.",
                next="The run's proposals may be damaged; restore it from a copy.",
            )

    async def _grow(
        self, scene: Scene, lines: Sequence[_SearchLine], level: _Level
    ) -> AsyncGenerator[Proposed]:
        """Continue each line by proposals, all concurrently, and add them to ``level``."""
        width, made = self.critic.settings.proposals, level.made.proposals
        for proposal in made:
            yield Proposed(proposal)
        stored = [proposal.place for proposal in made]

        def propose(index: int, line: _SearchLine) -> AsyncGenerator[records.Proposal]:
            first = index * width
            have = tuple(position - first for position in stored if first < position <= first + width)
            agent = scene.agents[scene.order.next_speaker(line.turns)]
            request = CandidateRequest(scene.session.id, level.call_index, level.number, have=have)
            return _renumber(Proposer(width).propose(View(agent, line.turns), request), first, line.position)

        sources = {index: propose(index, line) for index, line in enumerate(lines) if not line.over}
        async with aclosing(_merge(sources, level.faults)) as proposals:
            async for proposal in proposals:
                yield Proposed(proposal)
                made.append(proposal)

    def _extend(self, scene: Scene, lines: Sequence[_SearchLine], level: _Level) -> list[_SearchLine]:
        """Return the lines that the proposals of ``level`` make of ``lines``, ordered by index."""
        width, longer = self.critic.settings.proposals, list[_SearchLine]()
        for index, line in enumerate(lines):
            if (fault := level.faults.get(index)) is not None:
                # One line of several may have filled the window; any other fault concerns all lines.
                if len(lines) == 1 or not isinstance(fault, ContextFull | Filtered):
                    raise fault
                line.over, line.fault = True, fault
            if line.over:
                longer.append(replace(line, position=len(lines) * width + index + 1))
                continue
            agent, first = scene.agents[scene.order.next_speaker(line.turns)], index * width
            made = [each for each in level.made.proposals if first < each.place <= first + width]
            for proposal in list_options(made):
                turn = make_proposed_turn(agent, proposal, usage=records.Usage(), seconds=0.0)
                turns = [*line.turns, turn]
                over = find_ending(scene.rules, turns) is not None
                longer.append(_SearchLine(turns, proposal.place, over))
        return longer

    async def _rank(
        self, scene: Scene, lines: Sequence[_SearchLine], start: int, level: _Level
    ) -> AsyncGenerator[Chose]:
        """Rank the lines, unless all of them are kept and their order does not matter yet."""
        made = level.made
        for decision in made.decisions:
            yield Chose(decision)
        ways = {line.position: line.turns[start:] for line in lines if line.position is not None}
        if len(ways) <= level.keep:
            return
        question = CriticQuestion(
            session=scene.session.id,
            call_index=level.call_index,
            turns=lines[0].turns[:start],
            speaker=scene.agents[made.proposals[0].speaker],
            proposals=made.proposals,
            answers=made.decisions,
            feedback=False,
            keep=level.keep,
            ways=ways,
        )
        async with aclosing(self.critic.decide(question, made)) as decisions:
            async for event in decisions:
                yield event


def _list_kept(
    lines: Sequence[_SearchLine], decisions: Sequence[records.Decision], keep: int
) -> list[_SearchLine]:
    """Return the lines to continue, best first; the first ones if no ranking is readable."""
    by_position = {line.position: line for line in lines}
    last = decisions[-1] if decisions else None
    if last is None or last.place is None:
        return list(lines[:keep])
    places = last.kept or (last.place,)
    return [by_position[position] for position in places if position in by_position] or list(lines[:keep])


async def _renumber(
    proposals: AsyncGenerator[records.Proposal], before: int, parent: int | None
) -> AsyncGenerator[records.Proposal]:
    """Yield the ``proposals`` of one line with their indices among those of all lines."""
    async with aclosing(proposals):
        async for proposal in proposals:
            yield replace(proposal, place=before + proposal.place, parent=parent)


async def _merge(
    sources: dict[int, AsyncGenerator[records.Proposal]], faults: dict[int, BactrianError]
) -> AsyncGenerator[records.Proposal]:
    """Yield the items of all sources as they arrive. A source's error is added to ``faults``; the others continue."""
    ready: asyncio.Queue[records.Proposal | None] = asyncio.Queue()

    async def drain(index: int, source: AsyncGenerator[records.Proposal]) -> None:
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
