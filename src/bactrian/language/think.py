"""Thoughts of reasoning models: told from what they say, in a whole reply and in the pieces of a stream.

A model that thinks aloud begins its reply with ``<think>…</think>``. Some chat templates write the opening tag into the
prompt, so that a reply holds only the closing one. A reply that is cut off may lack the closing one.
"""

from __future__ import annotations

import re

OPEN = "<think>"
CLOSE = "</think>"
_OPENING = re.compile(rf"\s*{OPEN}")


def split_thought(text: str) -> tuple[str, str]:
    """Return what ``text`` thinks, and what it says after that.

    Tags count only before the first word that is said: later ones are part of the text. A thought that is not closed
    is all there is.
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
    """Lets through what a streamed reply says, and holds back what it thinks.

    Tags may be split over pieces. A reply whose opening tag is in the prompt looks like speech until its closing tag
    comes: :attr:`has_taken_back` is True then, and only what comes after it was said.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinks = False
        self._speaks = False
        self._has_thought = False
        self._tail = ""
        self.has_taken_back = False

    def feed(self, piece: str) -> str:
        """Take the next piece; return the text that is known to be said."""
        if self._speaks:
            return self._speak(piece)
        self._held += piece
        while True:
            if self._thinks:
                thought, closed, rest = self._held.partition(CLOSE)
                if not closed:
                    self._held = thought[1 - len(CLOSE) :]
                    return ""
                self._held, self._thinks = rest, False
            bare = self._held.lstrip()
            if bare.startswith(OPEN):
                self._held = bare[len(OPEN) :]
                self._thinks = self._has_thought = True
                continue
            if OPEN.startswith(bare):
                return ""
            self._speaks = True
            return self._speak(bare if self._has_thought else self._held)

    def end(self) -> str:
        """Return what was held back and turned out to be said."""
        held, self._held = self._held, ""
        if self._thinks or self._speaks:
            return ""
        return held.lstrip() if self._has_thought else held

    def _speak(self, piece: str) -> str:
        if self._has_thought:
            return piece
        seen = self._tail + piece
        before, closed, rest = seen.partition(CLOSE)
        if closed and OPEN not in before:
            self._has_thought = self.has_taken_back = True
            self._speaks, self._held = False, rest
            return self.feed("")
        if OPEN in seen:
            self._has_thought = True
        self._tail = seen[1 - len(CLOSE) :]
        return piece
