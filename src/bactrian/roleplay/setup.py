"""The options of a role-play, and the session and the scene made from them."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bactrian.errors import InputError
from bactrian.models.model import Model, get_traits
from bactrian.models.open import find_traits
from bactrian.options import SamplingSpec
from bactrian.protocol.pack import Pack, load_pack, render_criticism, render_inception
from bactrian.protocol.words import check_idea, check_name, check_role
from bactrian.recipes.parameters import apply_parameters
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import (
    NOTHING_KNOWN,
    CriticSettings,
    Deliberation,
    Sampling,
    Speaker,
    Toolkit,
)
from bactrian.roleplay.agent import (
    Agent,
    Listener,
    build_assistant_format,
    build_user_format,
    describe_fields,
)
from bactrian.roleplay.critic import CRITIC, CriticAgent, SessionCritic
from bactrian.roleplay.endings import MaxMessages, Rule, combine_endings, find_code
from bactrian.roleplay.human import HUMAN, Human, HumanCritic
from bactrian.roleplay.tools import NO_TOOLS, Toolbox
from bactrian.roleplay.turns import Scene

# Default sampling parameters of a session's agents.


MAX_MESSAGES = 40
"""The paper's limit on the messages of a session."""
SMALL_MAX_MESSAGES = 8
"""The built-in model's: it has nothing new to say after that."""

_PAPER = {
    "task_specifier": Sampling(temperature=1.4, max_tokens=256),
    "task_planner": Sampling(temperature=0.2, max_tokens=512),
    "user": Sampling(temperature=0.2, max_tokens=1024),
    "assistant": Sampling(temperature=0.2, max_tokens=2048),
    "critic": Sampling(temperature=0.2, max_tokens=512),
}

# Measured on the built-in model: lower temperatures copy the prompt, higher ones leave the topic. Its grammars close
# a turn before these many tokens.
_SMALL = {
    "task_specifier": Sampling(temperature=0.4, top_p=0.9, max_tokens=100),
    "task_planner": Sampling(temperature=0.3, top_p=0.9, max_tokens=160),
    "user": Sampling(temperature=0.4, top_p=0.9, max_tokens=110),
    "assistant": Sampling(temperature=0.4, top_p=0.9, max_tokens=300),
    "critic": Sampling(temperature=0.3, top_p=0.9, max_tokens=120),
}


_VARIED = 0.8
"""Temperature of proposals, as in CAMEL's example: at the paper's 0.2 they would be nearly equal. The built-in model's
replies differ enough at its own temperature."""


def default_sampling(agent: str, model: str, seed: int | None = None, *, varied: bool = False) -> Sampling:
    """Return the sampling parameters of ``agent`` (``task_specifier``, ``user``, ``critic`` …) on ``model``.

    ``varied`` is for a session in which each turn is chosen among several proposals. The temperatures are the
    paper's (section 4 and its code), the built-in model's are its own.
    """
    small = find_traits(model).small
    chosen = (_SMALL if small else _PAPER)[agent]
    warm = varied and agent in ("user", "assistant") and not small
    return Sampling(_VARIED if warm else chosen.temperature, chosen.top_p, chosen.max_tokens, seed)


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


# Defaults of a role-play: the paper's example, the roles, the specifier and the prompts.


EXAMPLE = ("Develop a trading bot for the stock market", "Python Programmer", "Stock Trader")
"""The paper's example: idea, assistant role, user role."""
EXAMPLE_SEED = 8
"""The seed with which the built-in model plays the conversation in the README."""
ROLES = ("Expert", "Beginner")
"""Assistant and user role for any other idea: they fit every subject, and no model is asked for them."""
SMALL_PACK = "plain-small"
"""Prompt pack of the built-in model for any other idea."""


def choose_role_names(idea: str) -> tuple[str, str]:
    """Return the names of the assistant and user role for ``idea``."""
    return EXAMPLE[1:] if idea == EXAMPLE[0] else ROLES


@dataclass(frozen=True, slots=True)
class CompleteSetup:
    """A setup with all options decided, and its prompts."""

    setup: RolePlaySetup
    pack: Pack


def complete_setup(setup: RolePlaySetup, specify: bool | None, prompts: str | None) -> CompleteSetup:
    """Complete ``setup`` with the defaults for ``specify`` and ``prompts``.

    The built-in model specifies only if asked: of an idea other than the example it makes another one
    (docs/performance.md).
    """
    small = setup.small and (setup.idea, setup.assistant.name, setup.user.name) != EXAMPLE
    enforced = setup.protocol != "free"  # The small pack leaves the format to the grammar.
    pack = load_pack(prompts or (SMALL_PACK if small and enforced else setup.pack))
    return CompleteSetup(replace(setup, specify=not small if specify is None else specify), pack)


