"""Arguments of the API: models, tools and roles in several forms, which of them go together, and what a run stores."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from bactrian.api.bridge import cut_frames, shorten_errors
from bactrian.errors import BactrianError, BactrianWarning, InputError, ModelError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models.http import hide_credentials, split_addresses, write_addresses
from bactrian.models.model import Model, Reply, Request, Traits, get_traits, make_choice
from bactrian.models.open import ModelOptions, open_model
from bactrian.models.scripted import Scripted
from bactrian.models.telemetry import TelemetryTerms
from bactrian.models.text_tools import add_tools_as_text
from bactrian.options import EndpointOptions, PlayOptions, fill_defaults
from bactrian.records.turn import Usage
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.recorded import Recorded
from bactrian.roleplay.start import Functions
from bactrian.roleplay.tools import BY_RULES, Runnable

if TYPE_CHECKING:
    from bactrian.recipes.schema import ToolsSpec


# Models as arguments: a name, an object with ``reply``, or a function of messages.


_FRAMES = 5  # Of a failure in the user's code, the last ones
LOCAL = "local"  # The built-in model
_FLEX_TIMEOUT = 900.0  # Seconds, as the providers advise
# The traits of an unknown model: its output cannot be constrained.
UNCONSTRAINED = Traits(constrained_by="none")
# A conversation in the usual form: `[{"role": "system", "content": "…"}, …]`.
Messages = list[dict[str, str]]
# A function, synchronous or not, that returns the reply to a conversation.
ModelFunction = Callable[[Messages], str | Awaitable[str]]


class Replying(Protocol):
    """Any object with ``reply``: it returns a text or a :class:`~bactrian.models.model.Reply`."""

    def reply(self, request: Request, /) -> Any:
        """Answer ``request``, asynchronously or not."""
        ...


# Agents that are accepted in `models` even if they do not take part.
USUAL_AGENTS = ("task_specifier", "task_planner", "user", "assistant", "critic", "lister")
# A model's name, an object with `reply`, or a function of messages.
ModelLike = str | Replying | ModelFunction


@dataclass(frozen=True, slots=True)
class OwnModel:
    """Adapts a user's object or function to :class:`Model`. The user opens and closes its resources."""

    name: str
    # Returns a text or a `Reply`, or an awaitable of one.
    answer: Callable[[Request], Any]
    threaded: bool = True  # True if a call may block, so that it runs in a thread
    traits: Traits = UNCONSTRAINED
    # Seconds for an answer. A call in a thread cannot be interrupted: its answer is ignored.
    timeout: float | None = None

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            ModelError: the user's code failed, or did not return a reply.
        """
        return await add_tools_as_text(self._reply, request)

    async def _reply(self, request: Request) -> Reply:
        answers = [await self._ask(request) for _ in range(request.n)]
        if isinstance(answers[0], Reply):
            return answers[0]
        texts = [answer if isinstance(answer, str) else answer.text for answer in answers]
        choices = tuple(map(make_choice, texts))
        if request.on_text is not None:
            request.on_text(choices[0].text)
        prompt = sum(_count_tokens(message.text) for message in request.messages)
        usage = Usage(prompt, sum(map(_count_tokens, texts)), estimated=True)
        return Reply(choices, usage, self.name, raw=texts[0].encode(errors="replace"))

    async def _ask(self, request: Request) -> str | Reply:
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                result = (
                    await asyncio.to_thread(self._call, request) if self.threaded else self._call(request)
                )
                answer: object = await result if inspect.isawaitable(result) else result
        except BactrianError:
            raise
        except Exception as error:
            if limit.expired():
                raise ModelError(
                    f"The model gave no answer within {self.timeout:g} seconds.",
                    where=self.name,
                    next="Make it faster, or give a longer timeout.",
                ) from error
            frames = traceback.extract_tb(cut_frames(error.__traceback__))
            at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
            failure = ModelError(
                f"The model failed{at}: {type(error).__name__}: {error}",
                where=self.name,
                next="Fix it, and make the same call again; with run=FILE it resumes.",
            )
            # Instead of the exception as the cause, whose traceback goes through a thread and the whole program.
            failure.add_note("".join(traceback.format_list(frames[-_FRAMES:])).rstrip())
            raise failure from None
        if not isinstance(answer, (str, Reply)):
            raise ModelError(
                f"The model returned {type(answer).__name__} and not a text.",
                where=self.name,
                next="Return a str, or a bactrian.models.model.Reply.",
            )
        return answer

    def _call(self, request: Request) -> object:
        try:
            return self.answer(request)
        except StopIteration as error:  # asyncio would wait for ever: no future can carry it
            raise RuntimeError("StopIteration, as next() raises it where nothing is left").with_traceback(
                error.__traceback__
            ) from None

    async def close(self) -> None:
        """Do nothing: the user closes the object."""


@dataclass(frozen=True, slots=True)
class ChosenModels:
    """The model names of the agents, and the user's objects behind some of the names."""

    names: Mapping[str, str]  # Model name by agent
    objects: Mapping[str, Model] = field(default_factory=dict[str, Model])  # Model by name
    named: frozenset[str] = frozenset()  # The agents that `models` names


