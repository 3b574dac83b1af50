"""A turn laid out for reading: the fields of the protocol, their blocks, evidence and hits of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from markupsafe import Markup

from bactrian.analyze.behaviours import find_installed, load_definitions
from bactrian.blocks import Block, MarkedSpan, Piece, make_visible, mark_quotations, split_blocks
from bactrian.detect.detector import LIKELY
from bactrian.explore.message_html import HIT, render_markdown, tokenize_code
from bactrian.explore.search_words import Term, find_hits
from bactrian.explore.session_findings import is_counted
from bactrian.explore.token_view import is_built_in, load_vocabulary, show_tokens
from bactrian.models.budget import Price
from bactrian.records.run import Confirmation, Finding, merge_answers
from bactrian.records.session import HUMAN, Session, name_part
from bactrian.records.turn import (
    CriticSettings,
    Decision,
    Deliberation,
    Instruction,
    Proposal,
    Solution,
    Turn,
)

# How texts are shown: their Markdown as HTML, as they were written, or as tokens.
TextView = Literal["read", "raw", "tokens"]
# Characters of a turn that are shown at first.
LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class FieldBlock:
    """A field of the protocol, or what stands outside of all fields."""

    # ``Instruction``, ``Input`` or ``Solution``; empty outside of fields.
    name: str
    # As it was written, in paragraphs and blocks of code; empty if it is shown as HTML.
    blocks: tuple[Block[int], ...]
    # Its Markdown as HTML; None if it is shown in another way.
    html: Markup | None = None
    # The tokens of a whole message; empty if it is shown in another way.
    tokens: tuple[str, ...] = ()


def arrange_turn(
    turn: Turn,
    evidence: Sequence[tuple[int, str]],
    terms: tuple[Term, ...],
    *,
    whole: bool = False,
    view: TextView = "raw",
) -> tuple[FieldBlock, ...]:
    """Return the fields of a turn.

    Args:
        turn: The turn.
        evidence: Number and quotation of the findings in this turn.
        terms: The search.
        whole: True to show all of a long text.
        view: How the text is shown; as tokens, if the built-in model wrote it, and else as Markdown.
    """
    text = turn.text if whole else turn.text[:LONGEST]
    if view == "tokens" and is_built_in(turn) and (vocabulary := load_vocabulary()):
        return (FieldBlock("", (), tokens=show_tokens(text, vocabulary)),) if text else ()
    marks = [
        *mark_quotations(text, evidence),
        *(MarkedSpan(begin, end, HIT) for begin, end in find_hits(text, terms)),
    ]
    return tuple(
        FieldBlock(name, tuple(_colour(split_blocks(text, marks, begin, end))))
        if view == "raw"
        else FieldBlock(name, (), render_markdown(text[begin:end], tuple(_move(marks, begin, end))))
        for name, begin, end in _find_fields(turn, text)
    )


def _move(marks: Sequence[MarkedSpan[int]], begin: int, end: int) -> Iterator[MarkedSpan[int]]:
    """Yield the marks of a part of the text as marks of that part."""
    for mark in marks:
        if mark.begin < end and mark.end > begin:
            yield MarkedSpan(max(mark.begin - begin, 0), min(mark.end, end) - begin, mark.label)


def arrange_text(text: str) -> tuple[FieldBlock, ...]:
    """Return a text without fields, such as a solution."""
    return (FieldBlock("", (), render_markdown(text)),)


def _find_fields(turn: Turn, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of each field. The markers themselves become the names."""
    match turn.said:
        case Instruction() as parsed:
            parts = [("", parsed.preface), ("Instruction", parsed.instruction), ("Input", parsed.input or "")]
        case Solution() as parsed:
            parts = [("", parsed.preface), ("Solution", parsed.solution)]
        case _:
            parts = []
    last = 0
    fields: list[tuple[str, int, int]] = []
    for name, part in parts:
        if not part:
            continue
        # A text that is cut may contain only the beginning of its last field.
        is_cut = len(text) < len(turn.text)
        begin = text.find(part[: max(len(text) - last, 0)] if is_cut else part, last)
        if begin < 0:
            fields = []
            break
        last = begin + len(part)
        fields.append((name, begin, min(last, len(text))))
    if fields or not make_visible(text).strip():
        yield from fields
    else:
        yield "", 0, len(text)


