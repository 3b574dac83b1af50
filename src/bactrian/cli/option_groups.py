"""The groups in which the help shows options, and the placeholders of their values: the same in every command."""

from __future__ import annotations

_GROUPS = {
    "Roles": "assistant user assistant-description user-description roles as",
    "Models": """model assistant-model user-model task-model critic-model list-model judge base-url window timeout
        max-wait send-keys-to""",
    "Sampling": "temperature top-p reply-length stop reasoning-effort body seed",
    "Cost and speed": """budget max-tokens price forecast concurrency requests-per-minute tokens-per-minute
        cpu wall memory workers""",
    "Critic": "critic proposals critic-rounds criteria search unreadable",
    "Tools": "tools mcp tools-for tool-timeout tool-rounds",
    "Selection": """only drop id role pair task mark marked min-rounds unfinished dedup decontaminate grep ending
        behaviour sample equal-roles order limit jobs""",
    "Output": """run out keep raw json quiet format full pager overwrite findings report names""",
    "Help": "verbose help",
}
_METAVARS = {
    "ROLE": "assistant user critic role embodied",
    "MODEL": "model assistant-model user-model task-model critic-model list-model judge made-by extractor base",
    "URL": "base-url send-keys-to",
    "SECONDS": "timeout max-wait tool-timeout cpu wall",
    "USD": "budget",
    "TOKENS": "max-tokens window reply-length",
    "PROMPT/COMPLETION": "price",
    "LANGUAGE": "language",
    "KEY=VALUE": "set body",
    "RUN": "run fork",
    "PATH": "out",
    "FILE.py": "tools",
    "NAME": "mark marked behaviour prompts society license name voter",
    "ID": "id",
    "ADDRESS": "host",
    "FOLDER": "bundle",
    "QUERY": "filter",
    "SET": "questions",
    "CODE": "ending",
    "REGEX": "grep",
    "KIND=CODE": "only drop",
    "NAME=SHARE": "split",
    "'ROLE x ROLE'": "pair",
    "FORMAT": "format",
    "COMMAND": "mcp",
    "WORDS": "task criteria assistant-description user-description note description",
    "N": "requests-per-minute tokens-per-minute",
    "TIER": "tier",
    "VALUE": "temperature top-p",
    "low|medium|high": "reasoning-effort",
    "RULES": "endings",
    "beam:WIDTHxDEPTH": "search",
    "FILE": "plus",
}
GROUPS = tuple(_GROUPS)
"""Headings in the order of the help; options of no group come first."""
_GROUP_OF = {f"--{name}": group for group, names in _GROUPS.items() for name in names.split()}
_METAVAR_OF = {"-k": "K,K"} | {
    f"--{name}": metavar for metavar, names in _METAVARS.items() for name in names.split()
}
_BY_TYPE = {"int": "N", "float": "N", "path": "FILE", "str": "TEXT", "text": "TEXT"}


def find_group(option: str) -> str:
    """Return the heading of ``option``, a name such as ``--model``; ``Options`` if it has no other."""
    return _GROUP_OF.get(option, "Options")


def name_value(option: str, kind: str) -> str:
    """Return what stands for the value of ``option`` in the help.

    ``kind`` is what the command-line library writes for its type: the choices divided by bars, or a type's name.
    """
    kind = kind.strip("<>[]{} ")
    if "|" in kind:
        return kind
    if option in _METAVAR_OF:
        return _METAVAR_OF[option]
    kind = kind.lower().removeprefix("list[")
    return next((name for begin, name in _BY_TYPE.items() if kind.startswith(begin)), "TEXT")