def complete_as_before(setup: RolePlaySetup, specify: bool | None, prompts: str | None) -> CompleteSetup:
    """Return what versions before these defaults made of the same request, so that its session resumes."""
    return CompleteSetup(
        replace(
            setup,
            specify=True if specify is None else specify,
            assistant=Role(EXAMPLE[1]) if setup.assistant == Role(ROLES[0]) else setup.assistant,
            user=Role(EXAMPLE[2]) if setup.user == Role(ROLES[1]) else setup.user,
        ),
        load_pack(prompts or setup.pack),
    )


# The scene of a role-play: its agents with their prompts, and its critic.


def build_role_play(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    *,
    rules: tuple[Rule, ...],
    known: Deliberation = NOTHING_KNOWN,
    tools: Mapping[str, Toolbox] = NO_TOOLS,
    listener: Listener | None = None,
) -> Scene:
    """Build the scene of the paper: an AI user instructs, an AI assistant solves (section 3.1).

    ``models`` contains one model each for ``user`` and ``assistant``, and for the ``critic`` of a session with one. The
    prompts come from ``pack``, everything else from the session's record. ``known`` contains the stored events of the
    unfinished turn of a resumed session; ``tools`` are the tools named in the record, by agent.

    Raises:
        PromptError: the pack cannot be rendered with these roles and this task.
    """
    origin = session.provenance
    said = render_inception(session, pack)
    enforced = origin.protocol == "enforced"
    plain = origin.prompts == SMALL_PACK
    box = find_toolbox(session, "assistant", tools)
    # The small grammar does not admit code.
    small_talk = get_traits(models["assistant"]).small and not origin.needs_code
    return Scene(
        session=session,
        agents={
            "user": Agent(
                speaker="user",
                role=session.user,
                system=_add_fields(said.user, "user", models["user"], enforced=enforced),
                model=models["user"],
                sampling=origin.sampling.get("user", Sampling()),
                opening=Text(said.opening),
                form=build_user_format(small=get_traits(models["user"]).small, plain=plain)
                if enforced
                else None,
                toolbox=find_toolbox(session, "user", tools),
                language=origin.language,
                repeats=plain and get_traits(models["user"]).small,
            ),
            "assistant": Agent(
                speaker="assistant",
                role=session.assistant,
                system=_add_actions(
                    _add_fields(said.assistant, "assistant", models["assistant"], enforced=enforced), box
                ),
                model=models["assistant"],
                sampling=origin.sampling.get("assistant", Sampling()),
                form=build_assistant_format(small=small_talk, plain=plain) if enforced else None,
                toolbox=box,
                language=origin.language,
                repeats=plain and get_traits(models["assistant"]).small,
            ),
        },
        rules=tuple(rules),
        critic=origin.critic and build_critic(session, pack, models, origin.critic, known),
        listener=listener,
    )


def build_critic(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    settings: CriticSettings,
    known: Deliberation = NOTHING_KNOWN,
) -> SessionCritic:
    """Make the critic of both sides (paper, section 3.2), an agent or a person.

    The turns of a human participant are not chosen among proposals.

    Raises:
        PromptError: the pack cannot be rendered with this role or these criteria.
    """
    speakers: tuple[Speaker, ...] = ("user", "assistant")
    of = frozenset(name for name in speakers if not isinstance(models[name], Human))
    model = models[CRITIC]
    if isinstance(model, Human):
        return SessionCritic(
            HumanCritic(model.source), of, replace(settings, width=1, depth=1), known, pack.engine
        )
    critic = CriticAgent(
        role=Role(settings.role),
        system=Text(render_criticism(session, pack, role=settings.role, criteria=settings.criteria)),
        model=model,
        sampling=session.provenance.sampling.get(CRITIC, Sampling()),
        constrained=session.provenance.protocol == "enforced" or model.name.partition(":")[0] == "local",
        prompts=pack.engine,
    )
    return SessionCritic(critic, of, settings, known, pack.engine)


def _add_fields(system: str, speaker: str, model: Model, *, enforced: bool) -> Text:
    """Return the system prompt, with a description of the fields if a JSON schema constrains the model."""
    description = enforced and get_traits(model).constrained_by == "schema" and not isinstance(model, Human)
    return Text(f"{system}\n\n{describe_fields(speaker)}" if description else system)


def _add_actions(system: Text, toolbox: Toolbox | None) -> Text:
    """Return the system prompt, with what the toolbox says about itself."""
    description = toolbox.describe() if toolbox is not None else ""
    return Text(f"{system}\n\n{description}") if description else system


def find_toolbox(session: Session, agent: Speaker, tools: Mapping[str, Toolbox]) -> Toolbox | None:
    """Return the tools of ``agent``; None if the session's record names none.

    Raises:
        InputError: the record names tools that are not given.
    """
    kit = session.provenance.tools.get(agent)
    if kit is None:
        return None
    if agent not in tools or not {tool.name for tool in kit.tools} <= tools[agent].tools.keys():
        raise InputError(
            f"The session needs the tools that it was begun with, and some of the {agent}'s are missing.",
            where=session.id,
            next="Give all of them.",
        )
    return replace(tools[agent], kit=kit)
