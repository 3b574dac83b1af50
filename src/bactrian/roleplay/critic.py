"""The critic (paper, section 3.2): a model, a function or a person chooses among another agent's proposals."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from pydantic import BaseModel

from bactrian.errors import BadReply, ModelError, Stopped
from bactrian.models.model import (
    Model,
    Reply,
    ReplyChoice,
    Request,
    ResponseFormat,
    derive_sampling,
    get_traits,
)
from bactrian.protocol.pack import EnginePrompts, load_engine_prompts, render_prompt
from bactrian.records.events import Chose
from bactrian.records.session import HUMAN, Role
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import (
    NOTHING_KNOWN,
    CriticSettings,
    Decision,
    Deliberation,
    Message,
    Proposal,
    Sampling,
    Turn,
    Usage,
    Use,
)
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.human import CONTINUED, STOP, LineSource, format_line
from bactrian.roleplay.response_formats import make_object_schema

# The format of a critic's answer: the choice stands alone in the first line, so that it is unambiguous.
#
#     Choice: 2
#     The second one names the prices it needs.
#     Feedback: Name the exchange, too.
#
# A number anywhere else is not a choice: "of the 3 proposals I take the second" has three readings.


_CHOICE = re.compile(
    r"[*_#> \t]*choice[*_]*[ \t]*:[*_ \t]*(?:proposal|option)?[ \t]*#?(?P<place>\d{1,6})[*_ \t]*\.?[*_ \t]*",
    re.IGNORECASE,
)
_RANKING = re.compile(
    r"[*_#> \t]*ranking[*_]*[ \t]*:[*_ \t]*(?P<places>\d{1,6}(?:[ \t]*[,>][ \t]*\d{1,6})*)[*_ \t]*\.?[*_ \t]*",
    re.IGNORECASE,
)
_FEEDBACK = re.compile(r"^[*_#> \t]*feedback[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE | re.MULTILINE)
_REASON = re.compile(r"\A[*_#> \t]*reason[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE)
_NO_FEEDBACK = re.compile(r"(?:none|n/a|no|no feedback|null)?[.\s]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CriticAnswer:
    """A parsed answer."""

    position: int | None  # None if nothing was chosen; `problem` says why if it could not be read.
    reason: str = ""
    feedback: str = ""
    problem: str = ""
    kept: tuple[int, ...] = ()  # All candidates that a ranking names, best first.
    instead: str | None = None  # A person's own message.


class _Ranking(BaseModel):
    ranking: list[int]
    reason: str


class _CriticFields(BaseModel):
    choice: int
    reason: str
    feedback: str | None = None


def read_answer(text: str, places: Sequence[int]) -> CriticAnswer:
    """Parse an answer to a choice among ``places``."""
    first, _, rest = text.strip().partition("\n")
    match = _CHOICE.fullmatch(first)
    if match is None:
        return CriticAnswer(None, problem=render_prompt("critic_no_choice"))
    position = int(match["place"])
    if position not in places:
        return CriticAnswer(None, problem=render_prompt("critic_no_proposal", place=position))
    marker = _FEEDBACK.search(rest)
    feedback = rest[marker.end() :].strip() if marker else ""
    reason = _REASON.sub("", rest[: marker.start() if marker else None].strip())
    return CriticAnswer(position, reason, "" if _NO_FEEDBACK.fullmatch(feedback) else feedback)


def read_ranking(text: str, places: Sequence[int], keep: int) -> CriticAnswer:
    """Parse an answer that ranks the best ``keep`` of ``places``; further ones are ignored."""
    first, _, rest = text.strip().partition("\n")
    match = _RANKING.fullmatch(first)
    if match is None:
        return CriticAnswer(None, problem=render_prompt("critic_no_ranking"))
    named = [int(position) for position in re.findall(r"\d+", match["places"])]
    if strange := [position for position in named if position not in places]:
        return CriticAnswer(None, problem=render_prompt("critic_no_way", place=strange[0]))
    if len(set(named)) < len(named) or len(named) < keep:
        return CriticAnswer(None, problem=render_prompt("critic_few_ways", keep=keep))
    return CriticAnswer(named[0], _REASON.sub("", rest.strip()), kept=tuple(named[:keep]))


def build_ranking_format(places: Sequence[int], keep: int, *, small: bool = False) -> ResponseFormat:
    """Return the response format of a ranking. ``small``: for the built-in model."""
    ranked = ' ", " '.join(["place"] * keep)
    return ResponseFormat(
        name="ranking",
        schema=make_object_schema(
            ranking={
                "type": "array",
                "items": {"type": "integer", "enum": list(places)},
                "description": render_prompt("schema_ranking", keep=keep),
            },
            reason={"type": "string", "description": render_prompt("schema_ranking_reason")},
        ),
        grammar=(
            f'root ::= "Ranking: " {ranked} "\\n" line\n'
            f"place ::= {_list_numbers(places)}\n{_write_line(small=small)}"
        ),
        read=_ranking_from_json,
    )


def _ranking_from_json(text: str) -> str:
    fields = _Ranking.model_validate_json(text)
    return f"Ranking: {', '.join(map(str, fields.ranking))}\n{fields.reason}"


def build_answer_format(places: Sequence[int], *, feedback: bool, small: bool = False) -> ResponseFormat:
    """Return the response format of an answer. ``small``: for the built-in model."""
    properties: dict[str, object] = {
        "choice": {"type": "integer", "enum": list(places), "description": render_prompt("schema_choice")},
        "reason": {"type": "string", "description": render_prompt("schema_choice_reason")},
    }
    if feedback:
        about = {"type": ["string", "null"], "description": render_prompt("schema_feedback")}
        properties["feedback"] = about
    end = ' ("\\nFeedback: " line)?' if feedback else ""
    return ResponseFormat(
        name="choice",
        schema=make_object_schema(**properties),
        grammar=f'root ::= "Choice: " ({_list_numbers(places)}) "\\n" line{end}\n{_write_line(small=small)}',
        read=_answer_from_json,
    )


def _list_numbers(places: Sequence[int]) -> str:
    return " | ".join(f'"{position}"' for position in places)


def _write_line(*, small: bool) -> str:
    return f'line ::= [A-Z] [^\\n]{{10,{160 if small else 1200}}} "."\n'


def _answer_from_json(text: str) -> str:
    fields = _CriticFields.model_validate_json(text)
    end = f"\nFeedback: {fields.feedback}" if fields.feedback else ""
    return f"Choice: {fields.choice}\n{fields.reason}{end}"


# The choice of one of several candidates for a turn: the question to a critic, and the rounds of its answers.
#
# Paper, section 3.2, "critic in the loop", and appendix.


@dataclass(frozen=True, slots=True)
class CriticQuestion:
    """The question to a critic."""

    session: str
    call_index: int
    turns: Sequence[Turn]  # The conversation so far.
    speaker: Agent  # The agent whose turn it is.
    proposals: Sequence[Proposal]  # At least one; all different and not empty.
    answers: Sequence[Decision]  # Earlier answers to this question, all unreadable.
    feedback: bool  # True if the critic may ask for another round of proposals.
    keep: int = 1  # How many candidates to rank, best first; more than one only in a search.
    ways: Mapping[int, Sequence[Turn]] | None = None
    """In a search, the turns by which each candidate continues ``turns``."""
    uses: Sequence[Use] = ()
    """The speaker's tool calls before its proposals; all proposals take the results into account."""
    repeated: Mapping[str, Proposal] = field(default_factory=dict[str, Proposal])
    """By the place of a proposal, the first with its text: a person may name either."""

    @property
    def places(self) -> list[int]:
        """Indices of the candidates."""
        return [proposal.place for proposal in self.proposals] if self.ways is None else list(self.ways)

    @property
    def named(self) -> dict[str, Proposal]:
        """The proposals by what a person may call them."""
        return {**self.repeated, **{str(proposal.place): proposal for proposal in self.proposals}}

    @property
    def number(self) -> int:
        """Number of the turn, from 1."""
        return self.proposals[0].number


