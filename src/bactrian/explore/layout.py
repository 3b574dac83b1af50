"""A turn laid out for reading: the fields of the protocol, evidence, hits of the search, proposals and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Literal
from unicodedata import category

from markupsafe import Markup

from bactrian.analyze.behaviours import find_installed, load_definitions
from bactrian.blocks import Block, MarkedSpan, Piece, make_visible, mark_quotations, split_blocks
from bactrian.detect.detector import LIKELY
from bactrian.explore.message_html import HIT, render_markdown, tokenize_code
from bactrian.explore.search_words import Term, find_hits
from bactrian.explore.session_findings import is_counted
from bactrian.models.local.weights import BUILT_IN, find_cache_folder, is_whole, read_vocabulary
from bactrian.protocol.markers import read_instruction, read_solution
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

# The tokens of a text, as the built-in model reads it: byte pairs that are merged, by the vocabulary in its file.
#
# This is what llama.cpp does with this vocabulary (``smollm``): digits stand alone, then GPT-2's words, then merges.


# Kinds of characters: letter, number, space, other white space, anything else.
_KINDS: Mapping[str, str] = {"L": "L", "N": "N"}
_WORDS = re.compile(r"N| ?L+| ?O+|[ S]+(?![^ SN])|[ S]+")
_ENDINGS = re.compile("'(?:s|t|re|ve|m|ll|d)")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model, and how they are made."""

    # By bytes.
    ids: Mapping[bytes, int]
    # Of two neighbours, the pair with the lowest rank is merged first.
    ranks: Mapping[tuple[bytes, bytes], int]


def can_show_tokens(turns: Iterable[Turn]) -> bool:
    """Return True if the built-in model wrote one of ``turns``, and its file, which has the vocabulary, is here."""
    return any(map(is_built_in, turns)) and (find_cache_folder() / BUILT_IN.file).exists()


def is_built_in(turn: Turn) -> bool:
    """Return True if the built-in model wrote a turn. Tokens of any other model would be another model's."""
    return turn.model == Path(BUILT_IN.file).stem


@cache
def load_vocabulary() -> Vocabulary | None:
    """Return the vocabulary of the built-in model; None if its file was not downloaded."""
    path = find_cache_folder() / BUILT_IN.file
    if not is_whole(path, BUILT_IN):
        return None
    tokens, merges = read_vocabulary(path)
    ranks: dict[tuple[bytes, bytes], int] = {}
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(b" ")
        ranks[_read_bytes(left), _read_bytes(right)] = rank
    return Vocabulary({_read_bytes(token): number for number, token in enumerate(tokens)}, ranks)


@cache
def _get_bytes() -> Mapping[str, int]:
    """Return the byte of each sign: a vocabulary writes bytes as signs that can be seen."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(unseen)}


def _read_bytes(written: bytes) -> bytes:
    signs = _get_bytes()
    text = written.decode("utf-8", "replace")
    return bytes(signs[sign] for sign in text) if all(sign in signs for sign in text) else written


def split_tokens(text: str, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the tokens of ``text`` as bytes, which may be parts of a character."""
    for word in _split_words(text):
        yield from _merge(word.encode("utf-8", "replace"), vocabulary)


def _split_words(text: str) -> Iterator[str]:
    kinds = "".join(map(_tell_kind, text))
    at = 0
    while at < len(text):
        found = _ENDINGS.match(text, at) or _WORDS.match(kinds, at)
        end = found.end() if found else at + 1
        yield text[at:end]
        at = end


@lru_cache(maxsize=4096)
def _tell_kind(sign: str) -> str:
    if sign.isspace():
        return " " if sign == " " else "S"
    return _KINDS.get(category(sign)[0], "O")


def _merge(word: bytes, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the tokens of a word. A heap knows the next pair, as a text without spaces is one long word."""
    parts = [word[at : at + 1] for at in range(len(word))]
    # Where the next and the previous part begin; a part that was merged into another is empty.
    after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
    waiting: list[tuple[int, int, bytes, bytes]] = []

    def wait(at: int) -> None:
        if at >= 0 and after[at] < len(parts):
            pair = parts[at], parts[after[at]]
            if (rank := vocabulary.ranks.get(pair)) is not None:
                heappush(waiting, (rank, at, *pair))

    for at in range(len(parts)):
        wait(at)
    while waiting:
        _, at, left, right = heappop(waiting)
        to = after[at]
        if to >= len(parts) or parts[at] != left or parts[to] != right:
            continue  # One of them was merged meanwhile.
        parts[at], parts[to], after[at] = left + right, b"", after[to]
        if after[at] < len(parts):
            before[after[at]] = at
        wait(before[at])
        wait(at)
    yield from filter(None, parts)


def show_tokens(text: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the tokens of ``text`` as they are shown: one that is a part of a character by its bytes."""
    return tuple(map(_show_token, split_tokens(text, vocabulary)))


def _show_token(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return f"⟨{token.hex(' ').upper()}⟩"


# A turn laid out for reading: the fields of the protocol, their blocks, evidence and hits of the search.


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


def arrange_proposal(proposal: Proposal, view: TextView) -> tuple[FieldBlock, ...]:
    """Return the fields of a proposal, as those of the turn that it would become."""
    said, of = read_instruction(proposal.text) or read_solution(proposal.text), proposal
    turn = Turn(of.number, of.speaker, "", of.text, said, of.usage, 0.0, None, of.model, of.finish)
    return arrange_turn(turn, (), (), whole=True, view=view)


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
    view: TextView
    cost: float | None
    cut: bool


def show_turns(
    session: Session,
    turns: Sequence[Turn],
    findings: Sequence[Finding],
    known: Deliberation,
    costs: Sequence[float | None] = (),
    terms: tuple[Term, ...] = (),
    whole: int = 0,
    *,
    view: TextView = "read",
    confirmations: Sequence[Confirmation] = (),
) -> Iterator[ShownMessage]:
    """Yield ``turns`` of a session as they are shown, with what ``confirmations`` say of their ``findings``.

    ``costs`` are those of all turns, ``whole`` is the number of a turn to show in full length, and ``view`` is how
    texts are shown.
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
            view,
            costs[turn.number - 1] if costs else None,
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
