"""A hub on loopback, as far as its client needs one to read and to write data sets."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class DataSets:
    """The files of each data set, and what was asked."""

    sets: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    license: str | None = "cc-by-nc-4.0"
    cut: int | None = None
    """Bytes after which the next download breaks off."""
    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    ranges: list[str] = field(default_factory=list[str])
    private: dict[str, bool] = field(default_factory=dict[str, bool])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of the hub's client."""
        self.asked.append(f"{request.method} {request.path}")
        parts = request.path.strip("/").split("/")
        if parts[:3] == ["api", "repos", "create"]:
            asked = await request.json()
            name = f"{asked.get('organization', 'me')}/{asked['name']}"
            self.sets.setdefault(name, {})
            self.private[name] = "private" in (
                asked.get("visibility"),
                "private" if asked.get("private") else "",
            )
            return web.json_response({"url": f"{self.url}/datasets/{name}", "id": name})
        if parts[:2] == ["api", "validate-yaml"]:
            return web.json_response({"errors": [], "warnings": []})
        if parts[:2] == ["api", "datasets"]:
            return await self._answer_set("/".join(parts[2:4]), parts[4:], request)
        if parts[0] == "datasets" and parts[3] == "resolve":
            return await self._send("/".join(parts[1:3]), parts[4], "/".join(parts[5:]), request)
        return web.Response(status=404)

    async def _answer_set(self, name: str, rest: list[str], request: web.Request) -> web.Response:
        if name not in self.sets:
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        if rest[:1] == ["preupload"]:
            files = (await request.json())["files"]
            modes = [{"path": of["path"], "uploadMode": "regular", "shouldIgnore": False} for of in files]
            return web.json_response({"files": modes})
        if rest[:1] == ["commit"]:
            for line in (await request.read()).splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.sets[name][value["path"]] = base64.b64decode(value["content"])
            address = f"{self.url}/datasets/{name}/commit/{COMMIT}"
            return web.json_response({"success": True, "commitOid": COMMIT, "commitUrl": address})
        if rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
            return web.Response(status=404, headers={"X-Error-Code": "RevisionNotFound"})
        siblings = [{"rfilename": of, "size": len(data)} for of, data in self.sets[name].items()]
        card = {"license": self.license} if self.license else {}
        return web.json_response({"id": name, "sha": COMMIT, "siblings": siblings, "cardData": card})

    async def _send(self, name: str, revision: str, file: str, request: web.Request) -> web.StreamResponse:
        data = self.sets[name][file]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        assert revision == COMMIT
        start = 0
        if asked := request.headers.get("Range"):
            self.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").partition("-")[0])
        headers["Content-Length"] = str(len(data) - start)
        if request.method == "HEAD":
            return web.Response(headers=headers)
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        await response.prepare(request)
        end = len(data)
        if self.cut is not None and request.method == "GET":
            end, self.cut = start + self.cut, None
        await response.write(data[start:end])
        if end < len(data) and request.transport:
            request.transport.close()
        return response


@asynccontextmanager
async def serve_data_sets(sets: DataSets) -> AsyncGenerator[DataSets]:
    """Serve ``sets`` on loopback."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", sets.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sets.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield sets
    finally:
        await runner.cleanup()
