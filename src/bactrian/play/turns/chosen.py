"""A turn chosen among several proposals: the paper's critic in the loop (section 3.2, appendix).

An agent calls its tools once, before it makes proposals: the effects of a call cannot be undone, so the critic never
chooses between calls. It chooses between the messages that follow the results.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count

from bactrian.play.critic.candidates import CandidateRequest, Proposer
from bactrian.play.critic.choosing import CriticQuestion, Round, SessionCritic, list_options
from bactrian.play.turns.state import SessionState, TurnEvent
from bactrian.play.turns.with_tools import ToolLoop
from bactrian.prompts.engine import EnginePrompts
from bactrian.records.candidate import Decision, Proposal
from bactrian.records.events import Chose, Proposed, Spoke
from bactrian.records.message import Message
from bactrian.records.text import Text
from bactrian.records.tool import Use, group_rounds, to_messages
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


class Chosen:
    """The agent makes proposals, and the critic chooses the one that is spoken."""

    def __init__(self, critic: SessionCritic) -> None:
        self._critic = critic
        self._proposer = Proposer(critic.settings.proposals)

    async def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Request rounds of proposals until the critic accepts one or the last round is over; then speak it."""
        settings, agent = self._critic.settings, state.view.agent
        tools = ToolLoop(state) if agent.toolbox is not None else None
        if tools is not None:
            async with aclosing(self._use_tools(tools, state)) as used:
                async for event in used:
                    yield event
        uses = tuple(tools.uses) if tools is not None else ()
        usage, seconds = (tools.usage, tools.seconds) if tools is not None else (Usage(), 0.0)
        notes: list[Message] = []
        for number in count(1):
            round_ = Round(*self._critic.known.of(state.number, number))
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
            notes += _write_note(self._critic.prompts, chosen, last)

    async def _use_tools(self, tools: ToolLoop, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Call tools until a reply calls none; skip this if the resumed turn has proposals already."""
        if self._critic.known.of(state.number, 1)[0]:
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
        settings, session = self._critic.settings, state.scene.session.id
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
            async with aclosing(self._critic.chooser.choose(question)) as decisions:
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
