"""The options of a role-play, their defaults, and the session made from them."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from bactrian.errors import InputError
from bactrian.models.open import find_traits
from bactrian.options import SamplingSpec
from bactrian.protocol.pack import Pack, load_pack
from bactrian.recipes.parameters import apply_parameters
from bactrian.records.session import (
    HUMAN,
    Provenance,
    Role,
    Session,
    Task,
    check_name,
    check_role,
    check_text,
)
from bactrian.records.turn import CriticSettings, Sampling, Toolkit
from bactrian.roleplay.chosen_endings import combine_endings, find_code
from bactrian.roleplay.endings import MaxMessages, Rule

# Default sampling parameters of a session's agents.


MAX_MESSAGES = 40  # The paper's limit on the messages of a session.
SMALL_MAX_MESSAGES = 8  # The built-in model's: it has nothing new to say after that.

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


WORD_LIMIT = 50  # Default word limit of a specified task, from the paper.


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
    paper_endings: bool = False  # True for the paper's endings, without the one for repeat loops.
    endings: tuple[Rule, ...] = ()
    """User-defined endings besides the default ones; or a list that replaces the default ones."""
    max_messages: int | None = None  # None for the paper's 40, or 8 if the built-in model plays.
    seed: int | None = None
    language: str | None = None
    preamble: str = ""  # Text before both agents' system prompts.
    needs_code: bool = False
    critic: CriticSettings | None = None
    tools: Mapping[str, Toolkit] = field(default_factory=dict[str, Toolkit])
    """Tools of ``user`` and ``assistant``."""
    temperatures: Mapping[str, float] = field(default_factory=dict[str, float])
    """By agent; replaces the agent's default sampling."""
    # Changes to an agent's sampling, applied in order.
    parameters: Mapping[str, tuple[SamplingSpec, ...]] = field(
        default_factory=dict[str, tuple[SamplingSpec, ...]]
    )

    @property
    def small(self) -> bool:
        """True if the built-in model plays both sides, or one side against a person."""
        speakers = {self.models["user"], self.models["assistant"]} - {HUMAN}
        return bool(speakers) and all(find_traits(name).small for name in speakers)

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that end the session."""
        limit = self.max_messages or (SMALL_MAX_MESSAGES if self.small else MAX_MESSAGES)
        return combine_endings(self.endings, paper=self.paper_endings, limit=limit, language=self.language)

    @property
    def limit(self) -> int:
        """Messages at which the session ends at the latest."""
        limits = (rule.limit for rule in self.rules() if isinstance(rule, MaxMessages))
        return next(limits, self.max_messages or MAX_MESSAGES)


def new_session(
    setup: RolePlaySetup, pack: Pack, *, name: str | None = None, provenance: Provenance | None = None
) -> Session:
    """Make the session that ``setup`` describes. Its id is ``name``, or a hash of ``setup`` and ``pack``.

    ``provenance`` is that of a session whose setup differs in nothing but the idea and the roles: it is the same.

    Raises:
        InputError: the idea, a role or the language cannot be used.
    """
    check_text(setup.idea, "idea")
    check_role(setup.assistant, "assistant role")
    check_role(setup.user, "user role")
    if setup.language is not None:
        check_name(setup.language, "language")
    if setup.critic is not None:
        check_name(setup.critic.role, "critic role")
        check_text(setup.critic.criteria, "criteria")
        if setup.critic.searches and HUMAN in setup.models.values():
            raise InputError(
                "A person cannot take part in a search, which would ask for every line of it.",
                option="critic.search",
                next="Leave it out, or let a model play.",
            )
        if setup.critic.searches and setup.tools:
            raise InputError(
                "Tools and a search cannot be combined: a search tries turns that are never spoken, "
                "and a tool's effects cannot be undone.",
                option="tools",
                next="Leave one of them out; a critic that does not search goes with tools.",
            )
    check_tools(setup.tools, setup.models)
    if setup.protocol == "enforced":
        for model in (setup.models["user"], setup.models["assistant"]):
            if find_traits(model).constrained_by == "none":
                raise InputError(
                    f"The protocol cannot be enforced on {model!r}: nothing constrains what it writes.",
                    option="protocol",
                    next="Use the free protocol, or another model; `bactrian models` shows what constrains each.",
                )
    if not name:
        # A hash of the options that make it another conversation. The limit of messages is not among them: with a
        # larger one, the same conversation continues.
        options = asdict(replace(setup, endings=(), parameters={}))
        del options["max_messages"]
        options["endings"] = [find_code(rule) for rule in setup.endings]
        options["parameters"] = {
            agent: [spec.model_dump(mode="json", exclude_none=True) for spec in specs]
            for agent, specs in setup.parameters.items()
        }
        content = json.dumps([options, pack.hash], sort_keys=True, ensure_ascii=False)
        # Normalized, so that the encoding of accents does not change the id.
        name = hashlib.sha256(unicodedata.normalize("NFC", content).encode()).hexdigest()[:12]
    return Session(
        id=name,
        assistant=setup.assistant,
        user=setup.user,
        task=Task(original=setup.idea),
        provenance=provenance or _make_provenance(setup, pack),
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
                option="tools",
                next="Give them to another agent.",
            )


def _make_provenance(setup: RolePlaySetup, pack: Pack) -> Provenance:
    agents = ["user", "assistant"]
    agents += ["task_specifier"] if setup.specify else []
    agents += ["task_planner"] if setup.plan else []
    agents += ["critic"] if setup.critic else []
    varied = setup.critic is not None and setup.critic.proposals > 1
    sampling: dict[str, Sampling] = {}
    for agent in agents:
        if setup.models[agent] != HUMAN:
            usual = default_sampling(agent, setup.models[agent], setup.seed, varied=varied)
            warm = replace(usual, temperature=setup.temperatures.get(agent, usual.temperature))
            sampling[agent] = apply_parameters(warm, setup.parameters.get(agent, ()))
    return Provenance(
        prompts=pack.name,
        prompts_hash=pack.hash,
        engine_hash=pack.engine.hash,
        protocol=setup.protocol or ("enforced" if setup.small else "free"),
        models={agent: setup.models[agent] for agent in agents},
        sampling=sampling,
        language=setup.language,
        preamble=setup.preamble,
        needs_code=setup.needs_code,
        critic=setup.critic,
        tools=setup.tools,
    )


# Defaults of a role-play: the paper's example, the roles, the specifier and the prompts.


EXAMPLE = ("Develop a trading bot for the stock market", "Python Programmer", "Stock Trader")
"""The paper's example: idea, assistant role, user role."""
EXAMPLE_SEED = 8  # With it, the built-in model stays with the example for the whole of its conversation.
ROLES = ("Expert", "Beginner")
"""Assistant and user role for any other idea: they fit every subject, and no model is asked for them."""
SMALL_PACK = "plain-small"  # Prompt pack of the built-in model for any other idea.
FULL_PACKS = {False: "ai-society", True: "ai-society-small"}
"""Prompt pack with the inception prompts, by whether the built-in model plays: given the paper's, it talks about the
rules instead of the task."""


def complete_setup(
    setup: RolePlaySetup, specify: bool | None, prompts: str | None
) -> tuple[RolePlaySetup, Pack]:
    """Complete ``setup`` with the defaults for ``specify`` and ``prompts``, and return it with its prompts.

    The built-in model specifies only if asked: of an idea other than the example it makes another one
    (docs/performance.md).
    """
    small = setup.small and (setup.idea, setup.assistant.name, setup.user.name) != EXAMPLE
    enforced = setup.protocol != "free"  # The small pack leaves the format to the grammar.
    pack = load_pack(prompts or (SMALL_PACK if small and enforced else FULL_PACKS[setup.small]))
    return replace(setup, specify=not small if specify is None else specify), pack
