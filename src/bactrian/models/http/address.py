"""Where an endpoint is, and which proxy is on the way."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from bactrian.errors import InputError

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")
"""A name, or a number of either kind: nothing that could end a header or a line."""


@dataclass(frozen=True, slots=True)
class Address:
    """An HTTP address, taken apart."""

    scheme: str
    host: str
    """Name or number, without brackets."""
    port: int
    path: str
    """Without a slash at its end."""
    credentials: str = ""
    """``Basic`` credentials for a header; empty if the address has none."""

    @property
    def place(self) -> str:
        """Host, and port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{self.path}"


def read_address(url: str) -> Address:
    """Take ``url`` apart.

    Raises:
        InputError: it is not the address of a web server.
    """
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
        usual = _PORTS[parts.scheme]
        port = parts.port or usual
    except (ValueError, KeyError):
        host, port, parts = "", 0, SplitResult("", "", "", "", "")
    if not _HOST.fullmatch(host) or any(character.isspace() for character in parts.path):
        raise InputError(
            "This base URL is not the address of an endpoint.",
            where=url,
            next="Give one like http://127.0.0.1:8000/v1.",
        )
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
    return Address(parts.scheme, host, port, path, _credentials(parts))


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_proxy(address: Address) -> Address | None:
    """The proxy that the environment names for ``address``; none ever for this machine itself.

    Raises:
        InputError: it is no HTTP proxy.
    """
    if is_loopback(address.host) or proxy_bypass(address.host):
        return None
    proxies = getproxies()
    url = proxies.get(address.scheme) or proxies.get("all")
    if not url:
        return None
    try:
        return read_address(url if "://" in url else f"http://{url}")
    except InputError:
        raise InputError(  # Without the URL: there may be a password in it.
            "The proxy that the environment names is not the address of an HTTP proxy.",
            where=f"{address.scheme}_proxy or all_proxy",
            next=f"Give one like http://proxy:3128, or put {address.host} into no_proxy.",
        ) from None


def _credentials(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
