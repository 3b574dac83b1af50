"""What a loopback endpoint answers to every agent: a short, well-formed reply, by the words that it is asked with."""

from __future__ import annotations

import json
import re
from itertools import count, product
from typing import Any

from tests.helpers.endpoint import Plan, Received, completion

_WHAT = "amber brisk calm dusty eager frosty gentle hollow ivory jolly keen lunar mossy noble olive".split()
_WHICH = "bridge candle drum engine fountain garden harbour island jacket kettle lantern meadow needle oven".split()
_COUNT = count()
_PARTS = ("the list of parts", "the order of the steps", "the first draft", "a check of the draft")


def answer_anyone(request: Received) -> Plan:
    """The reply of a model that knows its part."""
    body = request.json
    text = _speak(body)
    if body.get("stream"):
        return text
    return completion(*[text, *(_vary(text, number) for number in range(1, body.get("n", 1)))])


def _vary(text: str, number: int) -> str:
    """Another proposal for the same turn."""
    return re.sub(
        r"^((?:Instruction|Solution): .*?)\.?$", rf"\1, in form {number}.", text, count=1, flags=re.MULTILINE
    )


def _speak(body: dict[str, Any]) -> str:
    messages = [(message["role"], str(message.get("content") or "")) for message in body["messages"]]
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema:
        return json.dumps(_fill(schema))
    first, last = messages[0][1], messages[-1][1]
    own = sum(role == "assistant" for role, _ in messages)
    if "you instruct" in first:
        if own >= 2:
            return "<CAMEL_TASK_DONE>"
        if "German" in first:
            return f"Instruction: Schreibe bitte den {own + 1}. Teil der Anleitung auf.\nInput: None"
        return f"Instruction: Write {_PARTS[own]}.\nInput: None"
    if "you solve" in first or "Solution:" in first:
        if "German" in first:
            return f"Solution: Der {own + 1}. Teil besteht aus Eiche, Leim und einem Brett.\nNext request."
        part = _PARTS[min(own, len(_PARTS) - 1)]
        return f"Solution: Here is {part}: oak, glue and {_WHICH[own % 14]}, in this order.\nNext request."
    return _answer_question(first, last, own)


def _answer_question(first: str, last: str, own: int) -> str:
    """The replies of those that are not part of a role-play."""
    if "Ranking:" in last:
        return "Ranking: 1, 2"
    if "Choice:" in last:
        return "Choice: 1\nIt says most."
    if "Assistant 1:" in last and "last two lines" in last:
        return "The first one is complete.\nAssistant 1: 8\nAssistant 2: 7"
    if "score of Assistant 1" in last:
        return "8 7\nThe first one is complete."
    if '"yes" or "no"' in first:
        return "no, it is work"
    if "just this form" in last:
        names = [f"{what.title()} {which.title()} Maker" for which, what in product(_WHICH[:3], _WHAT)]
        return "\n\n".join(
            f"Role: {name}\nDescription: Makes things by hand.\nCompetencies: wood, paper" for name in names
        )
    if "Next:" in first:
        return "We have heard enough.\n<CAMEL_TASK_DONE>" if own else "Let us begin.\nNext: Teacher"
    if (
        number := re.search(r"\b(?:List|Name|Write|Give|Generate)\b[^.]*?\b(\d+)\b", last)
    ) and "word" not in last:
        items = (f"Repair the {what} {which}" for which, what in product(_WHICH, _WHAT))
        return "\n".join(f"{n}. {item}" for n, item in zip(range(1, int(number[1]) + 1), items, strict=False))
    if "```" in first + last:
        return "All is done." if own else 'I print a line.\n```python\nprint("a line")\n```'
    what, which = divmod(next(_COUNT), len(_WHICH))
    return f"Build {_WHAT[what % len(_WHAT)]} {_WHICH[which]}s from oak and glue, and describe each step to a guest."


def _fill(schema: dict[str, Any]) -> Any:
    """The smallest value that a JSON schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    if options := schema.get("anyOf"):
        return _fill(options[0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: _fill(part) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        items = schema.get("prefixItems") or [schema["items"]] * schema.get("minItems", 1)
        return [_fill(item) for item in items]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": False, "null": None}.get(str(kind), "Oak and glue.")