@shorten_errors
def load_model(model: ModelLike, *, base_url: str | None = None) -> Model:
    """Return the model of a name, of an object with ``reply``, or of a function.

    It connects at its first call. Close a model opened by name: ``await model.close()``.

    Example:
        >>> import bactrian as bt
        >>> bt.load_model("scripted:replies.json")
        Traceback (most recent call last):
        ...
        bactrian.errors.InputError: replies.json: The script cannot be read: No such file or directory.
        Check the path.
        >>> bt.load_model(lambda messages: "Solution: Sencha.").name
        'python:<lambda>'

    Raises:
        InputError: the name is unknown, or its file cannot be used.
    """
    if isinstance(model, str):
        return open_model(model, build_model_options({"base_url": base_url}))
    return _wrap(model)


def choose_models(
    agents: Iterable[str], model: ModelLike | None, by_agent: Mapping[str, ModelLike] | None = None
) -> ChosenModels:
    """Return the model of each agent: from ``by_agent``, or ``model``. ``task`` is the task specifier and the planner.

    Without ``model``, it is the built-in model, or the assistant's if both sides have a model of their own: a small
    model must not specify the task of two large ones.

    Raises:
        InputError: ``by_agent`` names an agent that does not take part.
    """
    agents = tuple(agents)
    chosen = dict(by_agent or {})
    if "task" in chosen:
        both = chosen.pop("task")
        chosen = {"task_specifier": both, "task_planner": both, **chosen}
    if strange := [name for name in chosen if name not in agents and name not in USUAL_AGENTS]:
        raise InputError(
            f"There is no agent {strange[0]!r} to give a model to.",
            option="models",
            next=f"Agents: {', '.join(sorted({*filter(None, agents), *USUAL_AGENTS, 'task'}))}.",
        )
    follows = _find_followed(chosen) if model is None else None
    names: dict[str, str] = {}
    objects: dict[str, Model] = {}
    wrapped: dict[int, str] = {}
    for agent in agents:
        if follows is not None and agent not in chosen:
            continue
        choice = chosen.get(agent, LOCAL if model is None else model)
        if isinstance(choice, str):
            names[agent] = choice
            continue
        if isinstance(choice, Scripted) and agent in chosen:
            choice = choice.for_agent(agent)
        key = id(choice)
        if key not in wrapped:
            opened = _wrap(choice)
            name, number = opened.name, 1
            while name in objects or name in names.values():
                number += 1
                name = f"{opened.name} {number}"
            wrapped[key] = name
            own = opened if isinstance(opened, OwnModel) else OwnModel(name, opened.reply, threaded=False)
            objects[name] = opened if name == opened.name else replace(own, name=name)
        names[agent] = wrapped[key]
    named = frozenset(chosen) & names.keys()
    if follows is None:
        return ChosenModels(names, objects, named)
    return ChosenModels({agent: names.get(agent, names[follows]) for agent in agents}, objects, named)


def _find_followed(models: Mapping[str, ModelLike]) -> str | None:
    """Return the side whose model other agents share, if both have one; None if not found. A person is not shared."""
    if not {"user", "assistant"} <= models.keys():
        return None
    return next((side for side in ("assistant", "user") if models[side] != HUMAN), None)


