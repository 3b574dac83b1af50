"""Defaults of a role-play: the paper's example, the roles, the specifier and the prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bactrian.play.setup import RolePlaySetup
from bactrian.prompts.pack import Pack, load_pack
from bactrian.records.session import Role

EXAMPLE = ("Develop a trading bot for the stock market", "Python Programmer", "Stock Trader")
"""The paper's example: idea, assistant role, user role."""
EXAMPLE_SEED = 7
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
