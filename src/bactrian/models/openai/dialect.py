"""How a server's chat-completions differ from those of others."""

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
    """What a server wants to be told, and how."""

    path: str = "/chat/completions"
    """Below the address; ``{model}`` stands for the model's name."""
    models_path: str = "/models"
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Goes with every request."""
    auth: Literal["bearer", "api-key"] = "bearer"
    """The header of the key: ``Authorization: Bearer KEY`` or ``api-key: KEY``."""
    length: LengthWord = "max_tokens"
    """The word for the reply's limit."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters that have another name here."""
    constrained_by: Constraint = "schema"
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable of the key, for errors."""
    needs_key: bool = False

    def write_path(self, model: str) -> str:
        """The path of a request to ``model``, with its query."""
        return self._with_query(self.path.replace("{model}", quote(model, safe="")))

    def write_models_path(self) -> str:
        """The path of the list of models, with its query."""
        return self._with_query(self.models_path)

    def write_header(self, key: str, credentials: str) -> str:
        """The header line that shows who asks; empty if nobody does. ``credentials`` are those of the address."""
        if not key:
            return f"Authorization: {credentials}" if credentials else ""
        return f"api-key: {key}" if self.auth == "api-key" else f"Authorization: Bearer {key}"

    def _with_query(self, path: str) -> str:
        return f"{path}?{urlencode(self.query)}" if self.query else path