def _colour(blocks: Iterator[Block[int]]) -> Iterator[Block[int]]:
    """Yield blocks, those of code without a mark with the classes of a highlighter."""
    for block in blocks:
        if block.is_code and len(block.pieces) == 1 and not block.pieces[0].labels:
            coloured = tokenize_code(block.pieces[0].text, block.language.lower())
            yield replace(block, pieces=tuple(Piece(text, token=kind) for text, kind in coloured))
        else:
            yield block


# Proposals and the decisions on them, as trees: one for each round of a turn, or one for a whole search.


@dataclass(slots=True)
class Branch:
    """A proposal, and those that continue it."""

    proposal: Proposal
    # True if it was spoken.
    chosen: bool
    # True if a search went on with it.
    survives: bool
    children: list[Branch] = field(default_factory=list["Branch"])


@dataclass(frozen=True, slots=True)
class ChoiceRound:
    """The proposals of a round, or of a search over several turns, as a tree, with the decisions."""

    # Of the round, from 1.
    number: int
    count: int
    roots: Sequence[Branch]
    verdicts: Sequence[Decision]
    # The last turn of a search; 0 if it is none.
    last: int = 0


def list_rounds(
    known: Deliberation, number: int, critic: CriticSettings | None, turns: Sequence[Turn]
) -> Iterator[ChoiceRound]:
    """Yield the rounds of proposals for turn ``number``; a whole search with the first of its turns.

    Args:
        known: All proposals and decisions of the session.
        number: The turn.
        critic: The settings of the session.
        turns: All turns of the session, which tell what was spoken without a decision: all proposals were the same.
    """
    if critic is not None and critic.searches:
        if (number - 1) % critic.depth == 0 and (made := _build_search(known, number, critic.depth, turns)):
            yield made
        return
    for round_ in sorted({proposal.round for proposal in known.proposals if proposal.number == number}):
        proposals, verdicts = known.of(number, round_)
        chosen = verdicts[-1].place if verdicts else None
        branches = [Branch(proposal, proposal.place == chosen, survives=False) for proposal in proposals]
        if chosen is None and not (verdicts and verdicts[-1].feedback):
            # All were the same, or no decision could be read.
            _mark_spoken(branches, turns)
        yield ChoiceRound(round_, len(proposals), branches, verdicts)


def _build_search(known: Deliberation, first: int, depth: int, turns: Sequence[Turn]) -> ChoiceRound | None:
    """Return the tree of a search that began with turn ``first``; None if nothing was proposed."""
    nodes: dict[tuple[int, int], Branch] = {}
    roots: list[Branch] = []
    verdicts: list[Decision] = []
    for number in range(first, first + depth):
        proposals, decisions = known.of(number, 1)
        kept = decisions[-1].kept if decisions else ()
        for proposal in proposals:
            branch = Branch(proposal, chosen=False, survives=proposal.place in kept)
            nodes[number, proposal.place] = branch
            parent = None if proposal.parent is None else nodes.get((number - 1, proposal.parent))
            (roots if parent is None else parent.children).append(branch)
        verdicts += decisions
    if not nodes:
        return None
    if verdicts:
        # The line that was spoken: backwards from what the last decision ranks first.
        last = verdicts[-1]
        number, position = last.number, last.kept[0] if last.kept else last.place
        while position is not None and (best := nodes.get((number, position))) is not None:
            best.chosen = True
            position, number = best.proposal.parent, number - 1
    else:
        _mark_spoken(roots, turns)
    return ChoiceRound(1, len(nodes), roots, verdicts, max(number for number, _ in nodes))


