"""What :func:`bactrian.play` and :func:`bactrian.stream` take: critics, tools, roles and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.play.tools.toolbox import Runnable
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.candidate import CRITERIA, CriticSettings, Unreadable, read_search
from bactrian.records.session import Role

TOOLS_GROUP = "bactrian.tools"
"""Entry points of other packages: a function, or a list of functions, by name."""

ToolLike = str | Callable[..., object] | Runnable
"""A Python function, ``"FILE.py"`` or ``"FILE.py:NAME,NAME"``, ``"mcp:COMMAND"``, or the name of an entry point."""
ToolsLike = Sequence[ToolLike] | Mapping[str, Sequence[ToolLike]]
"""The tools of the assistant, or those of ``user`` and ``assistant`` by name."""


@dataclass(frozen=True, slots=True)
class Critic:
    """A third agent that chooses each turn among several proposals (paper, section 3.2).

    Example:
        >>> import bactrian as bt
        >>> bt.Critic("Head Gardener", proposals=3).proposals
        3
    """

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; feedback of the critic begins another."""
    criteria: str = CRITERIA
    """What the critic looks for."""
    search: str | None = None
    """``beam:WIDTHxDEPTH``: lines that are kept alive, and turns that are looked ahead."""
    unreadable: Unreadable = "first"
    """What follows a choice that cannot be read, twice: the first proposal, or failure (``fail``)."""

    def settings(self) -> CriticSettings:
        """The critic as a session records it.

        Raises:
            InputError: a number is below 1, or the search does not fit.
        """
        if min(self.proposals, self.rounds) < 1 or self.proposals > 100:
            raise InputError("A critic has 1 to 100 proposals and at least one round.", where="critic")
        width, depth = 1, 1
        if self.search is not None:
            try:
                width, depth = read_search(self.search)
            except ValueError as error:
                message = str(error)
                raise InputError(f"{message[:1].upper()}{message[1:]}.", where="--search") from error
            if (width, depth) != (1, 1) and self.rounds > 1:
                raise InputError(
                    "A search has one round of proposals a turn.",
                    where="--critic-rounds",
                    next="Leave it out.",
                )
        return CriticSettings(
            self.role, self.proposals, self.rounds, self.criteria, self.unreadable, width, depth
        )


class PlayOptions(TypedDict, total=False):
    """What else :func:`play` and :func:`stream` take, by keyword."""

    specify: bool
    """Make the idea concrete first; True unless given."""
    word_limit: int
    """Words of the specified task; 50 unless given."""
    plan: bool
    """Divide the task into subtasks first."""
    protocol: Literal["free", "enforced"] | None
    """Enforced if the built-in model plays both, free otherwise, unless given."""
    max_messages: int | None
    """40 unless given; 12 if the built-in model plays."""
    seed: int | None
    """Of the sampling."""
    parameters: Mapping[str, Any]
    """Of the sampling: ``{"temperature": 0.2, "assistant": {"max_tokens": 500}}``; ``"none"`` leaves one out."""
    language: str | None
    """In which to answer."""
    prompts: str | None
    """Prompt pack: a name or a .toml file."""
    base_url: str | None
    """Endpoint; that of ``OPENAI_BASE_URL`` unless given."""
    window: int | None
    """Context window of the endpoint's model, in tokens."""
    timeout: float
    """Longest wait for a reply, in seconds; 600 unless given."""
    max_wait: float
    """Seconds that an endpoint may ask to wait; 600 unless given."""
    tool_rounds: int
    """Replies of a turn that may call tools; 8 unless given."""
    tool_timeout: float
    """Seconds for one call of a tool; 30 unless given."""


def read_role(given: str | Role | None, default: str) -> Role:
    """A role as it was given, by name or whole."""
    return given if isinstance(given, Role) else Role(default if given is None else given)


def read_tools(
    given: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], dict[str, tuple[Callable[..., object] | Runnable, ...]]]:
    """Files, servers and limits by agent, and functions by agent.

    Raises:
        InputError: an agent cannot have tools, or a name stands for none.
    """
    by_agent: Mapping[str, Sequence[ToolLike]] = given if isinstance(given, Mapping) else {"assistant": given}
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    for agent, tools in by_agent.items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", where="tools", next="Give them to user or assistant."
            )
        if not tools:
            continue
        named = [one for one in tools if isinstance(one, str)]
        specs[agent] = ToolsSpec(
            python=tuple(one for one in named if ".py" in one and not one.startswith("mcp:")),
            mcp=tuple(one.removeprefix("mcp:") for one in named if one.startswith("mcp:")),
            rounds=options.get("tool_rounds", 8),
            seconds=options.get("tool_timeout", 30.0),
        )
        own = [one for one in tools if not isinstance(one, str)]
        own += [tool for one in named if ".py" not in one and ":" not in one for tool in _installed(one)]
        functions[agent] = tuple(own)
    return specs, functions


def _installed(name: str) -> Sequence[Callable[..., object] | Runnable]:
    if name not in list_plugins(TOOLS_GROUP):
        raise InputError(
            f"There is no tool {name!r}.",
            where="tools",
            next=f"Pass a function or FILE.py, or install the package that registers it under {TOOLS_GROUP}.",
        )
    found = load_plugin(TOOLS_GROUP, name)
    if isinstance(found, (list, tuple)):
        return cast("Sequence[Callable[..., object]]", found)
    return (cast("Callable[..., object]", found),)
