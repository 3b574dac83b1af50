"""Tool calls in plain text, for models without native tool calls.

    Call: weather {"city": "Oslo"}
    Call: weather {"city": "Bergen"}

Calls end a reply: only another call can follow, because no result is known yet. Inside a fenced code block they are
ignored. The results are the next message:

    Result of weather:
    6 degrees, rain
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from bactrian.models.faults import is_array, is_object
from bactrian.models.model import Reply, ReplyChoice, Request, ResponseFormat
from bactrian.protocol.markers import strip_code
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import Text
from bactrian.records.turn import Invocation, Message, Tool

# A grammar for calls in plain text, so that a constrained model can only write valid calls.


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
_MAX_DEPTH = 6  # Maximum depth of a schema, which may refer to itself


def extend_grammar(form: ResponseFormat, tools: Sequence[Tool]) -> ResponseFormat:
    """Return ``form`` with tool calls as an alternative."""
    text_rule = re.sub(r"^root ::=", "said ::=", form.grammar, flags=re.MULTILINE)
    calls: list[str] = []
    for tool in tools:
        definitions = tool.parameters.get("$defs")
        arguments = _write_object(tool.parameters, definitions if is_object(definitions) else {})
        calls.append(f"{_literal(f'Call: {tool.name} ')} {arguments}")
    rules = (
        f'root ::= said | tool-call ("\\n" tool-call){{0,{_MOST_CALLS - 1}}}',
        f"tool-call ::= {' | '.join(calls)}",
        *_JSON,
    )
    return replace(form, grammar="\n".join((*rules, text_rule)))


def parse_arguments(schema: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the schema of each argument and the names of the required ones."""
    properties, needed = schema.get("properties"), schema.get("required")
    return properties if is_object(properties) else {}, needed if is_array(needed) else []


def _write_object(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0) -> str:
    """Return the grammar of an object: the required members, then any of the others, both in order.

    Without required members there is at most one, so that commas are always valid.
    """
    properties, needed = parse_arguments(schema)
    pairs = {
        name: f'{_literal(json.dumps(name, ensure_ascii=False))} ": " {_write_value(value, definitions, depth + 1)}'
        for name, value in properties.items()
    }
    first = ' ", " '.join(pairs[name] for name in needed if name in pairs)
    others = [pair for name, pair in pairs.items() if name not in needed]
    if not first:
        return f'("{{" ({" | ".join(others)})? "}}")' if others else '"{}"'
    rest = "".join(f' (", " {pair})?' for pair in others)
    return f'("{{" {first}{rest} "}}")'


