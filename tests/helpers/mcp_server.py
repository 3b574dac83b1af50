"""A small MCP server for the tests: ``python mcp_server.py``."""

from __future__ import annotations

import os

from mcp.server import MCPServer

server = MCPServer("shop", log_level="CRITICAL")


@server.tool()
def price(item: str) -> str:
    """The price of something."""
    return f"{item} is 3.50"


@server.tool(name="stock.count")
def count() -> list[int]:
    """How many there are."""
    return [3, 4]


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("out of order")


@server.tool()
def key() -> str:
    """The key that this server can see."""
    return os.environ.get("OPENAI_API_KEY", "none")


@server.tool()
def leave() -> str:
    """End the server."""
    os._exit(1)


if __name__ == "__main__":
    server.run()
