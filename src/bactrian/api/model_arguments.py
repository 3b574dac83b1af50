"""Models as arguments: a name, an object with ``reply``, or a function of messages."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from bactrian.api.bridge import cut_frames, shorten_errors
from bactrian.errors import BactrianError, BactrianWarning, InputError, ModelError
from bactrian.models.model import Model, Reply, Request, Traits, get_traits, make_choice
from bactrian.models.open import ModelOptions, open_model
from bactrian.models.scripted import Scripted
from bactrian.models.telemetry import TelemetryTerms
from bactrian.models.text_tools import add_tools_as_text
from bactrian.options import EndpointOptions, fill_defaults
from bactrian.records.turn import Usage
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.recorded import Recorded

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
                next="Fix it, and make the same call again to resume.",
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
