"""The page of recipes: each table with its keys, from the JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bactrian.recipes.schema import find_recipe_model

_HEAD = """# Recipe schema

This page is written from the JSON schema, which `bactrian recipes --schema` prints and [recipe.schema.json](../recipe.schema.json) holds for
editors. [Recipes](../recipes.md) explains the keys and shows them in use. A key that is not here is an error.
"""
_TABLES = {
    "Axis": "[[axes]]",
    "RolePlay": "[role_play]",
    "Answer": "[answer]",
    "Translate": "[translate]",
    "SocietyJob": "[society]",
    "CriticSpec": "[critic]",
    "RolePlayTools": "[tools]",
    "RecipeModels": "[models]",
    "Parameters": "[parameters]",
    "SamplingSpec": "[parameters.AGENT]",
    "Completion": "[completion]",
    "Solutions": "[solutions]",
    "Verdicts": "[verdicts]",
}
"""The table of a recipe that each definition describes, in the order of the page."""


def write_schema() -> str:
    """Return the page."""
    schema: dict[str, Any] = find_recipe_model().model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    parts = [_HEAD, "## The recipe\n", *_write_table({**schema, "description": ""})]
    for name in sorted(definitions, key=lambda definition: [*_TABLES, definition].index(definition)):
        parts += [f"## `{_TABLES.get(name, name)}`\n", *_write_table(definitions[name])]
    return "\n".join(parts)


def _write_table(schema: dict[str, Any]) -> Iterator[str]:
    if text := schema.get("description"):
        yield " ".join(text.split()) + "\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    needed = schema.get("required", [])
    rows: list[str] = []
    for key, field in schema["properties"].items():
        default = "needed" if key in needed else _write_default(field.get("default"))
        text = " ".join(field.get("description", "").split()).replace("|", "\\|")
        rows.append(f"| `{key}` | {_name_type(field)} | {default} | {text} |")
    yield "\n".join(rows) + "\n"


def _write_default(value: object) -> str:
    return "–" if value in (None, "", [], {}) else f"`{json.dumps(value)}`"


def _name_type(field: dict[str, Any]) -> str:
    if options := field.get("anyOf") or field.get("oneOf"):
        names = [_name_type(option) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"table `{_TABLES.get(name, name)}`"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    match field.get("type"):
        case "array":
            return f"list of {_name_type(field.get('items', {}))}"
        case "object":
            return "table"
        case "string":
            return "text"
        case "boolean":
            return "true, false"
        case "integer" | "number" as kind:
            return _write_range(kind, field)
        case _:
            return "any value"


def _write_range(kind: str, field: dict[str, Any]) -> str:
    low = field.get("minimum", field.get("exclusiveMinimum"))
    if kind == "integer" and "exclusiveMinimum" in field:
        low = field["exclusiveMinimum"] + 1
    high = field.get("maximum")
    name = "whole number" if kind == "integer" else "number"
    if low is None and high is None:
        return name
    return f"{name}, {low} to {high}" if high is not None else f"{name} from {low}"
