"""Arguments of :func:`bactrian.play` and :func:`bactrian.stream`: critics, tools, roles and options."""

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
from bactrian.records.tool import Toolkit

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
    """Number of candidates for each turn."""
    rounds: int = 1
    """Maximum rounds of proposals for a turn; feedback of the critic starts another round."""
    criteria: str = CRITERIA
    """The criteria of the choice."""
    search: str | None = None
    """``beam:WIDTHxDEPTH``: lines kept, and turns of look-ahead; None for no search."""
    unreadable: Unreadable = "first"
    """Effect of two unreadable answers: take the first proposal (``first``), or fail the session (``fail``)."""

    def settings(self) -> CriticSettings:
        """Return the critic as stored in a session.

        Example:
            >>> bt.Critic("Head Gardener", search="beam:3x2").settings().depth
            2

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
    """Keyword options of :func:`play` and :func:`stream`."""

    specify: bool | None
    """Make the idea concrete first; default True, but False for an idea of your own on the built-in model."""
    word_limit: int
    """Word limit of the specified task; default 50."""
    plan: bool
    """Divide the task into subtasks first."""
    protocol: Literal["free", "enforced"] | None
    """``free`` or ``enforced``; default ``enforced`` if the built-in model plays both sides, else ``free``."""
    max_messages: int | None
    """Default 40, or 8 if the built-in model plays."""
    seed: int | None
    """Seed of the sampling."""
    parameters: Mapping[str, Any]
    """Sampling parameters: ``{"temperature": 0.2, "assistant": {"max_tokens": 500}}``; ``"none"`` omits a parameter."""
    language: str | None
    """Language of the conversation."""
    prompts: str | None
    """Prompt pack: a name or a .toml file."""
    base_url: str | None
    """Address of the endpoint; default ``OPENAI_BASE_URL``."""
    window: int | None
    """Context window of the endpoint's model, in tokens."""
    timeout: float
    """Maximum wait for a reply, in seconds; default 600.

    A synchronous function of your own cannot be interrupted: it runs on in its thread, and its answer is ignored.
    """
    max_wait: float
    """Maximum wait that an endpoint may request, in seconds; default 600."""
    budget: float | None
    """Stop before this call costs more than this many US dollars."""
    price: str | None
    """US dollars per million tokens, ``"PROMPT/COMPLETION[/CACHED]"``; default: a table."""
    tool_rounds: int
    """Maximum replies of a turn that call tools; default 8."""
    tool_timeout: float
    """Time limit of one tool call, in seconds; default 30."""
    embodied: str | Role | None
    """Role that acts by Python that it writes, run in a sandbox: alone without ``user``, else as the assistant."""


def read_role(given: str | Role | None, default: str) -> Role:
    """Return the role given by name or as an object, or the default."""
    return given if isinstance(given, Role) else Role(default if given is None else given)


def read_tools(
    given: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], dict[str, tuple[Callable[..., object] | Runnable, ...]]]:
    """Split ``tools`` into files, servers and limits by agent, and functions by agent.

    Raises:
        InputError: an agent cannot have tools, or a name is unknown.
    """
    by_agent = given if isinstance(given, Mapping) else {"assistant": given}
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    for agent, several in by_agent.items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", where="tools", next="Give them to user or assistant."
            )
        if not several:
            continue
        tools = (several,) if isinstance(several, str) else several
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


def read_limits(options: PlayOptions) -> Toolkit:
    """Return the limits of an agent's tools."""
    return Toolkit((), options.get("tool_rounds", 8), options.get("tool_timeout", 30.0))


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