def build_model_options(options: Mapping[str, Any]) -> ModelOptions:
    """Return the options for opening models, from :class:`EndpointOptions`. Keys are read when used."""
    filled = fill_defaults(options, EndpointOptions)
    if filled["tier"] and filled["timeout"] == fill_defaults({}, EndpointOptions)["timeout"]:
        filled["timeout"] = _FLEX_TIMEOUT
    return ModelOptions(
        base_url=filled["base_url"] or os.environ.get("OPENAI_BASE_URL") or None,
        window=filled["window"],
        timeout=filled["timeout"],
        max_wait=filled["max_wait"],
        tier=filled["tier"] or "",
        session_ids=filled["session_ids"],
        telemetry=TelemetryTerms(filled["telemetry"]),
        notice=_warn,
        report=_warn,
        recorded=Recorded,
    )


def _warn(text: str) -> None:
    warnings.warn(text, BactrianWarning, stacklevel=2)


def is_object(name: str) -> bool:
    """Return True if the model of this name is a Python object: that has any name, and others have a colon in it."""
    return name.startswith("python:") or (":" not in name and name not in ("local", HUMAN))


def _wrap(model: Replying | ModelFunction) -> Model:
    if isinstance(model, (OwnModel, Scripted)):
        return model
    if hasattr(model, "reply"):
        replying = cast("Replying", model)
        name = getattr(model, "name", None) or f"python:{type(model).__name__}"
        model_traits = get_traits(cast("Model", model))
        traits = model_traits if hasattr(model, "traits") else UNCONSTRAINED
        return OwnModel(str(name), replying.reply, not _is_async(replying.reply), traits)
    if not callable(model):
        raise InputError(
            f"{model!r} is not a model.",
            option="model",
            next="Pass a name, an object with reply, or a function of messages.",
        )
    function = model
    name = getattr(function, "__name__", None) or type(function).__name__
    return OwnModel(f"python:{name}", lambda request: function(_messages(request)), not _is_async(function))


def limit_time(objects: Mapping[str, Model], timeout: float) -> dict[str, Model]:
    """Return the user's models with ``timeout`` seconds for each answer."""
    return {
        name: replace(model, timeout=timeout) if isinstance(model, OwnModel) else model
        for name, model in objects.items()
    }


def _is_async(function: object) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004  an object whose call is asynchronous
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _messages(request: Request) -> Messages:
    return [{"role": message.role, "content": str(message.text)} for message in request.messages]


def _count_tokens(text: str) -> int:
    return len(text.encode(errors="replace")) // 4 + 1


# Arguments of the API: tools and roles in several forms, what does not go together, and what a run stores of them.


OWN = "own"  # The key that is true if the command used Python objects, which no file can store
# Entry points of other packages: a function, or a list of functions, by name.
TOOLS_GROUP = "bactrian.tools"
IMAGE = "image"  # The tool that draws: `image`, or `image:MODEL` for a model with an images endpoint

# A Python function, `"FILE.py"` or `"FILE.py:NAME,NAME"`, `"mcp:COMMAND"`, or the name of an entry point.
ToolLike = str | Callable[..., object] | Runnable
# The tools of the assistant, or those of `user` and `assistant` by name.
ToolsLike = Sequence[ToolLike] | Mapping[str, Sequence[ToolLike]]


