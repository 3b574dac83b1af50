"""A llama.cpp server in a process of its own.

``xllamacpp`` runs llama.cpp's own server in threads. It is spoken to over its listener on 127.0.0.1, guarded
by a key that nobody else has, and not by the package's direct calls: those tell nothing of token ids, which are
needed to compute no token twice, and cannot be stopped half-way.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bactrian.errors import Exhausted, MissingExtra, ModelError, Refused, TryAgain
from bactrian.models.http.address import read_address
from bactrian.models.http.pool import Pool
from bactrian.models.http.response import Response, TransportFault
from bactrian.models.http.sse import EventReader
from bactrian.models.http.timeouts import Timeouts
from bactrian.models.local.gguf import read_info
from bactrian.records.message import Message

_STAND_IN = re.compile("\ufdd0([0-9]+)\ufdd1")
"""In place of a control token's name that somebody has said. Unicode keeps these two for a program's own use."""
_FOREVER = 1e9
_LARGEST = 1 << 30
_END = 5.0
"""Seconds for it to end in when it is no longer needed."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What the server generated for one prompt."""

    text: str
    tokens: array[int]
    stop: str
    """llama.cpp's word for why it ended: ``eos``, ``word`` or ``limit``."""
    cached: int
    """Tokens of the prompt that were in the slot's cache."""
    completion: int
    """Tokens generated."""


class LlamaServer:
    """A running server with one model. Make one with :func:`start`."""

    def __init__(
        self,
        worker: asyncio.subprocess.Process,
        address: str,
        key: str,
        where: str,
        controls: Sequence[str],
    ) -> None:
        self._worker = worker
        self._where = where
        # The longest first, so that none is taken for another that it begins with.
        self._controls = sorted(controls, key=len, reverse=True)
        self._control = re.compile("|".join(re.escape(name) for name in self._controls) or r"(?!)")
        self._spelt: dict[str, list[int]] = {}
        self._pool = Pool(
            read_address(address),
            f"Authorization: Bearer {key}",
            # A generation may take as long as it takes; there is no connection to lose on one's own machine.
            Timeouts(total=_FOREVER, silence=_FOREVER),
            # The server closes kept connections at moments of its own, and the next request would hit one.
            keep=False,
        )

    @property
    def is_running(self) -> bool:
        """False once its process has ended."""
        return self._worker.returncode is None

    async def window(self) -> int:
        """Tokens that one slot holds."""
        response = await self._pool.get("/slots", most=_LARGEST)
        return json.loads(await response.read_all())[0]["n_ctx"]

    def safe(self, said: str) -> str:
        """``said``, with a stand-in for each name of a control token, which :meth:`tokens` reads as plain text."""
        return self._control.sub(
            lambda found: f"\ufdd0{self._controls.index(found[0])}\ufdd1", said.replace("\ufdd0", "\ufffd")
        )

    async def chat(self, messages: Sequence[Message]) -> str:
        """The messages as one safe text, by the model's own chat template, up to where its reply begins."""
        said = [{"role": message.role, "content": self.safe(message.text)} for message in messages]
        return (await self._post("/apply-template", {"messages": said}))["prompt"]

    async def tokens(self, text: str, *, begins: bool) -> array[int]:
        """Token ids of a safe text; with ``begins``, after the token that opens a prompt, if there is one.

        Control tokens are those of the chat template, and none that somebody has said.
        """
        pieces: list[str | int] = []
        for number, piece in enumerate(_STAND_IN.split(text)):
            if number % 2:
                pieces += await self._spell(self._controls[int(piece)])
            else:
                pieces.append(piece)
        body = {"content": pieces, "add_special": begins, "parse_special": True}
        return array("i", (await self._post("/tokenize", body))["tokens"])

    async def _spell(self, name: str) -> list[int]:
        """Token ids of a control token's name, letter by letter as it were."""
        if name not in self._spelt:
            body = {"content": name, "add_special": False, "parse_special": False}
            self._spelt[name] = (await self._post("/tokenize", body))["tokens"]
        return self._spelt[name]

    async def text(self, tokens: array[int]) -> str:
        """The text of ``tokens``."""
        return (await self._post("/detokenize", {"tokens": tokens.tolist()}))["content"]

    async def generate(
        self,
        prompt: array[int],
        slot: int,
        settings: Mapping[str, object],
        on_text: Callable[[str], None] | None,
    ) -> Generated:
        """Continue ``prompt`` in ``slot``. Cancelling the call stops the generation.

        Raises:
            ModelError: llama.cpp refuses the request, for example a grammar it cannot read.
        """
        body = {
            **settings,
            "prompt": prompt.tolist(),
            "id_slot": slot,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": on_text is not None,
        }
        if on_text is None:
            return _generated(await self._post("/completion", body))
        pieces: list[str] = []
        tokens = array("i")
        response = await self._send("/completion", body, stream=True)
        try:
            async for event in _events(response):
                if "error" in event:
                    raise self._refused(event)
                tokens.extend(event["tokens"])
                if piece := event["content"]:
                    pieces.append(piece)
                    on_text(piece)
                if event["stop"]:
                    return _generated(event | {"content": "".join(pieces), "tokens": tokens})
        except TransportFault as error:
            raise self._stopped() from error
        finally:
            response.close()
        raise self._stopped()

    async def close(self) -> None:
        """Stop the server and give its memory back."""
        await self._pool.close()
        assert self._worker.stdin is not None
        self._worker.stdin.close()  # It ends with its input, as it does when this process is killed.
        try:
            async with asyncio.timeout(_END):
                await self._worker.wait()
        except TimeoutError:
            self._worker.kill()
            await self._worker.wait()

    async def _post(self, path: str, body: Mapping[str, object]) -> Any:
        response = await self._send(path, body)
        return json.loads(await response.read_all())

    async def _send(self, path: str, body: Mapping[str, object], *, stream: bool = False) -> Response:
        content = json.dumps(body).encode()
        try:
            response = await self._pool.post(path, [content], len(content), most=_LARGEST, stream=stream)
            if response.status != 200:
                raise self._refused(json.loads(await response.read_all()))
        except TransportFault as error:
            raise self._stopped() from error
        return response

    def _stopped(self) -> TryAgain:
        return TryAgain("llama.cpp has stopped and is started again.", where=self._where)

    def _refused(self, answer: Mapping[str, Any]) -> ModelError:
        return Refused(
            f"llama.cpp refuses the request: {answer['error']['message']}.",
            where=self._where,
            next="Check the sampling parameters and, if there is one, the grammar.",
        )