class Chooser(Protocol):
    """Chooses one of several proposals: a critic, a person or a function."""

    def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Yield a decision; a further one only if the previous one is unreadable.

        No request is sent before the caller asks for the next decision.
        """
        ...


@dataclass(slots=True)
class Round:
    """The proposals of one round, and the decisions on them."""

    proposals: list[Proposal] = field(default_factory=list[Proposal])
    decisions: list[Decision] = field(default_factory=list[Decision])

    @property
    def usage(self) -> Usage:
        """Tokens of all requests of the round."""
        return sum((made.usage for made in (*self.proposals, *self.decisions)), Usage())

    @property
    def seconds(self) -> float:
        """Time of the slowest proposal and of all decisions of models; a person may take any time."""
        slowest = max((proposal.seconds for proposal in self.proposals), default=0.0)
        return slowest + sum(made.seconds for made in self.decisions if made.model != HUMAN)


@dataclass(frozen=True, slots=True)
class SessionCritic:
    """The critic of a session, with its settings."""

    chooser: Chooser
    settings: CriticSettings
    known: Deliberation = NOTHING_KNOWN  # What a resumed session has stored for its unfinished turns.
    prompts: EnginePrompts = field(default_factory=load_engine_prompts)

    async def decide(self, question: CriticQuestion, level: Round) -> AsyncGenerator[Chose]:
        """Yield the decisions on ``level`` until one is readable; add them to it.

        Raises:
            ModelError: the last decision is unreadable, and the settings do not accept that.
        """
        made, fails = level.decisions, self.settings.unreadable == "fail"
        # After two unreadable answers, the critic is asked again only if the session failed for them.
        if not made or (made[-1].problem and (len(made) % 2 == 1 or fails)):
            async with aclosing(self.chooser.choose(question)) as decisions:
                async for decision in decisions:
                    yield Chose(decision)
                    made.append(decision)
        if fails and made and made[-1].problem:
            last = made[-1]
            raise ModelError(
                f"The choice of {last.chooser} for turn {last.number} cannot be read. {last.problem}",
                where=last.model,
                next="Use a model that keeps to the format, or let the first proposal be taken.",
                sample=last.text.encode(),
            )


def make_proposed_turn(agent: Agent, proposal: Proposal, *, usage: Usage, seconds: float) -> Turn:
    """Make the turn that speaks ``proposal``; ``usage`` and ``seconds`` cover all requests made for it."""
    return Turn(
        role=agent.role.name,
        said=agent.read(proposal.text),
        usage=usage,
        seconds=seconds,
        first_token=None,
        **copy_reply(proposal),
    )


def copy_reply(made: Proposal | Turn) -> dict[str, Any]:
    """Return the fields that a turn and a proposal share: what was said, by whom and by which model."""
    names = ("number", "speaker", "text", "model", "finish", "lossy", "fingerprint", "thought")
    return {name: getattr(made, name) for name in names}


def list_options(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals that are not empty, each text once, in the order of their indices.

    Raises:
        BadReply: all of them are empty.
    """
    texts: dict[str, Proposal] = {}
    for proposal in sorted(proposals, key=lambda candidate: candidate.place):
        if proposal.text.strip() or proposal.finish == "content_filter":
            texts.setdefault(proposal.text, proposal)
    # An empty reply, like a giant one or an unasked tool call, has no ending of its own: it is requested again where
    # that can help, and otherwise the session ends as `failed` with the reason as evidence.
    if not texts:
        raise BadReply(
            f"The model answered turn {proposals[0].number} with nothing, {len(proposals)} times.",
            where=proposals[0].model,
            next="Try another model or other sampling; the session can be resumed.",
        )
    return list(texts.values())


