"""Separation of a reasoning model's thoughts from its reply, in whole replies and in streams.

A reasoning model may begin its reply with ``<think>…</think>``. Some chat templates put the opening tag into the
prompt, so that the reply contains only the closing tag. A truncated reply may lack the closing tag.
"""

from __future__ import annotations

import re

OPEN = "<think>"
CLOSE = "</think>"
_OPENING = re.compile(rf"\s*{OPEN}")


def split_thought(text: str) -> tuple[str, str]:
    """Split ``text`` into its thoughts and the reply after them.

    Tags count only before the first word of the reply; later tags are part of the text. A thought without a closing tag
    extends to the end.
    """
    if OPEN not in text and CLOSE not in text:
        return "", text
    thoughts: list[str] = []
    end = 0
    closing = text.find(CLOSE)
    if closing >= 0 and text.find(OPEN, 0, closing) < 0:
        thoughts, end = [text[:closing]], closing + len(CLOSE)
    while opening := _OPENING.match(text, end):
        closing = text.find(CLOSE, opening.end())
        thoughts.append(text[opening.end() : closing if closing >= 0 else None])
        end = closing + len(CLOSE) if closing >= 0 else len(text)
    if not thoughts:
        return "", text
    return "\n\n".join(filter(None, (thought.strip() for thought in thoughts))), text[end:].lstrip()


class ThoughtFilter:
    """Filters thoughts out of a streamed reply.

    Tags may be split over pieces. A reply whose opening tag is in the prompt looks like plain text until its closing
    tag arrives: then :attr:`has_taken_back` becomes True, and only the text after the tag is the reply.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._in_thought = False
        self._in_reply = False
        self._has_thought = False
        self._tail = ""
        self.has_taken_back = False

    def feed(self, piece: str) -> str:
        """Add the next piece; return the text that is known to belong to the reply."""
        if self._in_reply:
            return self._feed_reply(piece)
        self._buffer += piece
        while True:
            if self._in_thought:
                thought, closed, rest = self._buffer.partition(CLOSE)
                if not closed:
                    self._buffer = thought[1 - len(CLOSE) :]
                    return ""
                self._buffer, self._in_thought = rest, False
            bare = self._buffer.lstrip()
            if bare.startswith(OPEN):
                self._buffer = bare[len(OPEN) :]
                self._in_thought = self._has_thought = True
                continue
            if OPEN.startswith(bare):
                return ""
            self._in_reply = True
            return self._feed_reply(bare if self._has_thought else self._buffer)

    def end(self) -> str:
        """Return the buffered text that turned out to belong to the reply."""
        buffer, self._buffer = self._buffer, ""
        if self._in_thought or self._in_reply:
            return ""
        return buffer.lstrip() if self._has_thought else buffer

    def _feed_reply(self, piece: str) -> str:
        if self._has_thought:
            return piece
        seen = self._tail + piece
        before, closed, rest = seen.partition(CLOSE)
        if closed and OPEN not in before:
            self._has_thought = self.has_taken_back = True
            self._in_reply, self._buffer = False, rest
            return self.feed("")
        if OPEN in seen:
            self._has_thought = True
        self._tail = seen[1 - len(CLOSE) :]
        return piece