def _mark_spoken(branches: Sequence[Branch], turns: Sequence[Turn]) -> None:
    """Mark the first proposal with the text that was spoken, and likewise below it."""
    for branch in branches:
        number = branch.proposal.number
        if number <= len(turns) and turns[number - 1].text == branch.proposal.text:
            branch.chosen = True
            _mark_spoken(branch.children, turns)
            return


# A message with everything that is shown of it.


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """A finding below its message, and what readers say of it."""

    # Its place among all findings of the conversation, from 1.
    number: int
    turn: int
    behaviour: str
    # Why it was found.
    why: str
    # Whether it counts.
    counts: bool
    # False for a candidate.
    is_found: bool
    # What a person says of it; None if nobody said anything.
    holds: bool | None
    # What judges say of it, by their names.
    judged: Mapping[str, bool]


def show_finding(number: int, finding: Finding, confirmations: Sequence[Confirmation]) -> ShownFinding:
    """Return a finding as it is shown, with what the ``confirmations`` of its conversation say of it."""
    about = [answer for answer in confirmations if answer.key == finding.key]
    said = {answer.judge: answer.holds for answer in about if answer.holds is not None}
    return ShownFinding(
        number,
        finding.turn,
        finding.behaviour,
        explain_behaviour(finding.behaviour),
        is_counted(finding, merge_answers(about)),
        finding.confidence >= LIKELY,
        said.pop(HUMAN, None),
        said,
    )


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A turn with everything that is shown of it."""

    turn: Turn
    # ``AI user`` or ``AI assistant``, not in a group chat; and ``human`` if a person wrote it.
    part: str
    # The class of its colour.
    side: str
    fields: tuple[FieldBlock, ...]
    findings: list[ShownFinding]
    rounds: list[ChoiceRound]
    cost: float | None
    cut: bool


def show_turns(
    session: Session,
    turns: Sequence[Turn],
    findings: Sequence[Finding],
    known: Deliberation,
    prices: Callable[[str], Price | None] = lambda _: None,
    terms: tuple[Term, ...] = (),
    whole: int = 0,
    *,
    view: TextView = "read",
    confirmations: Sequence[Confirmation] = (),
) -> Iterator[ShownMessage]:
    """Yield ``turns`` of a session as they are shown, with what ``confirmations`` say of their ``findings``.

    ``whole`` is the number of a turn to show in full length; ``view`` is how texts are shown.
    """
    numbered = list(enumerate(findings, 1))
    for turn in turns:
        here = [(number, finding) for number, finding in numbered if finding.turn == turn.number]
        yield ShownMessage(
            turn,
            name_part(session, turn),
            find_side(session, turn),
            arrange_turn(
                turn,
                [(number, finding.quote) for number, finding in here],
                terms,
                whole=whole == turn.number,
                view=view,
            ),
            [show_finding(number, finding, confirmations) for number, finding in here],
            list(list_rounds(known, turn.number, session.provenance.critic, session.turns)),
            find_cost(session, turn, prices),
            len(turn.text) > LONGEST and whole != turn.number,
        )


def find_side(session: Session, turn: Turn) -> str:
    """Return the class of a speaker's colour."""
    cast = list(session.provenance.cast)
    if not cast:
        return turn.speaker
    return name_hue(cast.index(turn.speaker) if turn.speaker in cast else 0)


def name_hue(place: int) -> str:
    """Return the classes of the colour of an agent at this place of a cast, from 0. After twelve, hues repeat."""
    return f"agent a{place % 12}"


@cache
def explain_behaviour(code: str) -> str:
    """Return what a behaviour is: the first sentence of its definition."""
    for custom in find_installed():
        if custom.code == code:
            return custom.description
    _, _, text = " ".join(load_definitions().get(code, "").split()).partition(": ")
    first = text.partition(". ")[0].rstrip(".")
    return f"{first[:1].upper()}{first[1:]}." if first else ""


def find_cost(session: Session, turn: Turn, prices: Callable[[str], Price | None]) -> float | None:
    """Return what a turn cost in US dollars; None if the price of its model is unknown."""
    model = session.provenance.models.get(turn.speaker)
    price = prices(model) if model else None
    return None if price is None else price.cost(turn.usage)