CRITIC = "critic"  # The critic's name among a session's agents.
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
    constrained: bool = False  # True if the model's output can be constrained.
    prompts: EnginePrompts = field(default_factory=load_engine_prompts)

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Ask the model, and once more if its answer is unreadable."""
        is_settled = len(question.places) == 1 and not question.feedback
        if is_settled and not get_traits(self.model).attended:  # a person may write something else
            return
        messages = [Message("system", self.system), Message("user", _write_question(self.prompts, question))]
        done = len(question.answers)
        if done % _ATTEMPTS:
            messages += _complaint(question, question.answers[-1])
        for attempt in range(done + 1, done - done % _ATTEMPTS + _ATTEMPTS + 1):
            verdict = await self._ask(messages, question, attempt)
            yield verdict
            if not verdict.problem:
                return
            messages += _complaint(question, verdict)

    async def _ask(self, messages: Sequence[Message], question: CriticQuestion, attempt: int) -> Decision:
        before = retry_unreadable(question.proposals[0].round, attempt)
        form, small = None, get_traits(self.model).small
        if self.constrained and question.ways is not None:
            form = build_ranking_format(question.places, question.keep, small=small)
        elif self.constrained:
            form = build_answer_format(question.places, feedback=question.feedback, small=small)
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
            reply = Reply(
                (ReplyChoice(Text(error.sample.decode(errors="replace"))),), Usage(), self.model.name
            )
            answer = CriticAnswer(None, problem=error.what)
        else:
            if question.ways is not None:
                answer = read_ranking(reply.text, question.places, question.keep)
            elif reply.model == HUMAN:
                answer = read_line(reply.text, question)
            else:
                answer = read_answer(reply.text, question.places)
        return make_decision(
            question,
            answer,
            attempt=attempt,
            chooser=self.role.name,
            text=reply.text,
            usage=reply.usage,
            seconds=perf_counter() - begun,
            model=reply.model,
            thought=reply.choices[0].thought,
        )


def make_decision(question: CriticQuestion, answer: CriticAnswer, **more: Any) -> Decision:
    """Return the decision that ``answer`` is; ``more`` says who made it, when and how."""
    return Decision(
        number=question.number,
        round=question.proposals[0].round,
        speaker=question.proposals[0].speaker,
        place=answer.position,
        reason=answer.reason,
        feedback=answer.feedback if question.feedback else "",
        problem=answer.problem,
        instead=None if answer.instead is None else Text(answer.instead),
        kept=answer.kept,
        **more,
    )


def retry_unreadable(round_: int, attempt: int) -> int:
    """Return how often a critic was asked about a turn before this attempt, at two attempts a round."""
    return (round_ - 1) * _ATTEMPTS + attempt - 1


def _write_question(prompts: EnginePrompts, question: CriticQuestion) -> Text:
    """Return the question. The conversation comes first, so that a server's prefix cache serves later questions."""
    speaker, tools = question.speaker.role.name, ""
    if question.uses:  # A critic needs the results to judge what the proposals say about them.
        results = [
            f"{use.call.wanted.name} {use.call.wanted.arguments}\n{use.result.text.strip()}\n\n"
            for use in question.uses
            if use.result is not None
        ]
        tools = prompts.render("critic_tools", speaker=speaker, results="".join(results))
    if question.ways is not None:
        ways = [
            prompts.render("critic_way", place=position, turns=_write_turns(way))
            for position, way in question.ways.items()
        ]
        options = prompts.render("critic_ways", ways="".join(ways), keep=question.keep)
    else:
        texts = [
            prompts.render("critic_proposal", place=proposal.place, text=proposal.text.strip()) + "\n\n"
            for proposal in question.proposals
        ]
        options = prompts.render("critic_proposals", speaker=speaker, proposals="".join(texts))
    return Text(
        prompts.render(
            "critic_question",
            conversation=_write_turns(question.turns) or f"{prompts.render('critic_nothing_said')}\n\n",
            tools=tools,
            options=options,
            form=_find_form(question),
            feedback="yes" if question.feedback else "",
        )
    )


