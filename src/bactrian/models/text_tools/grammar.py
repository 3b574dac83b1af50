"""A grammar for calls in plain text, so that a model that is held to one can only write calls that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bactrian.models.model import ResponseFormat
from bactrian.models.openai.lenient_json import is_array, is_object
from bactrian.records.tool import Tool

# Bounded, because an endless string would use up the reply.
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
_DEEPEST = 6
"""Levels of a schema that are followed: one may refer to itself."""


def extend_grammar(form: ResponseFormat, tools: Sequence[Tool]) -> ResponseFormat:
    """``form``, or calls in its place."""
    said = re.sub(r"^root ::=", "said ::=", form.grammar, flags=re.MULTILINE)
    calls = [f"{_literal(f'Call: {tool.name} ')} {_arguments(tool.parameters)}" for tool in tools]
    rules = (
        f'root ::= said | tool-call ("\\n" tool-call){{0,{_MOST_CALLS - 1}}}',
        f"tool-call ::= {' | '.join(calls)}",
        *_JSON,
    )
    return replace(form, grammar="\n".join((*rules, said)))


def parse_arguments(schema: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The schema of each argument, and the names of those that are needed."""
    found, needed = schema.get("properties"), schema.get("required")
    properties: dict[str, dict[str, Any]] = found if is_object(found) else {}
    return properties, needed if is_array(needed) else []


def _arguments(schema: Mapping[str, Any]) -> str:
    definitions = schema.get("$defs")
    return _Values(definitions if is_object(definitions) else {}).object(schema)


class _Values:
    """The grammars of values by their schemas; ``definitions`` are those that a schema may refer to."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def object(self, schema: Mapping[str, Any], depth: int = 0) -> str:
        """An object: the members that are needed, then any of the others, each in their order.

        Where none is needed there is at most one, so that no comma is out of place.
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
        """Any value that fits ``schema``; any value at all where the schema is not a simple one."""
        options, kind, items, either = (schema.get(key) for key in ("enum", "type", "items", "anyOf"))
        reference = str(schema.get("$ref", ""))
        if depth > _DEEPEST:
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
    """The grammar of one JSON value."""
    return _literal(json.dumps(value, ensure_ascii=False))


def _literal(text: str) -> str:
    """The grammar of one text: its quotes and escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
