"""The form in which a model is made to write a list, where its endpoint can be told one."""

from __future__ import annotations

from collections.abc import Mapping


def list_schema() -> Mapping[str, object]:
    """JSON schema of a list, for endpoints that take ``response_format``."""
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "required": ["items"],
        "additionalProperties": False,
    }


def list_grammar(count: int, *, longest: int = 120) -> str:
    """GBNF grammar of a numbered list of ``count`` items of up to ``longest`` characters, for llama.cpp."""
    lines = " ".join(f'"{number}. " item "\\n"' for number in range(1, count + 1))
    return f"root ::= {lines}\nitem ::= [A-Z] [A-Za-z0-9 ,'()&/-]{{2,{longest}}}\n"