def _write_turns(turns: Sequence[Turn]) -> str:
    return "".join([f"{turn.role}:\n{turn.text.strip()}\n\n" for turn in turns])


def _find_form(question: CriticQuestion) -> str:
    """Return the required first line of the answer."""
    if question.ways is not None:
        return render_prompt("critic_ranking_form", keep=question.keep)
    *first, last = [render_prompt("critic_choice_form", place=position) for position in question.places]
    return render_prompt("critic_choice_forms", places=", ".join(first), last=last) if first else last


def _complaint(question: CriticQuestion, verdict: Decision) -> list[Message]:
    """Return the messages after an unreadable answer. An empty answer is left out: servers refuse empty messages."""
    if not verdict.text.strip():
        return []
    again = render_prompt("critic_again", problem=verdict.problem, form=_find_form(question))
    return [Message("assistant", verdict.text), Message("user", Text(again))]


# A critic that is a scoring function.


@dataclass(frozen=True, slots=True)
class ScoringCritic:
    """Ranks candidates by the score of the conversation that each would make; higher is better."""

    score: Callable[[Sequence[Turn]], float]
    name: str = "score"

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Rank by score; of two equal scores the first candidate wins."""
        ways = question.ways or {
            proposal.place: [make_proposed_turn(question.speaker, proposal, usage=Usage(), seconds=0.0)]
            for proposal in question.proposals
        }
        scores = {position: self.score([*question.turns, *way]) for position, way in ways.items()}
        best = sorted(scores, key=lambda position: -scores[position])[: question.keep]
        reason = ", ".join(f"{position}: {scores[position]:g}" for position in scores)
        answer = CriticAnswer(best[0], reason, kept=tuple(best) if question.ways else ())
        attempt = len(question.answers) + 1
        yield make_decision(question, answer, attempt=attempt, chooser=self.name, text=Text(""))


# A person as the critic: at a terminal, or in the place of the critic's model.


_OWN_MESSAGE = f"Your own message {CONTINUED}:"


def read_line(line: str, question: CriticQuestion) -> CriticAnswer:
    """Parse a person's answer: ``2 REASON``, ``write TEXT``, ``edit 2 TEXT`` or ``again WHAT WOULD BE BETTER``.

    Raises:
        Stopped: the line is ``stop``.
    """
    line = line.strip()
    if line.lower() == STOP:
        raise Stopped("The person said stop.")
    proposals = question.named
    first = question.proposals[0]
    word, rest = _split_word(line)
    number, edited = _split_word(rest)
    match word.lower():
        case "write" if text := format_line(rest, first.speaker):
            return CriticAnswer(None, instead=text)
        case "edit" if number in proposals and (text := format_line(edited, first.speaker)):
            if text == proposals[number].text.strip():
                return CriticAnswer(proposals[number].place)
            return CriticAnswer(None, f"An edit of {number}", instead=text)
        case "again" if question.feedback and rest:
            return CriticAnswer(None, feedback=rest)
        case _ if word in proposals:
            return CriticAnswer(proposals[word].place, rest)
        case _:
            return CriticAnswer(None, problem=_explain(line, question.places))


def _split_word(line: str) -> tuple[str, str]:
    """Return the first word of a line, and the rest."""
    word, *rest = line.split(maxsplit=1)[:2] or [""]
    return word, "".join(rest).strip()


@dataclass(frozen=True, slots=True)
class HumanCritic:
    """Lets a person choose a proposal, edit one, write another, ask for better ones, or stop."""

    source: LineSource
    name: str = HUMAN

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Ask the person until the answer is valid."""
        begun = perf_counter()
        prompt = _prompt(question.places, feedback=question.feedback)
        line = (await self.source.ask(prompt)).strip()
        while (answer := read_line(await self._complete(line, question), question)).problem:
            line = (await self.source.ask(f"{answer.problem}\n{prompt}")).strip()
        yield make_decision(
            question,
            answer,
            attempt=len(question.answers) + 1,
            chooser=self.name,
            text=Text(clean_text(line)),
            seconds=perf_counter() - begun,
            model=HUMAN,
        )

    async def _complete(self, line: str, question: CriticQuestion) -> str:
        """Return the line with the text that ``write`` or ``edit 2`` asks the person for."""
        word, rest = _split_word(line)
        if word.lower() == "write" and not rest:
            return f"{line} {await self.source.ask(_OWN_MESSAGE)}"
        if word.lower() == "edit" and (edited := question.named.get(rest)):
            prompt = f"Proposal {rest} as you want it:"
            return f"{line} {await self.source.edit(prompt, edited.text)}"
        return line


def _explain(line: str, places: Sequence[int]) -> str:
    """Return what is wrong with an answer."""
    word, _, rest = line.partition(" ")
    number = rest.strip() if word.lower() == "edit" else word
    if number.isdecimal():
        return f"There is no proposal {number}."
    match word.lower():
        case "":
            return "Nothing was chosen."
        case "edit":
            return f"Which one? For example: edit {places[0]}"
        case "write":
            return "Nothing was written."
        case "again":
            return "Say what would be better: again SHORTER" if rest == "" else "No further round is left."
        case _:
            return f"{word!r} is not an answer. For example: {places[0]} it is shorter"


def _prompt(places: Sequence[int], *, feedback: bool) -> str:
    again = ", again WHAT WOULD BE BETTER" if feedback else ""
    return f"{', '.join(map(str, places))} (and why), edit N, write{again}, or stop:"
