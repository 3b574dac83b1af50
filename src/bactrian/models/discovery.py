"""Finds model servers on this computer: asks each self-hosted provider's usual port for its list of models."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bactrian.errors import BactrianError
from bactrian.models.http import is_loopback, read_address
from bactrian.models.openai import OpenAIModel
from bactrian.models.providers import Provider, load_providers

# Seconds to wait for all servers together; one on this computer lists its models in a few milliseconds.
LONGEST_WAIT = 0.2
_NO_CHAT = ("embed", "rerank", "bge-", "whisper")  # Parts of the names of models that cannot chat


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answered."""

    provider: str  # Name of its row in `providers.toml`
    title: str
    address: str
    models: tuple[str, ...]  # Its chat models, as `--model` takes them; empty if it has none


async def find_servers(wait: float = LONGEST_WAIT) -> tuple[FoundServer, ...]:
    """Return the servers that list their models within ``wait`` seconds, in the order of the providers.

    Only loopback addresses are asked, for nothing but the list, and without a key.
    """

    async def ask(row: Provider, address: str) -> FoundServer | None:
        """Return the server of ``row``; None if nothing answers there, or something else does."""
        client = OpenAIModel("", base_url=address, dialect=row)
        try:
            names = await client.models()
        except BactrianError:
            return None
        finally:
            await client.close()
        chat = (name for name in names if not any(part in name.lower() for part in _NO_CHAT))
        models = tuple(f"{row.name}:{name}" for name in chat)
        return FoundServer(row.name, row.title or row.name, address, models)

    tasks = [
        asyncio.create_task(ask(row, row.address))
        for row in load_providers().values()
        if row.local and row.address is not None and is_loopback(read_address(row.address).host)
    ]
    await asyncio.wait(tasks, timeout=wait)
    servers = [task.result() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tuple(server for server in servers if server is not None)
