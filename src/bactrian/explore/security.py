"""What protects the pages: checks of each request before it reaches a page, and headers of each response."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
"""Of every response. There is no inline script or style, and nothing comes from elsewhere."""
_SAFE = frozenset(("GET", "HEAD"))
_YEAR = 365 * 86_400


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Which requests are answered."""

    hosts: frozenset[str]
    """Values of the header ``Host`` that are answered. A page of another site that points its own name to this address
    (DNS rebinding) sends that name."""
    token: str = ""
    """If not empty, a request needs it: once in the address, and then as a cookie."""
    cookie: str = "bactrian"
    """Name of that cookie. Cookies of all ports of a computer are shared, so it has the port in it."""


def make_access_rules(host: str, port: int, token: str) -> AccessRules:
    """Return the rules of a server at ``host`` and ``port``."""
    names = {host, *(("localhost", "127.0.0.1", "::1") if is_loopback(host) else ())}
    written = {f"[{name}]" if ":" in name else name for name in names}
    hosts = frozenset((*written, *(f"{name}:{port}" for name in written)))
    return AccessRules(hosts, token, f"bactrian_{port}")


def is_loopback(host: str) -> bool:
    """Return True if only this computer can reach ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refuse(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._rules.hosts:
            return PlainTextResponse(
                "This address is not one of the explorer's. Open the one that `bactrian explore` printed.\n",
                421,
            )
        if scope["method"] not in _SAFE and not self._is_own(headers):
            return PlainTextResponse("A page of another site sent this request; it was refused.\n", 403)
        return self._ask_token(scope, headers) if self._rules.token else None

    def _is_own(self, headers: Headers) -> bool:
        """Return True if a page of this server sent the request."""
        site = headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        origin = headers.get("origin")
        return origin is not None and urlsplit(origin).netloc.lower() == headers["host"].lower()

    def _ask_token(self, scope: Scope, headers: Headers) -> Response | None:
        cookies: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
        name = self._rules.cookie
        if name in cookies and self._fits(cookies[name].value):
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if not self._fits(query.pop("token", [""])[0]):
            return PlainTextResponse(
                "A token is needed: open the address that `bactrian explore` printed.\n", 401
            )
        rest = f"?{urlencode(query, doseq=True)}" if query else ""
        answer = RedirectResponse(f"{scope['path']}{rest}", 303)
        answer.set_cookie(name, self._rules.token, max_age=_YEAR, httponly=True, samesite="strict")
        return answer

    def _fits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._rules.token.encode())
