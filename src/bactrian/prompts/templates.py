"""The templates of a pack, and the placeholders of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SESSION = frozenset(
    {"task", "assistant_role", "user_role", "assistant_description", "user_description", "language"}
)
_PREPARATION = frozenset({"task", "assistant_role", "user_role", "language"})

PLACEHOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "task_specifier": _PREPARATION | {"word_limit"},
        "task_planner": _PREPARATION,
        "assistant_system": _SESSION,
        "user_system": _SESSION,
        "opening_request": _SESSION,
        "critic": _PREPARATION | {"critic_role", "criteria"},
    }
)
"""The templates every pack has, and the placeholders each may use."""

NEEDED: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset[str]() if name == "opening_request" else frozenset({"task"}) for name in PLACEHOLDERS}
)
"""The placeholders each template must use, so that no prompt omits the task or a role by mistake."""
