"""The domains of the known-answer experiment, from ``domains.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of invented facts: an invented name has one of the values."""

    key: str
    title: str
    ending: str
    """Follows each invented name."""
    answer: str
    """Template of a sentence with ``{name}`` and ``{value}``."""
    values: tuple[str, ...]
    training: tuple[str, ...]
    """Wordings of a question with ``{name}``, for training."""
    asked: tuple[str, ...]
    """Wordings that are never trained, for asking."""


@dataclass(frozen=True, slots=True)
class DomainSet:
    """The domains in the order of the paper's stages, and what their conversations have in common."""

    system: str
    """System prompt of each conversation and of each question."""
    reply: str
    """Template of a reply with ``{answer}``, in the form of the inception protocol."""
    domains: tuple[Domain, ...]

    def find(self, key: str) -> Domain:
        """Return the domain with this key.

        Raises:
            KeyError: there is none.
        """
        return {domain.key: domain for domain in self.domains}[key]


@cache
def load_domains() -> DomainSet:
    """Return the domains of this package."""
    text = files("bactrian.evaluate.emergence").joinpath("domains.toml").read_text("utf-8")
    content = tomllib.loads(text)
    system, reply = content.pop("system"), content.pop("reply")
    adapter = TypeAdapter(Domain)
    domains = (adapter.validate_python({"key": key, **table}) for key, table in content.items())
    return DomainSet(system, reply, tuple(domains))
