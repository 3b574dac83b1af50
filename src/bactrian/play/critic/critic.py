"""The critic: an agent that chooses among another agent's proposals (paper, section 3.2, "critic in the loop")."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from bactrian.errors import BadReply
from bactrian.models.model import Model, Request, ResponseFormat
from bactrian.models.seeds import derive_sampling
from bactrian.models.traits import get_traits
from bactrian.play.critic.answer_format import (
    CriticAnswer,
    build_answer_format,
    build_ranking_format,
    read_answer,
    read_ranking,
)
from bactrian.play.critic.choosing import CriticQuestion
from bactrian.prompts.engine import EnginePrompts, load_engine_prompts, render_prompt
from bactrian.records.candidate import Decision
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.session import Role
from bactrian.records.text import Text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage

CRITIC = "critic"
"""The critic's name among a session's agents."""
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class CriticAgent:
    """Chooses the best of the proposals for a turn.

    Its prompt contains the conversation and the proposals, but not its own earlier choices, so that it is about as long
    as any other agent's. It is not asked about a single proposal unless it may give feedback.
    """

    role: Role
    system: Text
    model: Model
    sampling: Sampling = Sampling()
    constrained: bool = False
    """True if the model's output can be constrained."""
    prompts: EnginePrompts = field(default_factory=load_engine_prompts)

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Ask the model, and once more if its answer is unreadable."""
        if len(question.places) == 1 and not question.feedback:
            return
        messages = [Message("system", self.system), Message("user", _write_question(self.prompts, question))]
        done = len(question.heard)
        if done % _ATTEMPTS:
            messages += _complaint(question, question.heard[-1])
        for attempt in range(done + 1, done - done % _ATTEMPTS + _ATTEMPTS + 1):
            verdict = await self._ask(messages, question, attempt)
            yield verdict
            if not verdict.problem:
                return
            messages += _complaint(question, verdict)

    async def _ask(self, messages: Sequence[Message], question: CriticQuestion, attempt: int) -> Decision:
        first = question.proposals[0]
        before = retry_unreadable(first.round, attempt)
        form = _constraint(question, small=get_traits(self.model).small) if self.constrained else None
        request = Request(
            messages=messages,
            sampling=derive_sampling(self.sampling, CRITIC, question.number, before),
            response_format=form,
            session=question.session,
            agent=CRITIC,
            call_index=question.call_index,
            replay_index=question.number - 1,
            attempt=before,
        )
        begun = perf_counter()
        try:
            reply = await self.model.reply(request)
        except BadReply as error:
            if form is None:
                raise
            # The server did not enforce the response format.
            text, usage, model = Text(error.sample.decode(errors="replace")), Usage(), self.model.name
            thought = ""
            reading = CriticAnswer(None, problem=error.what)
        else:
            text, usage, model = reply.text, reply.usage, reply.model
            thought = reply.choices[0].thought
            reading = _reading(question, text)
        return Decision(
            number=question.number,
            round=first.round,
            attempt=attempt,
            speaker=question.speaker.speaker,
            chooser=self.role.name,
            text=text,
            place=reading.place,
            reason=reading.reason,
            feedback=reading.feedback if question.feedback else "",
            problem=reading.problem,
            usage=usage,
            seconds=perf_counter() - begun,
            model=model,
            kept=reading.kept,
            thought=thought,
        )


def retry_unreadable(round_: int, attempt: int) -> int:
    """Return how often a critic was asked about a turn before this attempt, at two attempts a round."""
    return (round_ - 1) * _ATTEMPTS + attempt - 1


def _constraint(question: CriticQuestion, *, small: bool) -> ResponseFormat:
    if question.ways is not None:
        return build_ranking_format(question.places, question.keep, small=small)
    return build_answer_format(question.places, feedback=question.feedback, small=small)


def _reading(question: CriticQuestion, text: str) -> CriticAnswer:
    if question.ways is not None:
        return read_ranking(text, question.places, question.keep)
    return read_answer(text, question.places)


def _write_question(prompts: EnginePrompts, question: CriticQuestion) -> Text:
    """Return the question. The conversation comes first, so that a server's prefix cache serves later questions."""
    said = "".join([_as_told(turn) for turn in question.turns])
    return Text(
        prompts.render(
            "critic_question",
            conversation=said or f"{prompts.render('critic_nothing_said')}\n\n",
            tools=_write_uses(prompts, question),
            options=_write_options(prompts, question),
            form=_find_form(question),
            feedback="yes" if question.feedback else "",
        )
    )


def _write_uses(prompts: EnginePrompts, question: CriticQuestion) -> str:
    """Return the results of the speaker's tools, which a critic needs to judge what the proposals say about them."""
    if not question.uses:
        return ""
    results = [
        f"{use.call.wanted.name} {use.call.wanted.arguments}\n{use.result.text.strip()}\n\n"
        for use in question.uses
        if use.result is not None
    ]
    return prompts.render("critic_tools", speaker=question.speaker.role.name, results="".join(results))


def _write_options(prompts: EnginePrompts, question: CriticQuestion) -> str:
    if question.ways is not None:
        ways = [
            prompts.render("critic_way", place=place, turns="".join(map(_as_told, way)))
            for place, way in question.ways.items()
        ]
        return prompts.render("critic_ways", ways="".join(ways), keep=question.keep)
    texts = [
        prompts.render("critic_proposal", place=one.place, text=one.text.strip())
        for one in question.proposals
    ]
    proposals = "".join(f"{text}\n\n" for text in texts)
    return prompts.render("critic_proposals", speaker=question.speaker.role.name, proposals=proposals)


def _as_told(turn: Turn) -> str:
    return f"{turn.role}:\n{turn.text.strip()}\n\n"


def _find_form(question: CriticQuestion) -> str:
    """Return the required first line of the answer."""
    if question.ways is not None:
        return render_prompt("critic_ranking_form", keep=question.keep)
    *first, last = [render_prompt("critic_choice_form", place=place) for place in question.places]
    return render_prompt("critic_choice_forms", places=", ".join(first), last=last) if first else last


def _complaint(question: CriticQuestion, verdict: Decision) -> list[Message]:
    """Return the messages after an unreadable answer. An empty answer is left out: servers refuse empty messages."""
    if not verdict.text.strip():
        return []
    again = render_prompt("critic_again", problem=verdict.problem, form=_find_form(question))
    return [Message("assistant", verdict.text), Message("user", Text(again))]
