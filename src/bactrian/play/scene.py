"""All that is needed to play a session, as inert data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bactrian.models.model import Model
from bactrian.play.agent import Agent, Listener
from bactrian.play.endings import Rule, default_rules
from bactrian.play.forms import assistant_form, user_form
from bactrian.play.order import Alternate, Order
from bactrian.prompts.inception import inception
from bactrian.prompts.pack import Pack
from bactrian.records.sampling import Sampling
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.turn import Speaker, Turn


@dataclass(frozen=True, slots=True)
class Decision:
    """Which proposal was chosen (0-based), and why."""

    index: int
    reason: str = ""


class Chooser(Protocol):
    """Chooses one of several proposals: a critic, a person or a function."""

    async def choose(self, turns: Sequence[Turn], speaker: Speaker, proposals: Sequence[str]) -> Decision:
        """Choose what ``speaker`` says after ``turns``."""
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """A session to play: who takes part, who speaks when, and when it is over."""

    session: Session
    """With the turns it has already, if it is taken up again."""
    agents: Mapping[Speaker, Agent]
    order: Order = Alternate()
    rules: tuple[Rule, ...] = default_rules()
    proposals: int = 1
    """How many candidates each turn has. More than one needs a ``chooser``."""
    chooser: Chooser | None = None
    listener: Listener | None = None

    def __post_init__(self) -> None:
        if self.proposals < 1 or (self.proposals > 1 and self.chooser is None):
            raise ValueError("proposals is at least 1, and more than 1 needs a chooser.")


def role_play(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    *,
    rules: tuple[Rule, ...],
    listener: Listener | None = None,
) -> Scene:
    """The scene of the paper: an AI user instructs, an AI assistant solves (section 3.1).

    ``models`` holds one model each for ``user`` and ``assistant``; the prompts come from ``pack``, everything else
    from the session's record.

    Raises:
        PromptError: the pack cannot be rendered with these roles and this task.
    """
    origin = session.provenance
    said = inception(session, pack)
    enforced = origin.protocol == "enforced"
    # The small grammar has no room for code.
    small_talk = _is_small(models["assistant"]) and not origin.needs_code
    return Scene(
        session=session,
        agents={
            "user": Agent(
                speaker="user",
                role=session.user,
                system=Text(said.user),
                model=models["user"],
                sampling=origin.sampling.get("user", Sampling()),
                opening=Text(said.opening),
                form=user_form(small=_is_small(models["user"])) if enforced else None,
            ),
            "assistant": Agent(
                speaker="assistant",
                role=session.assistant,
                system=Text(said.assistant),
                model=models["assistant"],
                sampling=origin.sampling.get("assistant", Sampling()),
                form=assistant_form(small=small_talk) if enforced else None,
            ),
        },
        rules=rules,
        listener=listener,
    )


def _is_small(model: Model) -> bool:
    return model.name == "local"
