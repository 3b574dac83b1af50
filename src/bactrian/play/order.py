"""The order of speakers. Policies depend on the turns only, so that a resumed session needs no further state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bactrian.records.turn import Speaker, Turn

_NEXT = re.compile(r"^[*_#> \t]*next[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_TO = re.compile(r"^[*_#> \t]*to[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_EDGES = " \t*_.\"'`<>[]"


class SpeakerOrder(Protocol):
    """A policy that chooses the next speaker from the turns so far."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that speaks after ``turns``."""
        ...


@dataclass(frozen=True, slots=True)
class Alternate:
    """Two agents alternate; the AI user begins (paper, equation 1)."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that did not speak last."""
        return "assistant" if turns and turns[-1].speaker == "user" else "user"


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """All agents speak in a fixed order, again and again."""

    agents: tuple[Speaker, ...]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent after the one that spoke last."""
        if not turns:
            return self.agents[0]
        return self.agents[(self.agents.index(turns[-1].speaker) + 1) % len(self.agents)]


@dataclass(frozen=True, slots=True)
class Moderated:
    """A moderator speaks between all others and names the next one in a line ``Next: ROLE``.

    If the moderator names no agent, the one that has been silent for longest speaks.
    """

    moderator: Speaker
    roles: Mapping[Speaker, str]
    """Role by agent, the moderator's too, in the default order of speakers."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the moderator, or the agent that it named."""
        if not turns or turns[-1].speaker != self.moderator:
            return self.moderator
        named = [match["name"] for match in _NEXT.finditer(turns[-1].text)]
        others = [name for name in self.roles if name != self.moderator]
        return (_found(named[-1], self.roles, others) if named else None) or _longest_silent(others, turns)


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The agent that a turn addresses answers: by a line ``To: ROLE``, or by ``@ROLE``.

    If none is addressed, the previous speaker answers; at the beginning, the next agent in the list.
    """

    roles: Mapping[Speaker, str]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that the last turn addresses."""
        names = list(self.roles)
        if not turns:
            return names[0]
        last = turns[-1]
        others = [name for name in names if name != last.speaker]
        lines = [match["name"] for match in _TO.finditer(last.text)]
        addressed = (
            _found(lines[-1], self.roles, others) if lines else _mentioned(last.text, self.roles, others)
        )
        if addressed is not None:
            return addressed
        before = next((turn.speaker for turn in reversed(turns) if turn.speaker != last.speaker), None)
        return before or names[(names.index(last.speaker) + 1) % len(names)]


def _found(written: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent with this role or name; None if not found."""
    wanted = written.strip(_EDGES).casefold()
    return next((name for name in among if wanted in (roles[name].casefold(), name.casefold())), None)


def _mentioned(text: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent that is mentioned first with an ``@``; None if not found."""
    lower = text.casefold()
    places = {
        name: min(
            (at for word in (roles[name], name) if (at := lower.find(f"@{word.casefold()}")) >= 0),
            default=len(lower),
        )
        for name in among
    }
    first = min(places, key=lambda name: places[name])
    return first if places[first] < len(lower) else None


def _longest_silent(among: Sequence[Speaker], turns: Sequence[Turn]) -> Speaker:
    last = {turn.speaker: turn.number for turn in turns}
    return min(among, key=lambda name: last.get(name, 0))
