"""How a model is asked to choose its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. None leaves a choice to the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Longest reply, in tokens."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repeat_penalty: float | None = None
    """Only for the local model; other endpoints have no common name for it."""
    reasoning_effort: str | None = None
    """How long a reasoning model is to think: mostly ``low``, ``medium`` or ``high``."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the request's body, as JSON values; only for endpoints."""
