"""Everything needed to play a session, as inert data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bactrian.errors import InputError
from bactrian.models.model import Model
from bactrian.models.traits import get_traits
from bactrian.play.agent import Agent, Listener
from bactrian.play.critic.choosing import SessionCritic
from bactrian.play.critic.critic import CRITIC, CriticAgent
from bactrian.play.critic.human_critic import HumanCritic
from bactrian.play.endings.rules import Rule, default_endings
from bactrian.play.human import Human
from bactrian.play.order import Alternate, SpeakerOrder
from bactrian.play.response_formats import build_assistant_format, build_user_format, describe_fields
from bactrian.play.setup_defaults import SMALL_PACK
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.prompts.inception import render_criticism, render_inception
from bactrian.prompts.pack import Pack
from bactrian.records.candidate import NOTHING_KNOWN, CriticSettings, Deliberation
from bactrian.records.sampling import Sampling
from bactrian.records.session import Role, Session
from bactrian.records.text import Text
from bactrian.records.turn import Speaker


@dataclass(frozen=True, slots=True)
class Scene:
    """A session to play: its agents, the order of speakers, and the endings."""

    session: Session
    """With its stored turns, if it is resumed."""
    agents: Mapping[Speaker, Agent]
    order: SpeakerOrder = Alternate()
    rules: tuple[Rule, ...] = default_endings()
    critic: SessionCritic | None = None
    """The critic that chooses each turn among several proposals; None if agents speak their model's first reply."""
    listener: Listener | None = None


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
