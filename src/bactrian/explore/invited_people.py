"""People whom a link lets in, voters and labellers: their logins, and how long they looked at a page."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bactrian.errors import InputError
from bactrian.evaluate.invitations import find_voter, invite_voters, read_invitations
from bactrian.explore.rendering import get_explorer, read_form
from bactrian.explore.security import set_login

# Seconds that a page can have been looked at.
_LONGEST_TIME = 86_400.0


@dataclass(frozen=True, slots=True)
class Door:
    """The page that a link leads to; those whom it let in are known by a cookie."""

    page: str
    # A ``voter`` or a ``labeller``.
    kind: str

    def find_person(self, request: Request, folders: Iterable[Path]) -> tuple[str, Path] | None:
        """Return the pseudonym of a person whom one of ``folders`` invited, and that folder."""
        token = request.query_params.get("invite") or request.cookies.get(self._name_cookie(request), "")
        found = ((find_voter(folder, token), folder) for folder in folders) if token else ()
        return next(((name, folder) for name, folder in found if name), None)

    def log_in(self, request: Request, token: str) -> Response:
        """Return an answer that leads to the page and remembers the token, which leaves the address and any history."""
        answer = RedirectResponse(self.page, 303)
        set_login(answer, self._name_cookie(request), token)
        return answer

    def log_in_owner(self, request: Request, folder: Path, name: str, action: str) -> Response:
        """Let the owner in under a pseudonym that nobody has.

        Raises:
            InputError: somebody has a link under this pseudonym.
        """
        if any(invitation.voter == name for invitation in read_invitations(folder)):
            raise InputError(f"{name} has a link already.", next=action)
        (token,) = invite_voters(folder, [name]).values()
        return self.log_in(request, token)

    async def leave(self, request: Request) -> Response:
        """Forget on this browser who it is. The link lets the person in again."""
        await read_form(request, writes=False)
        answer = RedirectResponse(self.page, 303)
        answer.delete_cookie(self._name_cookie(request))
        return answer

    def _name_cookie(self, request: Request) -> str:
        # Servers on one host have different ones.
        return f"bactrian_{self.kind}_{get_explorer(request).port}"


def explain_bad_link(request: Request) -> tuple[int, str]:
    """Return the status and the words for a link that is not valid; few are tried in a minute."""
    if get_explorer(request).guesses.take(request.client.host if request.client else ""):
        return 429, "Too many links were tried; wait a minute."
    return 403, "This link is not valid: it was withdrawn, or replaced by a newer one."


def read_seconds(shown: str) -> float:
    """Return the seconds since ``shown``, the time at which a page was made; 0 if the form does not tell."""
    try:
        seconds = time.time() - float(shown)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds <= _LONGEST_TIME else 0.0
