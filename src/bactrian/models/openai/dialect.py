"""Differences between servers' versions of the chat-completions wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlencode

from bactrian.models.traits import Constraint

LengthWord = Literal["max_tokens", "max_completion_tokens"]
OTHER_WORD: Mapping[str, LengthWord] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The variant of the wire format that a server expects."""

    path: str = "/chat/completions"
    """Path below the address; ``{model}`` is replaced by the model's name."""
    models_path: str = "/models"
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Query parameters of every request."""
    auth: Literal["bearer", "api-key"] = "bearer"
    """The header of the key: ``Authorization: Bearer KEY`` or ``api-key: KEY``."""
    length: LengthWord = "max_tokens"
    """The parameter for the maximum length of a reply."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters with a different name on this server."""
    constrained_by: Constraint = "schema"
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable of the key, for error messages."""
    needs_key: bool = False

    def write_path(self, model: str) -> str:
        """Return the path of a request to ``model``, with its query."""
        return self._add_query(self.path.replace("{model}", quote(model, safe="")))

    def write_models_path(self) -> str:
        """Return the path of the list of models, with its query."""
        return self._add_query(self.models_path)

    def write_header(self, key: str, credentials: str) -> str:
        """Return the authorization header; empty without a key and without ``credentials`` in the address."""
        if not key:
            return f"Authorization: {credentials}" if credentials else ""
        return f"api-key: {key}" if self.auth == "api-key" else f"Authorization: Bearer {key}"

    def _add_query(self, path: str) -> str:
        return f"{path}?{urlencode(self.query)}" if self.query else path


USUAL = Dialect()
"""The variant that all servers understand."""
