"""One conversation: its roles, its task, its turns and what kind it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bactrian.records.candidate import CriticSettings
from bactrian.records.ending import Ending
from bactrian.records.sampling import Sampling
from bactrian.records.tool import Toolkit, Use
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Role:
    """A part to play: a name such as ``Stock Trader`` and, optionally, who that is and what they can do."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """An idea on its way to a concrete task (paper, section 3.1)."""

    original: str
    """The idea as the person typed it, or as the recipe gave it."""
    specified: str | None = None
    """What the task specifier made of it; None if the idea was used as it is."""
    planned: str | None = None
    """The planner's subtasks; None if there was no planner."""

    @property
    def text(self) -> str:
        """The task as both agents see it."""
        task = self.specified if self.specified is not None else self.original
        return f"{task}\n{self.planned}" if self.planned else task


IMPORTED = "imported from "
"""What the name of the prompts begins with where the session was read from a file of another program."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a session came from: all that is needed to trace it back or to make it again."""

    prompts: str
    """Name of the prompt pack."""
    prompts_hash: str
    """SHA-256 of the pack's content, hexadecimal."""
    protocol: str
    """``free`` or ``enforced``."""
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """Model name as the user gave it, by agent (``task_specifier``, ``user``, ``assistant`` …)."""
    sampling: Mapping[str, Sampling] = field(default_factory=dict[str, Sampling])
    """Sampling parameters by agent."""
    language: str | None = None
    preamble: str = ""
    """What the operator put before both agents' system prompts."""
    needs_code: bool = False
    """True if a solution must hold code."""
    critic: CriticSettings | None = None
    """Who chose what was said; None if nobody did."""
    cast: Mapping[str, Role] = field(default_factory=dict[str, Role])
    """Role by agent in a talk of several; empty in a role-play, which has its two roles."""
    tools: Mapping[str, Toolkit] = field(default_factory=dict[str, Toolkit])
    """What each agent could use; those that had no tools are left out."""


@dataclass(frozen=True, slots=True)
class Session:
    """A role-play conversation, from the first instruction to its ending."""

    id: str
    assistant: Role
    user: Role
    task: Task
    provenance: Provenance
    turns: tuple[Turn, ...] = ()
    ending: Ending | None = None
    """None while the session is unfinished."""
    preparation: Usage = Usage()
    """Tokens that the task specifier and the planner used."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its place in a recipe: the item of each axis, by the axis's name."""
    mark: str | None = None
    """``red-team`` if it was made to study misuse; goes with it into every export."""
    pending: tuple[Use, ...] = ()
    """The tools that were called for a turn that has not been said."""

    @property
    def usage(self) -> Usage:
        """Tokens of the whole session, preparation included."""
        return sum((turn.usage for turn in self.turns), start=self.preparation)


Kind = Literal["role-play", "translation", "answer", "talk"]


def find_kind(session: Session) -> Kind:
    """The kind of ``session``, by who took part in it."""
    if session.provenance.cast:
        return "talk"
    agents = session.provenance.models.keys()
    if "translator" in agents:
        return "translation"
    alone = "assistant" in agents and "user" not in agents
    return "answer" if alone else "role-play"
