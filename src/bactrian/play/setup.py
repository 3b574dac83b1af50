"""The options of a role-play, and the new session made from them."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bactrian.errors import InputError
from bactrian.models.registry import find_traits
from bactrian.play.critic.critic import CRITIC
from bactrian.play.endings.own import combine_endings, find_code
from bactrian.play.endings.rules import MaxMessages, Rule
from bactrian.play.human import HUMAN
from bactrian.play.sampling_defaults import MAX_MESSAGES, SMALL_MAX_MESSAGES, default_sampling
from bactrian.prompts.pack import Pack
from bactrian.prompts.values import check_idea, check_name, check_role
from bactrian.recipes.parameters import SamplingSpec, apply_parameters
from bactrian.records.candidate import CriticSettings
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.tool import Toolkit

WORD_LIMIT = 50
"""Default word limit of a specified task, from the paper."""


@dataclass(frozen=True, slots=True)
class RolePlaySetup:
    """All options that distinguish one session from another."""

    idea: str
    assistant: Role
    user: Role
    models: Mapping[str, str]
    """Model name by agent: ``task_specifier``, ``task_planner``, ``user``, ``assistant``, and ``critic`` if there is
    one."""
    specify: bool = True
    word_limit: int = WORD_LIMIT
    plan: bool = False
    protocol: str | None = None
    """``free`` or ``enforced``; None means ``enforced`` if only the built-in model plays, else ``free``."""
    paper_endings: bool = False
    """True for the paper's endings, without the one for repeat loops."""
    endings: tuple[Rule, ...] = ()
    """User-defined endings besides the default ones; or a list that replaces the default ones."""
    max_messages: int | None = None
    """None for the paper's 40, or 8 if the built-in model plays."""
    seed: int | None = None
    language: str | None = None
    preamble: str = ""
    """Text before both agents' system prompts."""
    needs_code: bool = False
    critic: CriticSettings | None = None
    tools: Mapping[str, Toolkit] = field(default_factory=dict[str, Toolkit])
    """Tools of ``user`` and ``assistant``."""
    temperatures: Mapping[str, float] = field(default_factory=dict[str, float])
    """By agent; replaces the agent's default sampling."""
    parameters: Mapping[str, tuple[SamplingSpec, ...]] = field(
        default_factory=dict[str, tuple[SamplingSpec, ...]]
    )
    """Changes to an agent's sampling, applied in order."""
    earlier_models: Mapping[str, str] | None = None
    """The models that earlier versions chose for the same request, so that their sessions resume; None if the same."""

    @property
    def small(self) -> bool:
        """True if the built-in model plays both sides, or one side against a person."""
        speakers = {self.models["user"], self.models["assistant"]} - {HUMAN}
        return bool(speakers) and all(find_traits(name).small for name in speakers)

    @property
    def pack(self) -> str:
        """Name of the prompt pack: the given one, or the default for these models."""
        return "ai-society-small" if self.small else "ai-society"

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that end the session."""
        limit = self.max_messages or self.usual_limit
        return combine_endings(self.endings, paper=self.paper_endings, limit=limit, language=self.language)

    @property
    def usual_limit(self) -> int:
        """Default number of messages at which the session ends."""
        return SMALL_MAX_MESSAGES if self.small else MAX_MESSAGES

    @property
    def limit(self) -> int:
        """Messages at which the session ends at the latest."""
        limits = (rule.limit for rule in self.rules() if isinstance(rule, MaxMessages))
        return next(limits, self.max_messages or self.usual_limit)


def new_session(
    setup: RolePlaySetup, pack: Pack, *, name: str | None = None, provenance: Provenance | None = None
) -> Session:
    """Make the session that ``setup`` describes. Its id is ``name``, or a hash of ``setup`` and ``pack``.

    ``provenance`` is that of a session whose setup differs in nothing but the idea and the roles: it is the same.

    Raises:
        InputError: the idea, a role or the language cannot be used.
    """
    check_idea(setup.idea)
    check_role(setup.assistant, "assistant role")
    check_role(setup.user, "user role")
    if setup.language is not None:
        check_name(setup.language, "language")
    if setup.critic is not None:
        check_name(setup.critic.role, "critic role")
        check_idea(setup.critic.criteria, "criteria")
        if setup.critic.searches and HUMAN in setup.models.values():
            raise InputError(
                "A person cannot take part in a search, which would ask for every line of it.",
                where="--search",
                next="Leave it out, or let a model play.",
            )
    check_tools(setup.tools, setup.models)
    if setup.protocol == "enforced":
        _check_enforceable(setup)
    if setup.tools and setup.critic is not None and setup.critic.searches:
        raise InputError(
            "Tools and a search cannot be combined: a search tries turns that are never spoken, "
            "and a tool's effects cannot be undone.",
            where="tools",
            next="Leave one of them out; a critic that does not search goes with tools.",
        )
    return Session(
        id=name or _identity(setup, pack),
        assistant=setup.assistant,
        user=setup.user,
        task=Task(original=setup.idea),
        provenance=provenance or _provenance(setup, pack),
    )


def _check_enforceable(setup: RolePlaySetup) -> None:
    for side in ("user", "assistant"):
        name = setup.models[side]
        if find_traits(name).constrained_by == "none":
            raise InputError(
                f"The protocol cannot be enforced on {name!r}: nothing constrains what it writes.",
                where="--protocol",
                next="Use the free protocol, or another model; `bactrian models` shows what constrains each.",
            )


def check_tools(tools: Iterable[str], models: Mapping[str, str]) -> None:
    """Refuse tools for humans.

    Raises:
        InputError: one of the agents is a person.
    """
    for agent in tools:
        if models.get(agent) == HUMAN:
            raise InputError(
                f"The {agent} is a person, and only models can have tools.",
                where="tools",
                next="Give them to another agent.",
            )


def _provenance(setup: RolePlaySetup, pack: Pack) -> Provenance:
    agents = ["user", "assistant"]
    agents += ["task_specifier"] if setup.specify else []
    agents += ["task_planner"] if setup.plan else []
    agents += [CRITIC] if setup.critic else []
    varied = setup.critic is not None and setup.critic.proposals > 1
    return Provenance(
        prompts=pack.name,
        prompts_hash=pack.hash,
        engine_hash=pack.engine.hash,
        protocol=setup.protocol or ("enforced" if setup.small else "free"),
        models={agent: setup.models[agent] for agent in agents},
        sampling={
            agent: _sampling(agent, setup, varied=varied) for agent in agents if setup.models[agent] != HUMAN
        },
        language=setup.language,
        preamble=setup.preamble,
        needs_code=setup.needs_code,
        critic=setup.critic,
        tools=setup.tools,
    )


def _sampling(agent: str, setup: RolePlaySetup, *, varied: bool) -> Sampling:
    usual = default_sampling(agent, setup.models[agent], setup.seed, varied=varied)
    warm = replace(usual, temperature=setup.temperatures.get(agent, usual.temperature))
    return apply_parameters(warm, setup.parameters.get(agent, ()))


def list_earlier_ids(setup: RolePlaySetup, pack: Pack) -> tuple[str, ...]:
    """Return the ids that earlier versions gave to the session of ``setup``, the latest version first.

    Earlier versions had fewer options; a session that uses none of the newer ones is the same session.
    """
    earlier = _list_earlier(_describe(setup), setup, pack)
    if setup.earlier_models is not None:
        before = replace(setup, models=setup.earlier_models, earlier_models=None)
        earlier += [_identity(before, pack), *list_earlier_ids(before, pack)]
    return tuple(earlier)


def list_shorter_ids(setup: RolePlaySetup, pack: Pack, longest: int) -> Iterator[str]:
    """Yield the ids of the session that ``setup`` asks for under smaller limits of messages, the largest limit first.

    Such a session stopped where this one continues. ``longest`` is the number of messages of the longest session that
    is stored: none stopped at a larger limit.
    """
    options = _describe(setup)
    for limit in range(min(setup.limit, longest), 0, -1):
        for said in (limit, None) if limit == setup.usual_limit else (limit,):
            shorter = {**options, "max_messages": said}
            yield _hash(shorter, pack)
            yield from _list_earlier(shorter, setup, pack)
            if setup.earlier_models is not None:
                before = {**shorter, "models": dict(setup.earlier_models)}
                yield _hash(before, pack)
                yield from _list_earlier(before, setup, pack)


def _list_earlier(options: Mapping[str, Any], setup: RolePlaySetup, pack: Pack) -> list[str]:
    """Return the ids that earlier versions gave to the session that ``options`` describes, the latest version first."""
    options = dict(options)
    earlier: list[str] = []
    if setup.critic is not None and not setup.critic.searches:
        options["critic"] = {
            key: value for key, value in options["critic"].items() if key not in ("width", "depth")
        }
        earlier.append(_hash(options, pack))
    if setup.critic is None and not setup.preamble and not setup.needs_code:
        del options["preamble"], options["needs_code"]
        earlier.append(_hash(options, pack))
    return earlier


def _identity(setup: RolePlaySetup, pack: Pack) -> str:
    return _hash(_describe(setup), pack)


def _describe(setup: RolePlaySetup) -> dict[str, Any]:
    """Return the options that identify the session. A newer option is left out if it is not used."""
    options = asdict(replace(setup, endings=()))
    del options["endings"], options["earlier_models"]
    if setup.endings:
        options["endings"] = [find_code(rule) for rule in setup.endings]
    if setup.critic is None:  # Sessions without a critic keep the ids they had before critics existed.
        del options["critic"]
    del options["parameters"]
    if setup.parameters:
        options["parameters"] = {
            agent: [spec.model_dump(mode="json", exclude_none=True) for spec in specs]
            for agent, specs in setup.parameters.items()
        }
    if not setup.temperatures:
        del options["temperatures"]
    if not setup.tools:
        del options["tools"]
    return options


def _hash(options: Mapping[str, Any], pack: Pack) -> str:
    # Normalise, so that the encoding of accents does not change the id.
    content = unicodedata.normalize(
        "NFC", json.dumps([options, pack.hash], sort_keys=True, ensure_ascii=False)
    )
    content = json.dumps(json.loads(content), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]
