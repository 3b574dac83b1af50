"""Model servers on this computer are found by their list of models."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from bactrian.models.discovery import FoundServer, find_servers
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the user's own rows of providers, where no default port is listened to by chance."""
    monkeypatch.setenv("BACTRIAN_CONFIG", str(tmp_path))
    return tmp_path / "providers.toml"


def write_row(file: Path, address: str) -> None:
    file.write_text(
        f'[[providers]]\nname = "ollama"\ntitle = "Ollama"\naddress = "{address}"\nlocal = true\n'
    )


async def test_a_server_is_found_with_its_chat_models_and_gets_no_other_request(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with Endpoint(models=("nomic-embed-text", "qwen3:4b")) as endpoint:
        write_row(config, endpoint.url)
        servers = [server for server in await find_servers(5.0) if server.provider == "ollama"]
    assert servers == [FoundServer("ollama", "Ollama", endpoint.url, ("ollama:qwen3:4b",))]
    assert (endpoint.listed, endpoint.requests) == (1, [])


async def test_a_port_that_accepts_and_never_answers_is_given_up(config: Path) -> None:
    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
    write_row(config, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    begun = time.monotonic()
    assert [server for server in await find_servers() if server.provider == "ollama"] == []
    assert time.monotonic() - begun < 10
    server.close()
    await asyncio.sleep(0.1)  # The handler ends with its connection.


async def test_what_answers_something_else_is_no_model_server(config: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    write_row(config, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    assert [server for server in await find_servers(5.0) if server.provider == "ollama"] == []
    server.close()
    await asyncio.sleep(0.1)  # The handler ends with its connection.


async def test_addresses_of_other_computers_are_not_asked(config: Path) -> None:
    write_row(config, "http://192.0.2.1:11434/v1")
    assert [server for server in await find_servers() if server.provider == "ollama"] == []


@pytest.mark.slow
async def test_play_and_the_doctor_name_the_server_and_json_stays_silent(
    config: Path, tmp_path: Path
) -> None:
    short = ("--no-specify", "--max-messages", "1", "--set", "parameters.max_tokens=1", "--no-keep")
    play = ("play", "Plan a garden", *short)
    async with Endpoint(models=("qwen3:4b",)) as endpoint:
        write_row(config, endpoint.url)
        shown = await asyncio.to_thread(bactrian, *play, cwd=tmp_path, BACTRIAN_CONFIG=str(config.parent))
        assert "Ollama runs on this computer. To use it: --model ollama:qwen3:4b" in shown.stderr
        assert endpoint.listed == 1
        silent = await asyncio.to_thread(
            bactrian, *play, "--json", cwd=tmp_path, BACTRIAN_CONFIG=str(config.parent)
        )
        assert (silent.returncode, "Ollama" in silent.stderr, endpoint.listed) == (0, False, 1)
        doctor = await asyncio.to_thread(bactrian, "doctor", cwd=tmp_path, BACTRIAN_CONFIG=str(config.parent))
        assert f"Ollama answers at {endpoint.url}: ollama:qwen3:4b" in doctor.stdout
