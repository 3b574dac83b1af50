"""A server that misuses the Model Context Protocol in one way: ``python hostile_mcp_server.py WAY [FILE]``.

``FILE`` gets the ids of its processes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WAY = sys.argv[1]
TOOL: dict[str, Any] = {"name": "price", "description": "A price.", "inputSchema": {"type": "object"}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The result of a request that the protocol expects, or a part of the misuse."""
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bad", "version": "1"},
            }
        case "tools/list":
            return list_tools()
        case "tools/call":
            return call_tool(request)
        case _:
            return {}


def list_tools() -> dict[str, Any]:
    if WAY == "endless list":
        return {"tools": [TOOL], "nextCursor": str(time.time_ns())}
    if WAY == "same cursor":
        return {"tools": [], "nextCursor": "again"}
    if WAY == "huge schema":
        return {"tools": [{**TOOL, "description": "x" * (1 << 20)}]}
    if WAY == "deep schema":
        return {"tools": [{**TOOL, "inputSchema": json.loads('{"a":' * 400 + "{}" + "}" * 400)}]}
    if WAY == "slow pattern":
        return {
            "tools": [
                {**TOOL, "outputSchema": {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}}}
            ]
        }
    if WAY == "no name":
        return {"tools": [{**TOOL, "name": ""}]}
    if WAY == "empty list":
        return {"tools": []}
    if WAY == "no tools":
        return {"tools": "none"}
    return {"tools": [TOOL]}


def call_tool(request: dict[str, Any]) -> dict[str, Any]:
    if WAY == "asks the client":
        for number, method in enumerate(("sampling/createMessage", "roots/list", "elicitation/create"), 900):
            send({"id": number, "method": method, "params": {"messages": [], "maxTokens": 9}})
    if WAY == "flood":
        for _ in range(200):
            send({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})
    if WAY == "changes its list":
        send({"method": "notifications/tools/list_changed"})
    if WAY == "no JSON":
        sys.stdout.write("{" * 2000 + "\n")
    if WAY == "dies":
        os._exit(1)
    if WAY == "never answers":
        time.sleep(600)
    if WAY == "slow pattern":
        return {"content": [{"type": "text", "text": "3.50"}], "structuredContent": {"a": "a" * 60 + "!"}}
    text = "x" * (2 << 20) if WAY == "long answer" else "3.50"
    return {"content": [{"type": "text", "text": text}]}


if WAY == "leaves processes":
    starts = (subprocess.Popen(["sleep", "600"], start_new_session=alone) for alone in (False, True))
    Path(sys.argv[2]).write_text(" ".join(map(str, (os.getpid(), *(started.pid for started in starts)))))
for line in sys.stdin:
    received = json.loads(line)
    if WAY == "silent":
        continue
    if "id" in received and "method" in received:
        send({"id": received["id"], "result": answer(received)})
    if WAY == "wrong ids":
        for number in itertools.islice(itertools.count(5000), 50):
            send({"id": number, "result": {}})
if WAY == "leaves processes":
    time.sleep(600)
