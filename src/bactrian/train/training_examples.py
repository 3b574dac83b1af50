"""Cuts conversations into examples of tokens, of which only the trained side's replies are learned.

Each reply is learned after exactly the text that ``play`` would send before it: the chat template rendered up to that
message, with the beginning of a reply. So no template needs to mark the assistant's parts, and a template that shows
earlier messages in another way than they were sent is noticed. The stop token is learned with each reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bactrian.errors import InputError
from bactrian.models.local.chat_text import Encode, protect_controls
from bactrian.train.training_data import ChatMessage

# Renders messages with a chat template; True adds the beginning of a reply.
Render = Callable[[Sequence[ChatMessage], bool], str]
IGNORED = -100  # Label of a token that is not learned


class TemplatePiece(NamedTuple):
    """A part of a rendered conversation."""

    text: str
    learned: bool


@dataclass(frozen=True, slots=True)
class Example:
    """Tokens of one example, with their labels."""

    ids: list[int]
    labels: list[int]

    @property
    def learned(self) -> int:
        """Number of tokens that are learned."""
        return sum(label != IGNORED for label in self.labels)


@dataclass(slots=True)
class CutCounts:
    """Counts how the pairs of the conversations were cut."""

    conversations: int = 0
    pairs: int = 0
    split: int = 0  # Conversations that became several examples
    truncated: int = 0  # Pairs that do not fit alone; the reply's end is cut off
    empty: int = 0  # Replies without a word, which are not learned
    # Ids of conversations with a pair of which no token of the reply would be left.
    lost: list[str] = field(default_factory=list[str])

    def check(self, lost_at_most: float, where: str) -> None:
        """Raise InputError if more of the pairs are lost than allowed, or all."""
        if self.lost and len(self.lost) > lost_at_most * self.pairs:
            raise InputError(
                f"{len(self.lost):,} of {self.pairs:,} pairs are too long: their request alone fills max_length, "
                f"for example in {', '.join(dict.fromkeys(self.lost[:3]))}.",
                where=where,
                next="Increase max_length, or allow the loss with lost_at_most.",
            )


def cut_conversation(
    name: str, messages: Sequence[ChatMessage], cut: Cutter, max_length: int, counts: CutCounts
) -> Iterator[Example]:
    """Yield the examples of a conversation: one, or several split at pairs, each with the system prompt."""
    counts.conversations += 1
    head = list(messages[:1]) if messages[0]["role"] == "system" else []
    rest = list(messages[len(head) :])
    pairs = [rest[start : start + 2] for start in range(0, len(rest) - 1, 2)]
    counts.pairs += len(pairs)
    counts.empty += sum(is_empty(answer) for _, answer in pairs)
    whole = cut.encode_pieces([*head, *(message for pair in pairs for message in pair)])
    fits = len(whole.ids) <= max_length
    examples = [whole] if fits else _split(name, head, pairs, cut, max_length, counts)
    made = 0
    for example in examples:
        if example.learned:
            made += 1
            yield example
    counts.split += made > 1


def _split(
    name: str,
    head: list[ChatMessage],
    pairs: list[list[ChatMessage]],
    cut: Cutter,
    max_length: int,
    counts: CutCounts,
) -> Iterator[Example]:
    """Yield as few examples as contain all pairs in their order."""
    held: list[ChatMessage] = []
    best: Example | None = None
    for pair in pairs:
        longer = cut.encode_pieces([*head, *held, *pair])
        if len(longer.ids) <= max_length:
            held, best = [*held, *pair], longer
            continue
        if best is not None:
            yield best
        alone = cut.encode_pieces([*head, *pair]) if held else longer
        held, best = list(pair), alone
        if len(alone.ids) > max_length:
            held, best = [], None
            shorter = Example(alone.ids[:max_length], alone.labels[:max_length])
            if shorter.learned:
                counts.truncated += 1
                yield shorter
            elif alone.learned:
                counts.lost.append(name)
    if best is not None:
        yield best


@dataclass(frozen=True, slots=True)
class Cutter:
    """A chat template and a tokenizer."""

    render: Render
    encode: Encode
    stops: tuple[str, ...]  # Texts of the tokens that end a reply
    controls: tuple[str, ...] = ()  # Names of control tokens, which are plain text inside a message
    start: tuple[int, ...] = ()  # Tokens before each text; empty if the template writes them itself
    # Encodes what follows other text, where that gives other tokens than `encode`.
    encode_reply: Encode | None = None

    def encode_prompt(self, text: str) -> list[int]:
        """Return the tokens of a text that nothing precedes, as ``play`` sends it."""
        tokens = self.encode(text)
        begun = tuple(tokens[: len(self.start)]) == self.start
        return tokens if begun else [*self.start, *tokens]

    def encode_pieces(self, messages: Sequence[ChatMessage]) -> Example:
        """Return the tokens of these messages, up to the last reply with words. Raises InputError as
        :func:`render_pieces`.
        """
        ids: list[int] = []
        labels: list[int] = []
        for piece in self.render_pieces(messages):
            encode = (self.encode_reply or self.encode) if piece.learned else self.encode
            tokens = encode(piece.text) if ids else self.encode_prompt(piece.text)
            ids += tokens
            labels += tokens if piece.learned else [IGNORED] * len(tokens)
        return Example(ids, labels)

    def render_pieces(self, messages: Sequence[ChatMessage]) -> list[TemplatePiece]:
        """Return the rendered conversation, divided where a reply begins and ends.

        An empty reply is not learned: it is a part of the conversation before the next reply.

        Raises:
            InputError: the template cannot render it, shows earlier messages differently, or ends no reply.
        """
        safe = [
            {"role": message["role"], "content": protect_controls(message["content"], self.controls)}
            for message in messages
        ]
        pieces: list[TemplatePiece] = []
        done = ""
        for number, message in enumerate(safe):
            if message["role"] != "assistant" or is_empty(message):
                continue
            asked = self.render(safe[:number], True)
            answered = self.render(safe[: number + 1], False)
            if not asked.startswith(done) or not answered.startswith(asked):
                raise _explain(
                    "shows earlier messages in another way than they were sent, so that a model would learn texts "
                    "that `play` never sends"
                )
            reply = answered[len(asked) :]
            end = _find_end(reply, message["content"], self.stops)
            pieces += [TemplatePiece(asked[len(done) :], False), TemplatePiece(reply[:end], True)]
            done = asked + reply[:end]
        return pieces


def is_empty(message: ChatMessage) -> bool:
    """Return True if a message has no word: a model that learned it would learn to say nothing."""
    return not message["content"].strip()


def _find_end(reply: str, content: str, stops: Sequence[str]) -> int:
    """Return where the reply ends, its stop token included."""
    start = reply.find(content.strip())
    if start < 0 or reply[:start].strip():
        raise _explain("changes what the assistant says")
    after = start + len(content.strip())
    ends = [(begin, begin + len(stop)) for stop in stops if (begin := reply.find(stop, after)) >= 0]
    if not ends:
        raise _explain(f"ends no reply with a stop token ({', '.join(stops) or 'it has none'})")
    return min(ends)[1]


def _explain(fault: str) -> InputError:
    return InputError(
        f"The model's chat template {fault}.",
        where="chat template",
        next="Use another base model, or give this one a template that writes all messages in the same way.",
    )
