"""What the flags say about a critic."""

from __future__ import annotations

from bactrian.errors import InputError
from bactrian.records.candidate import CRITERIA, CriticSettings, Unreadable, read_search


def read_critic_settings(
    role: str | None,
    proposals: int,
    rounds: int,
    criteria: str | None,
    unreadable: Unreadable,
    search: str | None,
) -> CriticSettings | None:
    """The critic that is wished for; None if nobody is.

    Raises:
        InputError: the search is none, or does not go with the other flags.
    """
    if role is None:
        if search is None:
            return None
        raise InputError(
            "A search needs somebody who ranks its lines.", where="--search", next="Give --critic ROLE, too."
        )
    return CriticSettings(role, proposals, rounds, criteria or CRITERIA, unreadable, *_beam(search, rounds))


def _beam(search: str | None, rounds: int) -> tuple[int, int]:
    """Width and depth. Raises InputError if they are none."""
    if search is None:
        return 1, 1
    try:
        beam = read_search(search)
    except ValueError as error:
        message = str(error)
        raise InputError(f"{message[:1].upper()}{message[1:]}.", where="--search") from error
    if beam != (1, 1) and rounds > 1:
        raise InputError(
            "A search has one round of proposals a turn.", where="--critic-rounds", next="Leave it out."
        )
    return beam
