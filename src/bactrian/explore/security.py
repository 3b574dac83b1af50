"""What protects the pages: checks of each request, limits on how often something is done, headers of responses."""

from __future__ import annotations

import hmac
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Of every response. There is no inline script or style, and nothing comes from elsewhere.
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not ``no-referrer``: a browser would then send its own forms with the origin ``null``.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# Which pages may show the explorer in a frame: none, or those of this computer.
_FRAMES = ("frame-ancestors 'none'", "frame-ancestors http://localhost:* http://127.0.0.1:*")
_SAFE = frozenset(("GET", "HEAD"))
# Pages that need no token: voters of other computers see these. The votes ask for an invitation.
_FOR_VOTERS = ("/vote", "/label", "/help", "/agree")
_YEAR = 365 * 86_400


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Which requests are answered."""

    # Values of the header ``Host`` that are answered. A page of another site that points its own name to this address
    # (DNS rebinding) sends that name.
    hosts: frozenset[str]
    # A request needs it: once in the address, and then as a cookie. Other users of this computer reach loopback, too.
    token: str
    # Name of that cookie. Cookies of all ports of a computer are shared, so it has the port in it.
    cookie: str
    # Tokens that are good for one request: the command line of a browser, in which they are, can be read by everybody.
    once: set[str]
    # The port, if the server listens at all addresses of this computer: then every numeric address is answered, too.
    # A page of another site cannot use one to hide its origin.
    any_address: int = 0
    # True if pages of this computer may show the explorer in a frame.
    framed: bool = False

    def allows(self, host: str) -> bool:
        """Return True if requests with this header ``Host`` are answered."""
        address = host.removesuffix(f":{self.any_address}").removeprefix("[").removesuffix("]")
        return host in self.hosts or (self.any_address > 0 and _parse_address(address) is not None)


def make_access_rules(host: str, port: int, token: str, once: str) -> AccessRules:
    """Return the rules of a server at ``host`` and ``port`` with a token, and one that is good for one request."""
    aliases = (name_computer(), f"{name_computer().partition('.')[0]}.local") if is_wildcard(host) else ()
    names = {host, *aliases, *(("localhost", "127.0.0.1", "::1") if is_loopback(host) or aliases else ())}
    written = {(f"[{name}]" if ":" in name else name).lower() for name in names}
    hosts = frozenset((*written, *(f"{name}:{port}" for name in written)))
    return AccessRules(hosts, token, f"bactrian_{port}", {once}, port if aliases else 0)


def name_computer() -> str:
    """Return this computer's name in its network."""
    return socket.gethostname() or "localhost"


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_wildcard(host: str) -> bool:
    """Return True if ``host`` stands for all addresses of this computer."""
    address = _parse_address(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """Return True if only this computer can reach ``host``."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


class Guard:
    """Refuses requests that are not from the pages themselves or that lack the token, and adds the headers."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value.replace(*_FRAMES) if self._rules.framed else value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        # Owners see every page, voters only theirs. A program sends the token in a header, a browser in a cookie.
        connection = HTTPConnection(scope)
        token = connection.cookies.get(self._rules.cookie) or connection.headers.get("authorization", "")
        scope.setdefault("state", {})["is_owner"] = self._fits(token.removeprefix("Bearer "))
        refusal = self._refuse(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._rules.allows(headers.get("host", "").lower()):
            return PlainTextResponse(
                "This address is not one of the explorer's. Open the one that `bactrian explore` printed.\n",
                421,
            )
        if scope["method"] not in _SAFE and not self._is_same_origin(headers):
            return PlainTextResponse("A page of another site sent this request; it was refused.\n", 403)
        return self._let_in(scope, headers)

    def _is_same_origin(self, headers: Headers) -> bool:
        """Return True if a page of this server sent the request."""
        site = headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        # Compared and not parsed: what is sent here may be anything.
        return headers.get("origin", "").lower().partition("://")[2] == headers["host"].lower()

    def _let_in(self, scope: Scope, headers: Headers) -> Response | None:
        """Return None if the request is answered; otherwise what is answered instead."""
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        reads, is_owner = scope["method"] in _SAFE, scope["state"]["is_owner"]
        token = query.pop("token", [""])[-1]
        brings_token = reads and (self._fits(token) or token in self._rules.once)
        self._rules.once.discard(token)
        # A browser sends strict cookies only with requests that our own pages make, and with neither a link of
        # another site nor what that redirects to. So a page of ours opens the address again.
        is_link = reads and not is_owner and headers.get("sec-fetch-site") == "cross-site"
        if not brings_token and not is_link:
            if is_owner or is_for_voters(scope["path"]):
                return None
            return PlainTextResponse(
                "A token is needed: open the address that `bactrian explore` printed.\n", 401
            )
        # Two slashes would begin the name of another server.
        address = f"/{quote(scope['path'].lstrip('/'))}{'?' if query else ''}{urlencode(query, doseq=True)}"
        if is_link:
            answer = HTMLResponse("", headers={"refresh": f"0; url={address}"})
        else:
            answer = RedirectResponse(address, 303)
        if brings_token:
            set_login(answer, self._rules.cookie, self._rules.token)
        return answer

    def _fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._rules.token.encode())


def is_for_voters(path: str) -> bool:
    """Return True for the pages of voters and what these load."""
    return path in _FOR_VOTERS or path.startswith(("/vote/", "/label/", "/static/"))


def set_login(answer: Response, name: str, value: str) -> None:
    """Set a cookie that lets a person in. No script reads it, and it is never sent with a request of another site."""
    answer.set_cookie(name, value, max_age=_YEAR, httponly=True, samesite="strict")


# A limit on how often a named action is allowed.


_MOST_NAMES = 10_000


@dataclass(slots=True)
class VisitLimit:
    """At most ``count`` actions of one name within ``seconds``."""

    count: int
    seconds: float
    _seen: dict[str, deque[float]] = field(default_factory=dict[str, "deque[float]"])

    def take(self, name: str) -> float:
        """Count an action and return 0, or return the seconds until one is allowed again."""
        now = time.monotonic()
        if len(self._seen) > _MOST_NAMES:
            self._seen = {who: times for who, times in self._seen.items() if now - times[-1] < self.seconds}
        times = self._seen.setdefault(name, deque(maxlen=self.count))
        if len(times) == self.count and now - times[0] < self.seconds:
            return self.seconds - (now - times[0])
        times.append(now)
        return 0.0
