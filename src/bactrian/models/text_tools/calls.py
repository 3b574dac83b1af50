"""Tools for models that have no tool calls of their own: they call in plain text.

    Call: weather {"city": "Oslo"}
    Call: weather {"city": "Bergen"}

Calls are the end of a reply: what follows one can only be another, because no result is known yet. Inside a fenced
code block they are quotations. What comes back is the next message:

    Result of weather:
    6 degrees, rain
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from bactrian.language.protocol import strip_code
from bactrian.models.model import Reply, ReplyChoice, Request, ResponseFormat
from bactrian.models.text_tools.grammar import extend_grammar, parse_arguments
from bactrian.prompts.engine import render_prompt
from bactrian.records.message import Invocation, Message
from bactrian.records.text import Text
from bactrian.records.tool import Tool

_CALL = re.compile(r"^Call:[ \t]*(?P<name>[\w.-]+)[ \t]*(?=\{|$)", re.MULTILINE)


async def add_tools_as_text(ask: Callable[[Request], Awaitable[Reply]], request: Request) -> Reply:
    """Ask a model that only knows text; the tools that it calls in its reply are calls like any other's.

    A reply that may call tools is not streamed, because a call is nothing to look at: ``on_text`` then gets the text
    once.
    """
    if not request.tools:
        return await ask(request)
    asked = replace(
        request,
        messages=write_calls_as_text(
            request.messages, request.tools, allow_tool_calls=request.allow_tool_calls
        ),
        response_format=_form(request),
        tools=(),
        on_text=None,
    )
    reply = await ask(asked)
    names = {tool.name for tool in request.tools}
    reply = replace(reply, choices=tuple(_read(choice, names) for choice in reply.choices))
    if request.on_text is not None and not reply.choices[0].calls:
        request.on_text(reply.text)
    return reply


def _form(request: Request) -> ResponseFormat | None:
    """The form of the reply, or calls; one that has only a schema cannot be mixed with anything."""
    form = request.response_format
    if form is None or not form.grammar or not request.allow_tool_calls:
        return form
    return extend_grammar(form, request.tools)


def write_calls_as_text(
    messages: Sequence[Message], tools: Sequence[Tool], *, allow_tool_calls: bool = True
) -> list[Message]:
    """``messages`` without tool calls and results in them: both are told in words, and so are the tools."""
    told = "\n".join(_described(tool) for tool in tools)
    rules = render_prompt("tools_in_text", tools=told)
    first, *rest = messages
    if first.role == "system":
        made = [Message("system", Text(f"{first.text}\n\n{rules}"))]
    else:
        made = [Message("system", Text(rules)), first]
    names: dict[str, str] = {}
    for is_result, group in groupby(rest, key=lambda message: message.role == "tool"):
        if is_result:
            results = [
                render_prompt(
                    "tool_result", name=names.get(one.answers) or render_prompt("tool_unnamed"), text=one.text
                )
                for one in group
            ]
            made.append(Message("user", Text("\n\n".join(results))))
            continue
        for message in group:
            names |= {call.id: call.name for call in message.calls}
            made.append(Message(message.role, _with_lines(message)))
    if not allow_tool_calls:
        made[-1] = Message(made[-1].role, Text(f"{made[-1].text}\n\n{render_prompt('tools_answer_now')}"))
    return made


def read_calls(text: str, names: set[str]) -> tuple[str, tuple[Invocation, ...]]:
    """The text before the calls, and the calls; those that are not written as they should be are one, and broken."""
    visible = strip_code(text)
    found = next((one for one in _CALL.finditer(visible) if _is_call(one, visible, names)), None)
    if found is None:
        return text, ()
    before, rest = text[: found.start()].strip(), text[found.start() :]
    calls = tuple(_each(rest))
    if not calls:
        calls = (Invocation("", found["name"], rest[found.end() - found.start() :].strip() or "{}"),)
    return before, calls


def _read(choice: ReplyChoice, names: set[str]) -> ReplyChoice:
    if choice.refusal or choice.finish == "content_filter":
        return choice
    before, calls = read_calls(choice.text, names)
    return replace(choice, text=Text(before), calls=calls, finish="tool_calls") if calls else choice


def _is_call(found: re.Match[str], text: str, names: set[str]) -> bool:
    """A name without arguments may be anything: "Call: your broker" is no call, "Call: now" is one of ``now``."""
    return text[found.end() : found.end() + 1] == "{" or found["name"] in names


def _each(text: str) -> Iterator[Invocation]:
    """The calls of ``text``; none if it holds anything else."""
    decoder = json.JSONDecoder()
    calls: list[Invocation] = []
    while text.strip():
        text = text.lstrip()
        found = _CALL.match(text)
        if found is None:
            return
        arguments, text = "{}", text[found.end() :]
        if text.startswith("{"):
            try:
                _, end = decoder.raw_decode(text)
            except ValueError:
                return
            arguments, text = text[:end], text[end:]
        calls.append(Invocation("", found["name"], arguments))
    yield from calls


def _with_lines(message: Message) -> Text:
    if not message.calls:
        return message.text
    lines = [f"Call: {call.name} {call.arguments}" for call in message.calls]
    return Text("\n".join([message.text, *lines] if message.text else lines))


def _described(tool: Tool) -> str:
    """A line such as ``- weather {"city": string, "days": integer or left out}: Tells the weather.``"""
    properties, needed = parse_arguments(tool.parameters)
    left_out = render_prompt("tool_left_out")
    arguments = [
        f'"{name}": {_kind(schema)}{"" if name in needed else left_out}'
        for name, schema in properties.items()
    ]
    about = "\n  ".join(tool.description.splitlines())
    listed = f"{{{', '.join(arguments)}}}"
    return render_prompt("tool_in_text", name=tool.name, arguments=listed, description=about)


def _kind(schema: Mapping[str, Any]) -> str:
    """A simple type by its name, any other by its schema."""
    kind, hint = schema.get("type"), schema.get("description")
    if isinstance(kind, str) and schema.keys() <= {"type", "description", "default"}:
        return f"{kind} ({hint})" if hint else kind
    return json.dumps(schema, ensure_ascii=False)
