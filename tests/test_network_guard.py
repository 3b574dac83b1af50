"""No test reaches beyond this computer."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.network import NetworkRefused, is_loopback

BEYOND = ("192.0.2.1", 9)
"""An address that is reserved for documentation."""


@pytest.fixture
def refused(guarded_processes: Path) -> Path:
    """The file of refused connections, which a test of the guard must leave empty."""
    return guarded_processes


def test_a_connection_beyond_loopback_is_refused_and_written_down(refused: Path) -> None:
    with socket.socket() as one, pytest.raises(NetworkRefused, match=r"192\.0\.2\.1"):
        one.connect(BEYOND)
    assert refused.read_text("utf-8") == f"socket.connect {BEYOND}\n"
    refused.write_text("")


def test_a_name_beyond_this_computer_is_not_looked_up(refused: Path) -> None:
    with pytest.raises(NetworkRefused):
        socket.getaddrinfo("example.com", 80)
    assert "example.com" in refused.read_text("utf-8")
    refused.write_text("")


def test_a_process_that_a_test_starts_is_guarded_too(refused: Path) -> None:
    program = f"import socket; socket.socket().connect({BEYOND!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "NetworkRefused" in done.stderr
    assert refused.read_text("utf-8") != ""
    refused.write_text("")


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 1), ("::1", 1, 0, 0), ("localhost", 1), "/run/some.sock", b"\0x"]
)
def test_this_computer_is_within_reach(address: object) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", [BEYOND, ("2001:db8::1", 1, 0, 0), ("0.0.0.0.example.org", 80), ("8.8.8.8", 53)]
)
def test_other_computers_are_not(address: object) -> None:
    assert not is_loopback(address)
