"""What a model is like, for those who must treat one differently from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.models.model import Model

Constraint = Literal["schema", "grammar", "none"]
"""What a model's replies can be held to while it writes them: a JSON schema, a grammar as well, or nothing."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model is like, as far as others must know: it is asked here, and never of the model's name."""

    constrained_by: Constraint = "schema"
    small: bool = False
    """True for the built-in model, which needs prompts, sampling and grammars of its own."""
    in_process: bool = False
    """True if it computes on this computer, on our behalf."""
    remote: bool = False
    """True if it is behind an address: its first request may show that address or key are wrong."""
    priced: bool = True
    """True if its tokens may cost money."""


BUILT_IN_MODEL = Traits("grammar", small=True, in_process=True, priced=False)
"""Of the model that comes with the program."""
OWN_WEIGHTS = Traits("grammar", in_process=True, priced=False)
"""Of any other GGUF file."""


def get_traits(model: Model) -> Traits:
    """The traits of ``model``, from its attribute ``traits``; the usual ones if it has none."""
    found: object = getattr(model, "traits", None)
    return found if isinstance(found, Traits) else Traits()
