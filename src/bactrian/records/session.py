"""One role-play conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bactrian.records.criticism import CriticSettings
from bactrian.records.ending import Ending
from bactrian.records.sampling import Sampling
from bactrian.records.task import Role, Task
from bactrian.records.tool import Toolkit, Use
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


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