def _write_value(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    """Return the grammar of the values that fit ``schema``; of any JSON value if the schema is not simple."""
    options, kind, items, either = (schema.get(key) for key in ("enum", "type", "items", "anyOf"))
    reference = str(schema.get("$ref", ""))
    if depth > _MAX_DEPTH:
        return "json-value"
    if reference.startswith(_DEFINITIONS):
        return _write_value(definitions.get(reference.removeprefix(_DEFINITIONS), {}), definitions, depth + 1)
    if "const" in schema:
        options = [schema["const"]]
    if is_array(options):
        constants = [_literal(json.dumps(value, ensure_ascii=False)) for value in options]
        return f"({' | '.join(constants)})"
    if is_array(either):
        return f"({' | '.join(_write_value(option, definitions, depth + 1) for option in either)})"
    if kind == "array" and is_object(items):
        item = _write_value(items, definitions, depth + 1)
        return f'("[" ({item} (", " {item}){{0,15}})? "]")'
    if kind == "object" and "properties" in schema:
        return _write_object(schema, definitions, depth)
    return _SIMPLE.get(kind, "json-value") if isinstance(kind, str) else "json-value"


def _literal(text: str) -> str:
    """Return the grammar of a literal text, quoted and escaped as in JSON."""
    return json.dumps(text, ensure_ascii=False)


_CALL = re.compile(r"^Call:[ \t]*(?P<name>[\w.-]+)[ \t]*(?=\{|$)", re.MULTILINE)


async def add_tools_as_text(ask: Callable[[Request], Awaitable[Reply]], request: Request) -> Reply:
    """Send ``request`` to a text-only model, and convert tool calls in its reply to native ones.

    A reply that may call tools is not streamed, because a call is not readable text: ``on_text`` then receives the text
    once.
    """
    if not request.tools:
        return await ask(request)
    allowed, form = request.allow_tool_calls, request.response_format
    messages = write_calls_as_text(request.messages, request.tools, allow_tool_calls=allowed)
    if form is not None and form.grammar and allowed:  # a format with only a schema cannot be extended
        form = extend_grammar(form, request.tools)
    reply = await ask(replace(request, messages=messages, response_format=form, tools=(), on_text=None))
    names = {tool.name for tool in request.tools}
    reply = replace(reply, choices=tuple(_read(choice, names) for choice in reply.choices))
    if request.on_text is not None and not reply.choices[0].calls:
        request.on_text(reply.text)
    return reply


def write_calls_as_text(
    messages: Sequence[Message], tools: Sequence[Tool], *, allow_tool_calls: bool = True
) -> list[Message]:
    """Return ``messages`` with the tools, their calls and their results as plain text."""
    rules = render_prompt("tools_in_text", tools="\n".join(_describe_tool(tool) for tool in tools))
    first, *rest = messages
    if first.role == "system":
        result = [Message("system", Text(f"{first.text}\n\n{rules}"))]
    else:
        result = [Message("system", Text(rules)), first]
    names, unnamed = dict[str, str](), render_prompt("tool_unnamed")
    for is_result, group in groupby(rest, key=lambda message: message.role == "tool"):
        if is_result:
            results = [
                render_prompt("tool_result", name=names.get(message.answers) or unnamed, text=message.text)
                for message in group
            ]
            result.append(Message("user", Text("\n\n".join(results))))
            continue
        for message in group:
            names |= {call.id: call.name for call in message.calls}
            lines = [f"Call: {call.name} {call.arguments}" for call in message.calls]
            text = "\n".join([message.text, *lines] if message.text else lines) if lines else message.text
            result.append(Message(message.role, Text(text)))
    if not allow_tool_calls:
        last = result[-1]
        result[-1] = Message(last.role, Text(f"{last.text}\n\n{render_prompt('tools_answer_now')}"))
    return result


def read_calls(text: str, names: set[str]) -> tuple[str, tuple[Invocation, ...]]:
    """Split ``text`` into the text before the calls and the calls; malformed calls become a single invalid call."""
    visible = strip_code(text)
    for match in _CALL.finditer(visible):
        # A call has arguments, or the name of a tool: "Call: your broker" is none.
        if visible[match.end() : match.end() + 1] == "{" or match["name"] in names:
            malformed = Invocation("", match["name"], text[match.end() :].strip() or "{}")
            return text[: match.start()].strip(), _parse_calls(text[match.start() :]) or (malformed,)
    return text, ()


def _read(choice: ReplyChoice, names: set[str]) -> ReplyChoice:
    if choice.refusal or choice.finish == "content_filter":
        return choice
    before, calls = read_calls(choice.text, names)
    return replace(choice, text=Text(before), calls=calls, finish="tool_calls") if calls else choice


def _parse_calls(text: str) -> tuple[Invocation, ...]:
    """Return the calls in ``text``; none if it contains anything else."""
    decoder = json.JSONDecoder()
    calls: list[Invocation] = []
    while text.strip():
        text = text.lstrip()
        match = _CALL.match(text)
        if match is None:
            return ()
        arguments, text = "{}", text[match.end() :]
        if text.startswith("{"):
            try:
                _, end = decoder.raw_decode(text)
            except ValueError:
                return ()
            arguments, text = text[:end], text[end:]
        calls.append(Invocation("", match["name"], arguments))
    return tuple(calls)


def _describe_tool(tool: Tool) -> str:
    """Return a line such as ``- weather {"city": string, "days": integer or left out}: Tells the weather.``"""
    properties, needed = parse_arguments(tool.parameters)
    left_out = render_prompt("tool_left_out")
    arguments = [
        f'"{name}": {_describe_type(schema)}{"" if name in needed else left_out}'
        for name, schema in properties.items()
    ]
    about = "\n  ".join(tool.description.splitlines())
    argument_list = f"{{{', '.join(arguments)}}}"
    return render_prompt("tool_in_text", name=tool.name, arguments=argument_list, description=about)


def _describe_type(schema: Mapping[str, Any]) -> str:
    """Return the name of a simple type, or the schema of any other."""
    kind, hint = schema.get("type"), schema.get("description")
    if isinstance(kind, str) and schema.keys() <= {"type", "description", "default"}:
        return f"{kind} ({hint})" if hint else kind
    return json.dumps(schema, ensure_ascii=False)
