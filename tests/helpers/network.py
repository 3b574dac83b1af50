"""The network guard: a connection beyond this computer is refused, and the test that made it fails.

It covers the test process and, through ``startup/sitecustomize.py``, every Python process that a test starts with an
environment of its own making or without one. Programs in other languages are not covered.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import Any

LOG = "NETWORK_GUARD_LOG"
"""Environment variable: the file in which refused connections are written down, a line each."""
_RESERVED = ("localhost", ".localhost", ".invalid", ".test", ".example")


class NetworkRefused(RuntimeError):
    """A test reached for the network."""


def guard_network() -> None:
    """Refuse connections beyond loopback in this process, for good."""
    sys.addaudithook(_check)


def is_loopback(address: object) -> bool:
    """True if a socket's address lies on this computer: loopback, a Unix socket, or another local family."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        return True
    return _is_local_name(address[0])


def _is_local_name(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "" or host.endswith(_RESERVED)


def _is_resolved_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str):
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _is_local_name(host)
    return True


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        target = arguments[1]
        local = is_loopback(target)
    elif event == "socket.getaddrinfo":
        target = arguments[0]
        local = _is_resolved_here(target)
    else:
        return
    if local:
        return
    if log := os.environ.get(LOG):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{event} {target}\n")
    raise NetworkRefused(f"A test must not reach beyond this computer: {event} {target}.")
