"""The engine's own prompts: templates in ``engine.toml``, rendered as strictly as those of a pack."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from bactrian.errors import PromptError
from bactrian.files.toml import FileKind, TomlSource, suggest_name

if TYPE_CHECKING:
    from jinja2 import Template

OVERRIDABLE = frozenset(
    {
        "critic_nothing_said",
        "critic_proposal",
        "critic_proposals",
        "critic_question",
        "critic_tools",
        "critic_way",
        "critic_ways",
        "draft_note",
    }
)
"""Templates that a pack may replace in a table ``[engine]``: a session's, except those that parsers depend on."""
_KIND = FileKind("engine's prompts", PromptError, "docs/prompts.md", "prompts")


@dataclass(frozen=True, slots=True)
class EnginePrompts:
    """The engine's templates, each checked when it is first rendered. :func:`load_engine_prompts` reads them."""

    hash: str
    """SHA-256, hexadecimal, of the templates as JSON with sorted keys."""
    templates: Mapping[str, str]
    """The templates' sources, by name."""
    placeholders: Mapping[str, frozenset[str]]
    """Placeholders of each template."""
    _compiled: dict[str, Template] = field(
        default_factory=dict[str, "Template"], repr=False, compare=False, init=False
    )

    def render(self, name: str, /, **values: str | int) -> str:
        """Fill a template with ``values``, one for each of its placeholders.

        Values are inserted unchanged.

        Raises:
            PromptError: there is no such template, or the values do not match its placeholders.
        """
        template = self._compiled.get(name) or self._compile(name)
        if values.keys() != self.placeholders[name]:
            raise PromptError(
                f"Template {name!r} was given {', '.join(sorted(values)) or 'nothing'}.",
                where="engine.toml",
                next=f"It takes {', '.join(sorted(self.placeholders[name])) or 'nothing'}.",
            )
        return template.render({key: str(value) for key, value in values.items()})

    def with_templates(self, templates: Mapping[str, str]) -> EnginePrompts:
        """Return these prompts with some of them replaced."""
        merged = {**self.templates, **templates}
        return EnginePrompts(_hash(merged), MappingProxyType(merged), self.placeholders)

    def _compile(self, name: str) -> Template:
        from bactrian.files.template import compile_template

        if name not in self.templates:
            raise PromptError(
                f"There is no template {name!r}.{suggest_name(name, self.templates)}", where="engine.toml"
            )
        self._compiled[name] = compile_template(self.templates[name], may=self.placeholders[name])
        return self._compiled[name]


@cache
def load_engine_prompts() -> EnginePrompts:
    """Read ``engine.toml``, once."""
    text = resources.files("bactrian.prompts").joinpath("engine.toml").read_text("utf-8")
    source = TomlSource("engine.toml", text, _KIND)
    given = source.subtable(source.table(), "templates")
    templates = {name: source.string(given, name) for name in given}
    placeholders = {name: _find_placeholders(text) for name, text in templates.items()}
    return EnginePrompts(_hash(templates), MappingProxyType(templates), MappingProxyType(placeholders))


def render_prompt(name: str, /, **values: str | int) -> str:
    """Fill one of the engine's own templates; see :meth:`EnginePrompts.render`."""
    return load_engine_prompts().render(name, **values)


def _hash(templates: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(templates), sort_keys=True).encode()).hexdigest()


def _find_placeholders(template: str) -> frozenset[str]:
    """Return the names that ``template`` uses."""
    tags = re.findall(r"\{\{(.*?)\}\}|\{%-?\s*(?:if|elif)\b(.*?)%\}", template, re.DOTALL)
    words = (word for tag in tags for word in re.findall(r"\"[^\"]*\"|[a-z_]+", "".join(tag)))
    return frozenset(word for word in words if word not in _SYNTAX and not word.startswith('"'))


_SYNTAX = frozenset({"and", "or", "not"})
