"""The page of the Python API: every public name with its signature and docstring, read by Griffe from the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

import bactrian

_HEAD = """# Python API

This page is written from the docstrings. `import bactrian as bt` gives all of these names; [Python](../python.md) introduces them with examples that
run. Every error is a `BactrianError`. `Usage`, `SessionList`, `RunStatus` and `Forecast` are the classes of objects that these contain or return.
"""
_ORDER = (
    *("play", "stream", "Interrupted", "Session", "Turn", "Role", "Critic"),
    *("generate", "recipe", "open_run", "import_chats", "Run", "Report"),
    *("load_model", "Scripted", "ending", "default_endings", "behaviour", "BactrianError"),
)
_RETURNED = {
    "Usage": "records.usage",
    "SessionList": "api.reading.session_list",
    "RunStatus": "api.reading.status",
    "Forecast": "generate.forecast",
}
"""Classes of objects that the public ones contain or return, and their modules."""
_CROSS = re.compile(r":(?:class|func|meth|attr|data|mod):`~?([^`]+)`")


def write_python_api() -> str:
    """Return the page."""
    others = set(bactrian.__all__) - {*_ORDER, "__version__"}
    package: Any = griffe.load("bactrian", docstring_parser="google")
    parts = [_HEAD]
    for name in (*_ORDER, *sorted(others)):
        one = package[f"{_find_home(name)}.{name}"]
        one = one.final_target if one.is_alias else one
        parts += _write_object(one, name, 2)
    for name, home in _RETURNED.items():
        parts += _write_object(package[f"{home}.{name}"], name, 2)
    for title in ("PlayOptions", "GenerateOptions"):
        parts += _write_fields(package, title)
    return "\n".join(parts)


def _find_home(name: str) -> str:
    return vars(bactrian)["_HOMES"][name]


def _write_object(one: Any, name: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{name}`\n"
    if one.is_function:
        yield f"```python\n{_write_signature(one, name)}\n```\n"
    yield from _write_docstring(one)
    if one.is_class:
        yield from _write_members(one)


def _write_signature(one: Any, name: str) -> str:
    """Return the signature, an argument a line where it has several."""
    shown: list[str] = []
    star = False
    for parameter in one.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind.value
        if kind == "keyword-only" and not star:
            shown.append("*")
            star = True
        star = star or kind == "variadic positional"
        text = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "") + parameter.name
        if parameter.annotation:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not kind.startswith("variadic"):
            text += f" = {parameter.default}"
        shown.append(text)
    result = f" -> {one.returns}" if one.returns else ""
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= 90:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + f"){result}"


def _write_docstring(one: Any) -> Iterator[str]:
    if one.docstring is None:
        return
    for section in one.docstring.parsed:
        match section.kind.value:
            case "text":
                yield _clean(section.value) + "\n"
            case "examples":
                for kind, text in section.value:
                    code = kind.value == "examples"
                    yield f"```pycon\n{text}\n```\n" if code else _clean(text) + "\n"
            case "parameters" | "other parameters":
                yield "| argument | meaning |\n|---|---|"
                yield (
                    "\n".join(
                        f"| `{row.name}` | {_clean(row.description, table=True)} |" for row in section.value
                    )
                    + "\n"
                )
            case "raises":
                yield "| raises | when |\n|---|---|"
                yield (
                    "\n".join(
                        f"| `{row.annotation}` | {_clean(row.description, table=True)} |"
                        for row in section.value
                    )
                    + "\n"
                )
            case "returns" | "yields":
                yield " ".join(_clean(row.description) for row in section.value) + "\n"
            case "admonition":
                yield _write_example(section.value.description) + "\n"
            case _:
                raise ValueError(f"{one.path}: a docstring has a section {section.kind.value!r}")


def _write_example(text: str) -> str:
    return f"```pycon\n{text.strip()}\n```" if text.lstrip().startswith(">>>") else _clean(text)


def _write_members(one: Any) -> Iterator[str]:
    fields = [
        member
        for member in one.members.values()
        if member.is_attribute and not member.name.startswith("_") and (member.docstring or member.annotation)
    ]
    if fields:
        yield "| attribute | type | meaning |\n|---|---|---|"
        yield "\n".join(_write_field(field) for field in fields) + "\n"
    for member in one.members.values():
        called = member.name in ("__len__", "__iter__", "__getitem__")
        if member.is_function and member.docstring and (called or not member.name.startswith("_")):
            yield f"### `{one.name}.{member.name}`\n"
            yield f"```python\n{_write_signature(member, member.name)}\n```\n"
            yield from _write_docstring(member)


def _write_fields(package: Any, title: str) -> Iterator[str]:
    home = "api.arguments" if title == "PlayOptions" else "api.generate"
    one = package[f"{home}.{title}"]
    one = one.final_target if one.is_alias else one
    yield f"## `{title}`\n"
    yield from _write_docstring(one)
    yield from _write_members(one)


def _write_field(field: Any) -> str:
    kind = str(field.annotation or "").replace("|", "\\|")
    meaning = field.docstring.value.partition("\n\nExample:")[0] if field.docstring else ""
    text = _clean(meaning, table=True)
    return f"| `{field.name}` | `{kind}` | {text} |"


def _clean(text: str, *, table: bool = False) -> str:
    """Return a docstring's text as Markdown."""
    text = _CROSS.sub(r"`\1`", text).replace("``", "`")
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip() if table else text.strip()
