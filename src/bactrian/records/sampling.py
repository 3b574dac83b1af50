"""Sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a request. None means the model's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Maximum length of the reply, in tokens."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repeat_penalty: float | None = None
    """Only for the local model; endpoints have no common name for it."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model: usually ``low``, ``medium`` or ``high``."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the request body, as JSON values; only for endpoints."""
