"""The page of the Python API: every public name with its signature and docstring, read by Griffe from the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import formatannotation
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import griffe

import bactrian
from bactrian import options

_HEAD = """# Python API

This page is written from the docstrings. `import bactrian as bt` gives these names, but those that have an import of their own here; [Python](../python.md)
introduces them with examples that run. Every error is a `BactrianError`. From `Usage` on, the page describes the objects that the functions return or contain:
the parts of a turn, the events of `stream`. Your own code receives or returns others:

- A model gets a [`Request`](#request) and returns a [`Reply`](#reply).
- A list source gets a [`ListRequest`](#listrequest).
- A format gets a [`Sample`](#sample) and the `context`, an [`ExportContext`](#exportcontext).
- A kind of job gets a [`JobContext`](#jobcontext).
"""
_ORDER = (
    *("play", "stream", "Interrupted", "Session", "Turn", "Role", "Critic"),
    *("generate", "recipe", "open_run", "import_chats", "Run", "Report"),
    *("load_model", "Scripted", "ending", "default_endings", "behaviour", "BactrianError"),
)
_RETURNED = {
    "Usage": "records.turn",
    "Instruction": "records.turn",
    "Solution": "records.turn",
    "Use": "records.turn",
    "ToolCall": "records.turn",
    "ToolResult": "records.turn",
    "Task": "records.session",
    "Ending": "records.session",
    "Started": "records.events",
    "Proposed": "records.events",
    "Chose": "records.events",
    "Called": "records.events",
    "Returned": "records.events",
    "Spoke": "records.events",
    "Ended": "records.events",
    "SessionList": "api.stored_run",
    "RunStatus": "api.status",
    "Forecast": "runs.forecast",
}
"""Classes of objects that the public ones contain or return, and their modules."""
_RECEIVED = {
    "Request": "models.model",
    "Message": "records.turn",
    "Sampling": "records.turn",
    "Invocation": "records.turn",
    "Reply": "models.model",
    "ReplyChoice": "models.model",
    "ListRequest": "runs.scheduler",
    "Format": "export.format",
    "Sample": "export.format",
    "ExportContext": "export.format",
    "JobContext": "runs.jobs",
}
"""Classes of objects that the user's own models, list sources and formats receive or return, and their modules."""
_OPTIONS = (
    *("PlayOptions", "GenerateOptions", "ResumeOptions", "SelectOptions", "ExportChoices"),
    *("AgentOptions", "ComparisonOptions", "DrawOptions", "ScoreOptions"),
)
_CROSS = re.compile(r":(?:class|func|meth|attr|data|mod):`~?([^`]+)`")


def write_python_api() -> str:
    """Return the page."""
    others = set(bactrian.__all__) - {*_ORDER, *_RETURNED, *_RECEIVED, "__version__"}
    package: Any = griffe.load("bactrian", docstring_parser="google")
    parts = [_HEAD]
    for name in (*_ORDER, *sorted(others)):
        documented = package[f"{_find_home(name)}.{name}"]
        documented = documented.final_target if documented.is_alias else documented
        parts += _write_object(documented, name, 2)
    for name, home in (_RETURNED | _RECEIVED).items():
        parts += _write_object(package[f"{home}.{name}"], name, 2)
    for title in _OPTIONS:
        parts += _write_fields(package, title)
    return "\n".join(parts)


def _find_home(name: str) -> str:
    return vars(bactrian)["_HOMES"][name]


def _write_object(documented: Any, name: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{name}`\n"
    if name in _RETURNED | _RECEIVED and name not in bactrian.__all__:
        yield f"```python\nfrom bactrian.{(_RETURNED | _RECEIVED)[name]} import {name}\n```\n"
    if documented.is_function:
        yield f"```python\n{_write_signature(documented, name)}\n```\n"
    yield from _write_docstring(documented)
    if documented.is_class:
        yield from _write_members(documented)


def _write_signature(documented: Any, name: str) -> str:
    """Return the signature, an argument a line where it has several."""
    shown: list[str] = []
    star = False
    for parameter in documented.parameters:
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
    result = f" -> {documented.returns}" if documented.returns else ""
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= 90:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + f"){result}"


def _write_docstring(documented: Any) -> Iterator[str]:
    if documented.docstring is None:
        return
    for section in documented.docstring.parsed:
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
                raise ValueError(f"{documented.path}: a docstring has a section {section.kind.value!r}")


def _write_example(text: str) -> str:
    return f"```pycon\n{text.strip()}\n```" if text.lstrip().startswith(">>>") else _clean(text)


def _write_members(documented: Any) -> Iterator[str]:
    fields = [
        member
        for member in documented.members.values()
        if member.is_attribute and not member.name.startswith("_") and (member.docstring or member.annotation)
    ]
    if fields:
        yield "| attribute | type | meaning |\n|---|---|---|"
        yield "\n".join(_write_field(field) for field in fields) + "\n"
    for member in documented.members.values():
        called = member.name in ("__len__", "__iter__", "__getitem__")
        if member.is_function and member.docstring and (called or not member.name.startswith("_")):
            yield f"### `{documented.name}.{member.name}`\n"
            yield f"```python\n{_write_signature(member, member.name)}\n```\n"
            yield from _write_docstring(member)


def _write_fields(package: Any, title: str) -> Iterator[str]:
    """Write the keyword options of a function: what their declaration says, and what only concerns Python."""
    declaration: type = vars(options)[title]
    classes = [each for each in package["options"].members.values() if not each.is_alias and each.is_class]
    notes = {
        member.name: member.docstring.value
        for each in classes
        for member in each.members.values()
        if member.is_attribute and member.docstring and member.name in declaration.__annotations__
    }
    helps = {declared.name: _write_help(declared.option) for declared in options.list_options(declaration)}
    yield f"## `{title}`\n"
    yield from _write_docstring(package[f"options.{title}"])
    yield "| attribute | type | meaning |\n|---|---|---|"
    for name, kind in options.read_fields(declaration).items():
        meaning = " ".join(filter(None, (helps.get(name), notes.get(name))))
        written = _write_type(kind).replace("|", "\\|")
        yield f"| `{name}` | `{written}` | {_clean(meaning, table=True)} |"
    yield ""


def _write_help(option: options.Option) -> str:
    default = option.shown or ("" if option.default in (None, False, "", ()) else str(option.default))
    return option.help.removesuffix(" Can be repeated.") + (f" Default: {default}." if default else "")


def _write_type(kind: Any) -> str:
    """Return a type as an annotation writes it."""
    if get_origin(kind) is Annotated:
        return _write_type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(_write_type, get_args(kind)))
    return "None" if kind is NoneType else re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", formatannotation(kind))


def _write_field(field: Any) -> str:
    kind = str(field.annotation or "").replace("|", "\\|")
    meaning = field.docstring.value.partition("\n\nExample:")[0] if field.docstring else ""
    text = _clean(meaning, table=True)
    return f"| `{field.name}` | `{kind}` | {text} |"


def _clean(text: str, *, table: bool = False) -> str:
    """Return a docstring's text as Markdown."""
    text = _CROSS.sub(r"`\1`", text).replace("``", "`")
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip() if table else text.strip()