def _generated(answer: Mapping[str, Any]) -> Generated:
    return Generated(
        text=answer["content"],
        tokens=array("i", answer["tokens"]),
        stop=answer["stop_type"],
        cached=answer["timings"]["cache_n"],
        completion=answer["tokens_predicted"],
    )


async def _events(response: Response) -> AsyncGenerator[dict[str, Any]]:
    """The JSON of each event of a stream."""
    events = EventReader()
    while piece := await response.read():
        for data in events.feed(piece):
            yield json.loads(data)


async def start_server(path: Path, *, slots: int, window: int) -> LlamaServer:
    """Load the model at ``path``, with ``slots`` places of ``window`` tokens each, or of all it was trained for.

    Raises:
        InputError: the file is missing, or is no whole GGUF file.
        MissingExtra: ``xllamacpp`` is not installed.
        ModelError: the model cannot be loaded.
    """
    facts = await asyncio.to_thread(read_info, path)
    window = min(window, facts.window)
    if find_spec("xllamacpp") is None:
        raise MissingExtra("local", "A model on this computer")
    key = secrets.token_urlsafe()
    worker = await asyncio.create_subprocess_exec(
        # -P: a folder named bactrian where the user happens to work is not our program.
        *(sys.executable, "-P", "-m", "bactrian.models.local.server_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process, which may want its turns in flight finished.
        # Its threads spin while they wait for each other. Where cores are shared they then keep out the very thread
        # they wait for, most of all while one goes through the vocabulary for what a grammar allows.
        env={"OMP_WAIT_POLICY": "passive", **os.environ},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        # The key goes where nobody else can read it: neither arguments nor environment are such a place.
        order = {"path": str(path), "slots": slots, "window": window, "key": key}
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        address = (await worker.stdout.readline()).decode().strip()
    except BaseException:
        worker.kill()
        raise
    if not address:
        await worker.wait()
        # llama.cpp gives no reason.
        raise Exhausted(
            "llama.cpp cannot load the model: its file is damaged, or there is not enough memory "
            f"for {slots} slots of {window:,} tokens.",
            where=str(path),
            next="Free some memory, use fewer conversations at once (--concurrency), or fetch the file again.",
        )
    return LlamaServer(worker, address, key, str(path), facts.controls)
