"""HTTP addresses and proxies."""

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
"""A host name or an IP address, without characters that could end a header or a line."""


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed HTTP address."""

    scheme: str
    host: str
    """Host name or IP address, without brackets."""
    port: int
    path: str
    """Without a trailing slash."""
    credentials: str = ""
    """``Basic`` credentials for a header; empty if not given."""

    @property
    def place(self) -> str:
        """Host, with the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{self.path}"


def read_address(url: str) -> Address:
    """Parse ``url``.

    Raises:
        InputError: ``url`` is not the address of a web server.
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
            next="Use an address like http://127.0.0.1:8000/v1.",
        )
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~-._")
    return Address(parts.scheme, host, port, path, _encode_credentials(parts))


def is_loopback(host: str) -> bool:
    """Return True if ``host`` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_proxy(address: Address) -> Address | None:
    """Return the proxy that the environment sets for ``address``; always None for this machine.

    Raises:
        InputError: the value is not the address of an HTTP proxy.
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
        raise InputError(  # Without the URL, which may contain a password.
            "The proxy in the environment is not the address of an HTTP proxy.",
            where=f"{address.scheme}_proxy or all_proxy",
            next=f"Use an address like http://proxy:3128, or put {address.host} into no_proxy.",
        ) from None


def _encode_credentials(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