def read_tools(
    chosen: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], Functions, dict[str, Any]]:
    """Split ``chosen`` into files, servers and limits by agent, functions by agent, and what a run stores of them.

    Raises:
        InputError: an agent cannot have tools, or a name is unknown.
    """
    limits = fill_defaults(options, PlayOptions)
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    files: dict[str, list[str]] = {}
    servers: dict[str, int] = {}  # Only their number: the command line of a server may contain a key.
    for agent, several in (chosen if isinstance(chosen, Mapping) else {"assistant": chosen}).items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", option="tools", next="Give them to user or assistant."
            )
        if not several:
            continue
        from bactrian.recipes.schema import ToolsSpec

        tools = (several,) if isinstance(several, str) else several
        named = [tool for tool in tools if isinstance(tool, str)]
        commands = [name.removeprefix("mcp:") for name in named if name.startswith("mcp:")]
        files[agent] = [name for name in named if not name.startswith("mcp:")]
        painters = [name for name in named if name.partition(":")[0] == IMAGE]
        if len(painters) > 1:
            raise InputError("Only one tool draws.", option="tools", next=f"Name {IMAGE} once.")
        servers[agent] = len(commands)
        specs[agent] = ToolsSpec(
            python=tuple(name for name in files[agent] if ".py" in name and name not in painters),
            image=(painters[0].partition(":")[2] or BY_RULES) if painters else None,
            mcp=tuple(commands),
            rounds=limits["tool_rounds"],
            seconds=limits["tool_timeout"],
        )
        functions[agent] = (
            *(tool for tool in tools if not isinstance(tool, str)),
            *(
                tool
                for name in files[agent]
                if ".py" not in name and name not in painters
                for tool in _load_installed(name)
            ),
        )
    stored: dict[str, Any] = {
        "tools": {agent: names for agent, names in files.items() if names},
        "servers": {agent: count for agent, count in servers.items() if count},
        OWN: any(not isinstance(tool, str) for tools in functions.values() for tool in tools),
    }
    return specs, functions, stored


def _load_installed(name: str) -> Sequence[Callable[..., object] | Runnable]:
    if name not in list_plugins(TOOLS_GROUP):
        raise InputError(
            f"There is no tool {name!r}.",
            option="tools",
            next=f"Pass a function or FILE.py, or install the package that registers it under {TOOLS_GROUP}.",
        )
    loaded = load_plugin(TOOLS_GROUP, name)
    return cast("Sequence[Any]", loaded) if isinstance(loaded, (list, tuple)) else (cast("Any", loaded),)


# Checks of what options say together.


def check_base_url(base_url: str | None, names: Iterable[str]) -> None:
    """Refuse an address that none of the models ``names`` takes. One for all commands, in the environment, may stay.

    Raises:
        InputError: no model is ``openai:NAME``.
    """
    names = list(names)
    if base_url == os.environ.get("BACTRIAN_BASE_URL") or choose_base_url(base_url, names) == base_url:
        return
    other = next((name for name in names if ":" in name and "@" not in name), "openai:NAME")
    raise InputError(
        "This is the address of openai:NAME, and no agent has such a model.",
        option="base_url",
        next=f"Write the address behind the model's name: {other}@{write_addresses(str(base_url))}",
    )


def choose_base_url(base_url: str | None, names: Iterable[str]) -> str | None:
    """Return ``base_url`` if one of the models takes it; otherwise None."""
    return base_url if any(name.startswith("openai:") for name in names) else None


def check_unattended(recipe_critic: str | None, models: Mapping[str, str]) -> None:
    """Refuse a person in a run, which cannot ask anybody.

    Raises:
        InputError: a model or the critic is ``human``.
    """
    agent = next((agent for agent, name in models.items() if name == HUMAN), None)
    if agent is not None or recipe_critic == HUMAN:
        raise InputError(
            f"The {agent or 'critic'} would be a person, and a run cannot ask one.",
            option="model" if agent else "critic.role",
            next="Name a model, or another role for the critic; a person takes part in `bactrian play`.",
        )


# The options of a command as JSON values, as they are stored in a run to resume it. Keys are left out.


def describe_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are JSON values, the address without a user and a password."""
    described = {name: _to_json(value) for name, value in options.items() if value is not None}
    if address := described.get("base_url"):
        described["base_url"] = ",".join(hide_credentials(each, "") for each in split_addresses(str(address)))
    return {name: value for name, value in described.items() if value is not None}


def describe_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run that are not in its plan, as JSON values, and its limit."""
    transient = (
        "parameters",
        "seed",
        "origin",
        "keep_tasks",
        "retry_failed",
        "batch_wait",
        "shard",
        "lists_only",
    )
    described = {name: value for name, value in options.items() if name not in transient}
    return {**describe_options(described), "limit": described.get("limit")}


def _to_json(value: object) -> object:
    """Return ``value`` if it is a JSON value or a mapping of them; else None."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _to_json(part) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [_to_json(part) for part in cast("list[object]", value)]
    return value if isinstance(value, (str, int, float, bool)) else None
