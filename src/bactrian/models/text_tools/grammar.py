"""A grammar for calls in plain text, so that a constrained model can only write valid calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bactrian.models.model import ResponseFormat
from bactrian.models.openai.lenient_json import is_array, is_object
from bactrian.records.tool import Tool

# Bounded, because an unbounded string could fill the whole reply.
_JSON = (
    'json-value ::= json-object | json-array | json-string | json-number | "true" | "false" | "null"',
    'json-object ::= "{" (json-string ": " json-value (", " json-string ": " json-value){0,15})? "}"',
    'json-array ::= "[" (json-value (", " json-value){0,15})? "]"',
    r'json-string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/nt]){0,400} "\""',
    'json-number ::= json-integer ("." [0-9]{1,12})?',
    'json-integer ::= "-"? ("0" | [1-9] [0-9]{0,14})',
)
_SIMPLE = {
    "string": "json-string",
    "integer": "json-integer",
    "number": "json-number",
    "boolean": '("true" | "false")',
    "null": '"null"',
    "object": "json-object",
}
_MOST_CALLS = 4
_DEFINITIONS = "#/$defs/"
_MAX_DEPTH = 6
"""Maximum depth of a schema, which may refer to itself."""


def extend_grammar(form: ResponseFormat, tools: Sequence[Tool]) -> ResponseFormat:
    """Return ``form`` with tool calls as an alternative."""
    said = re.sub(r"^root ::=", "said ::=", form.grammar, flags=re.MULTILINE)
    calls = [f"{_literal(f'Call: {tool.name} ')} {_arguments(tool.parameters)}" for tool in tools]
    rules = (
        f'root ::= said | tool-call ("\\n" tool-call){{0,{_MOST_CALLS - 1}}}',
        f"tool-call ::= {' | '.join(calls)}",
        *_JSON,
    )
    return replace(form, grammar="\n".join((*rules, said)))


def parse_arguments(schema: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the schema of each argument and the names of the required ones."""
    found, needed = schema.get("properties"), schema.get("required")
    properties: dict[str, dict[str, Any]] = found if is_object(found) else {}
    return properties, needed if is_array(needed) else []


def _arguments(schema: Mapping[str, Any]) -> str:
    definitions = schema.get("$defs")
    return _Values(definitions if is_object(definitions) else {}).object(schema)


class _Values:
    """Builds grammars of values from their schemas, which may refer to ``definitions``."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def object(self, schema: Mapping[str, Any], depth: int = 0) -> str:
        """Return the grammar of an object: the required members, then any of the others, both in order.

        Without required members there is at most one, so that commas are always valid.
        """
        properties, needed = parse_arguments(schema)
        pairs = {name: f'{_text(name)} ": " {self.value(one, depth + 1)}' for name, one in properties.items()}
        first = ' ", " '.join(pairs[name] for name in needed if name in pairs)
        others = [pair for name, pair in pairs.items() if name not in needed]
        if not first:
            return f'("{{" ({" | ".join(others)})? "}}")' if others else '"{}"'
        rest = "".join(f' (", " {pair})?' for pair in others)
        return f'("{{" {first}{rest} "}}")'

    def value(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the grammar of the values that fit ``schema``; of any JSON value if the schema is not simple."""
        options, kind, items, either = (schema.get(key) for key in ("enum", "type", "items", "anyOf"))
        reference = str(schema.get("$ref", ""))
        if depth > _MAX_DEPTH:
            return "json-value"
        if reference.startswith(_DEFINITIONS):
            return self.value(self._definitions.get(reference.removeprefix(_DEFINITIONS), {}), depth + 1)
        if "const" in schema:
            return _text(schema["const"])
        if is_array(options):
            return f"({' | '.join(map(_text, options))})"
        if is_array(either):
            return f"({' | '.join(self.value(one, depth + 1) for one in either)})"
        if kind == "array" and is_object(items):
            item = self.value(items, depth + 1)
            return f'("[" ({item} (", " {item}){{0,15}})? "]")'
        if kind == "object" and "properties" in schema:
            return self.object(schema, depth)
        return _SIMPLE.get(kind, "json-value") if isinstance(kind, str) else "json-value"


def _text(value: object) -> str:
    """Return the grammar of a JSON constant."""
    return _literal(json.dumps(value, ensure_ascii=False))


def _literal(text: str) -> str:
    """Return the grammar of a literal text, quoted and escaped as in JSON."""
    return json.dumps(text, ensure_ascii=False)
