"""Traits of models that change how the program treats them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.models.model import Model

Constraint = Literal["schema", "grammar", "none"]
"""Supported constraints on replies: ``schema`` (a JSON schema), ``grammar`` (also a grammar) or ``none``."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of a model; other code must use them instead of the model's name."""

    constrained_by: Constraint = "schema"
    small: bool = False
    """True for the built-in model, which needs its own prompts, sampling and grammars."""
    in_process: bool = False
    """True if the program runs the model on this computer."""
    remote: bool = False
    """True for a model behind an address: its first request may reveal a wrong address or key."""
    priced: bool = True
    """True if its tokens may cost money."""


BUILT_IN_MODEL = Traits("grammar", small=True, in_process=True, priced=False)
"""Traits of the built-in model."""
OWN_WEIGHTS = Traits("grammar", in_process=True, priced=False)
"""Traits of any other GGUF file."""


def get_traits(model: Model) -> Traits:
    """Return the traits of ``model``, from its attribute ``traits``; defaults if it has no such attribute."""
    found: object = getattr(model, "traits", None)
    return found if isinstance(found, Traits) else Traits()
