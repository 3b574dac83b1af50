"""A llama.cpp server inside this process.

``xllamacpp`` runs llama.cpp's own server in threads. It is spoken to over its listener on 127.0.0.1, guarded
by a key that nobody else has, and not by the package's direct calls: those tell nothing of token ids, which are
needed to compute no token twice, and cannot be stopped half-way.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bactrian.errors import MissingExtra, ModelError
from bactrian.models.address import read_address
from bactrian.models.connection import Response, TransportFault
from bactrian.models.gguf import trained_window
from bactrian.models.limits import Limits
from bactrian.models.pool import Pool
from bactrian.models.sse import Events
from bactrian.records.message import Message

_SILENT = -1
_FOREVER = 1e9
_LARGEST = 1 << 30
_SHELF_MIB = 2048
"""Memory for what was computed for agents whose slot another one needs; llama.cpp restores it from there."""


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


class Llama:
    """A running server with one model. Make one with :func:`start`."""

    def __init__(self, server: Any, key: str, where: str) -> None:
        self._server = server
        self._where = where
        self._pool = Pool(
            read_address(server.listening_address),
            f"Bearer {key}",
            # A generation may take as long as it takes; there is no connection to lose in one's own process.
            Limits(total=_FOREVER, silence=_FOREVER),
            # The server closes kept connections at moments of its own, and the next request would hit one.
            keep=False,
        )

    async def window(self) -> int:
        """Tokens that one slot holds."""
        # /props would tell it too, but this answer comes from the main loop and so shows that it runs: a server
        # that is dropped before it does waits for its end for ever.
        response = await self._pool.get("/slots", most=_LARGEST)
        return json.loads(await response.read_all())[0]["n_ctx"]

    async def chat(self, messages: Sequence[Message]) -> str:
        """The messages as one text, by the model's own chat template, up to where its reply begins."""
        said = [{"role": message.role, "content": message.text} for message in messages]
        return (await self._post("/apply-template", {"messages": said}))["prompt"]

    async def tokens(self, text: str, *, begins: bool) -> array[int]:
        """Token ids of ``text``; with ``begins``, after the token that opens a prompt, if there is one."""
        body = {"content": text, "add_special": begins, "parse_special": True}
        return array("i", (await self._post("/tokenize", body))["tokens"])

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
            "stream": True,
        }
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
                    if on_text is not None:
                        on_text(piece)
                if event["stop"]:
                    return Generated(
                        text="".join(pieces),
                        tokens=tokens,
                        stop=event["stop_type"],
                        cached=event["timings"]["cache_n"],
                        completion=event["tokens_predicted"],
                    )
        except TransportFault:
            pass  # What is said of it stands below.
        finally:
            response.close()
        raise ModelError(
            "llama.cpp stopped in the middle of a reply.", where=self._where, next="Run the command again."
        )

    async def close(self) -> None:
        """Stop the server and give its memory back."""
        await self._pool.close()
        await asyncio.to_thread(self._drop)

    def _drop(self) -> None:
        # The server ends with its last reference, and waits for its threads.
        self._server = None

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
            raise ModelError(
                "llama.cpp does not answer.", where=self._where, next="Run the command again."
            ) from error
        return response

    def _refused(self, answer: Mapping[str, Any]) -> ModelError:
        return ModelError(
            f"llama.cpp refuses the request: {answer['error']['message']}.",
            where=self._where,
            next="Check the sampling parameters and, if there is one, the grammar.",
        )


async def _events(response: Response) -> AsyncGenerator[dict[str, Any]]:
    """The JSON of each event of a stream."""
    events = Events()
    while piece := await response.read():
        for data in events.feed(piece):
            yield json.loads(data)


async def start(path: Path, *, slots: int, window: int) -> Llama:
    """Load the model at ``path``, with ``slots`` places of ``window`` tokens each, or of all it was trained for.

    Raises:
        InputError: the file is missing, or is no whole GGUF file.
        MissingExtra: ``xllamacpp`` is not installed.
        ModelError: the model cannot be loaded.
    """
    window = min(window, await asyncio.to_thread(trained_window, path))
    try:
        library = import_module("xllamacpp")
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "A model on this computer") from error
    key = secrets.token_urlsafe()
    try:
        server = await asyncio.to_thread(_load, library, path, slots, window, key)
    except RuntimeError as error:
        # llama.cpp gives no reason.
        raise ModelError(
            "llama.cpp cannot load the model: its file is cut short, or there is not enough memory "
            f"for {slots} slots of {window:,} tokens.",
            where=str(path),
            next="Compare the file's size with the original's, or use fewer slots or a smaller window.",
        ) from error
    return Llama(server, key, str(path))


def _load(library: Any, path: Path, slots: int, window: int, key: str) -> Any:
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_parallel = slots
    parameters.n_ctx = slots * window
    parameters.fit_params = False  # a window that does not fit is an error, not a smaller window
    parameters.cache_ram_mib = _SHELF_MIB
    # Threads wait for each other several hundred times a token. With one for each core, two busy neighbours slow
    # two cores from 50 tokens a second to 2; with half as many, from 38 to 12. Prompts and several slots at once
    # have more to do between the waits.
    cores = os.cpu_count() or 2
    parameters.cpuparams.n_threads = max(1, cores // 2)
    parameters.cpuparams_batch.n_threads = cores
    parameters.verbosity = _SILENT  # its lowest level writes to stdout, where only data belongs
    parameters.warmup = False
    parameters.hostnames = ["127.0.0.1"]
    parameters.api_keys = [key]
    parameters.ui = False
    return library.Server(parameters)
