"""Checks of user input: ideas, role names, descriptions, languages."""

from __future__ import annotations

from bactrian.errors import InputError
from bactrian.records.session import Role

LONGEST_IDEA = 100_000  # Most characters of an idea or of a role's description.
LONGEST_NAME = 300  # Most characters of the name of a role or of a language.


def check_idea(text: str, field: str = "idea") -> str:
    """Return ``text`` unchanged if it can be the idea of a session.

    Raises:
        InputError: it is blank, too long, or cannot be sent (see :func:`check_value`).
    """
    return _checked(text, field, LONGEST_IDEA)


def check_name(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can name a role or a language: one line that is not blank.

    Raises:
        InputError: it is blank, has several lines, is longer than :data:`LONGEST_NAME`, or cannot be sent.
    """
    _checked(text, field, LONGEST_NAME)
    if text.splitlines() != [text]:
        raise InputError(
            f"The {field} has more than one line.",
            next="Use a short name such as 'Stock Trader'; a role's description may have several lines.",
        )
    return text


def check_role(role: Role, field: str) -> Role:
    """Return ``role`` unchanged if its name and its description can be used.

    Raises:
        InputError: see :func:`check_name`; or the description is too long or cannot be sent.
    """
    check_name(role.name, field)
    if role.description:
        _checked(role.description, f"{field} description", LONGEST_IDEA)
    return role


def check_value(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can be sent to a model and stored.

    Raises:
        InputError: it contains a NUL character or half of a surrogate pair.
    """
    if "\0" in text:
        raise InputError(
            f"The {field} contains a NUL character, at position {text.index(chr(0)) + 1:,}.",
            next="Take it out: it cannot be stored. A NUL often means that the text is a binary file.",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The {field} is not valid Unicode text, at position {error.start + 1:,}.",
            next="Give it as UTF-8.",
        ) from error
    return text


def _checked(text: str, field: str, limit: int) -> str:
    if not text.strip():
        raise InputError(f"The {field} is empty.", next="Say it in a few words.")
    if len(text) > limit:
        raise InputError(
            f"The {field} has {len(text):,} characters; the limit is {limit:,}.", next="Shorten it."
        )
    return check_value(text, field)
