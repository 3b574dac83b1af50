"""Checks of user input: ideas, role names, descriptions, languages."""

from __future__ import annotations

from bactrian.errors import InputError
from bactrian.records.session import Role

LONGEST_IDEA = 100_000  # Most characters of an idea or of a role's description.
LONGEST_NAME = 300  # Most characters of the name of a role or of a language.


def check_name(text: str, field: str) -> str:
    """Return ``text`` unchanged if it can name a role or a language: one line that is not blank.

    Raises:
        InputError: it is blank, has several lines, is longer than :data:`LONGEST_NAME`, or cannot be sent.
    """
    check_text(text, field, LONGEST_NAME)
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
        check_text(role.description, f"{field} description")
    return role


def check_text(text: str, field: str, longest: int | None = LONGEST_IDEA) -> str:
    """Return ``text`` unchanged if it can be sent to a model and stored.

    Args:
        text: An idea, the description of a role, or another text.
        field: What it is, for the error.
        longest: Most characters; None if the text may be empty, and of any length.

    Raises:
        InputError: it is blank, too long, or contains a NUL character or half of a surrogate pair.
    """
    if longest is not None and not text.strip():
        raise InputError(f"The {field} is empty.", next="Say it in a few words.")
    if longest is not None and len(text) > longest:
        raise InputError(
            f"The {field} has {len(text):,} characters; the limit is {longest:,}.", next="Shorten it."
        )
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
