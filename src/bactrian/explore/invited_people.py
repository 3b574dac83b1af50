"""People whom a link lets in, voters and labellers: their logins, and how long they looked at a page."""

from __future__ import annotations

import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bactrian.errors import InputError
from bactrian.evaluate.invitations import invite_voters, read_invitations
from bactrian.explore.rendering import get_explorer
from bactrian.explore.security import set_login

# Seconds that a page can have been looked at.
_LONGEST_TIME = 86_400.0


def name_cookie(request: Request, kind: str) -> str:
    """Return the name of the cookie of a ``voter`` or a ``labeller``; servers on one host have different ones."""
    return f"bactrian_{kind}_{get_explorer(request).port}"


def log_in(page: str, cookie: str, token: str) -> Response:
    """Return an answer that leads to ``page`` and remembers the token, which leaves the address and any history."""
    answer = RedirectResponse(page, 303)
    set_login(answer, cookie, token)
    return answer


def log_out(page: str, cookie: str) -> Response:
    """Return an answer that leads to ``page`` and forgets the token."""
    answer = RedirectResponse(page, 303)
    answer.delete_cookie(cookie)
    return answer


def explain_bad_link(request: Request) -> tuple[int, str]:
    """Return the status and the words for a link that is not valid; few are tried in a minute."""
    if get_explorer(request).guesses.take(request.client.host if request.client else ""):
        return 429, "Too many links were tried; wait a minute."
    return 403, "This link is not valid: it was withdrawn, or replaced by a newer one."


def invite_owner(folder: Path, name: str, action: str = "Open it, or take another name.") -> str:
    """Return a token for the owner, under a pseudonym that nobody has.

    Raises:
        InputError: somebody has a link under this pseudonym.
    """
    if any(invitation.voter == name for invitation in read_invitations(folder)):
        raise InputError(f"{name} has a link already.", next=action)
    (token,) = invite_voters(folder, [name]).values()
    return token


def read_seconds(shown: str) -> float:
    """Return the seconds since ``shown``, the time at which a page was made; 0 if the form does not tell."""
    try:
        seconds = time.time() - float(shown)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds <= _LONGEST_TIME else 0.0
