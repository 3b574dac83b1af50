"""A llama.cpp server in a child process.

``xllamacpp`` runs llama.cpp's own server in threads. Requests go to its listener on 127.0.0.1, protected by a random
key, and not through the package's direct calls: those return no token ids, which are needed to avoid computing tokens
twice, and cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bactrian.errors import ModelError, Refused, TryAgain
from bactrian.models.http.address import read_address
from bactrian.models.http.pool import Pool
from bactrian.models.http.response import Response, TransportFault
from bactrian.models.http.sse import EventReader
from bactrian.models.http.timeouts import Timeouts
from bactrian.models.local.standstill import PATIENCE, watch_standstill
from bactrian.records.message import Message

_STAND_IN = re.compile("\ufdd0([0-9]+)\ufdd1")
"""Stand-in for the name of a control token inside a message. Unicode reserves these two characters for internal use."""
_CERTAIN = 1e4
"""Added to a token's logit, so that no other token is chosen."""
_FOREVER = 1e9
_LARGEST = 1 << 30
_END = 5.0
"""Seconds to wait for the process to exit."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The output of the server for one prompt."""

    text: str
    tokens: array[int]
    stop: str
    """llama.cpp's reason for the end: ``eos``, ``word`` or ``limit``."""
    cached: int
    """Prompt tokens from the slot's cache."""
    completion: int
    """Tokens generated."""


class LlamaServer:
    """A running server with one model. Create one with ``start_server``."""

    def __init__(
        self,
        worker: asyncio.subprocess.Process,
        address: str,
        key: str,
        where: str,
        controls: Sequence[str],
        patience: float = PATIENCE,
    ) -> None:
        self._worker = worker
        self._patience = patience
        self._stood_still = False
        self._where = where
        # Longest first, so that no name matches as a prefix of another.
        self._controls = sorted(controls, key=len, reverse=True)
        self._control = re.compile("|".join(re.escape(name) for name in self._controls) or r"(?!)")
        self._spelt: dict[str, list[int]] = {}
        self._pool = Pool(
            read_address(address),
            f"Authorization: Bearer {key}",
            # Generation has no time limit; a loopback connection is not lost.
            Timeouts(total=_FOREVER, silence=_FOREVER),
            # The server closes idle connections at any time, and the next request would fail on one.
            keep=False,
        )

    @property
    def is_running(self) -> bool:
        """False once the process has ended."""
        return self._worker.returncode is None

    async def window(self) -> int:
        """Return the number of tokens per slot."""
        response = await self._pool.get("/slots", most=_LARGEST)
        return json.loads(await response.read_all())[0]["n_ctx"]

    def safe(self, said: str) -> str:
        """Replace names of control tokens in ``said`` with stand-ins, which :meth:`tokens` treats as plain text."""
        return self._control.sub(
            lambda found: f"\ufdd0{self._controls.index(found[0])}\ufdd1", said.replace("\ufdd0", "\ufffd")
        )

    async def chat(self, messages: Sequence[Message]) -> str:
        """Render the messages with the model's chat template as one safe text, up to the start of the reply."""
        said = [{"role": message.role, "content": self.safe(message.text)} for message in messages]
        return (await self._post("/apply-template", {"messages": said}))["prompt"]

    async def tokens(self, text: str, *, begins: bool) -> array[int]:
        """Return the token ids of a safe text; with ``begins``, preceded by the model's start token, if any.

        Only the chat template's control tokens are parsed as such, not those inside messages.
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
        """Return the token ids of a control token's name as plain text."""
        if name not in self._spelt:
            body = {"content": name, "add_special": False, "parse_special": False}
            self._spelt[name] = (await self._post("/tokenize", body))["tokens"]
        return self._spelt[name]

    async def text(self, tokens: array[int]) -> str:
        """Return the text of ``tokens``."""
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
        async with watch_standstill(self._worker.pid, self._patience, self._stop_standing):
            return await self._generate(body, on_text)

    async def _generate(self, body: Mapping[str, object], on_text: Callable[[str], None] | None) -> Generated:
        if on_text is None:
            return _parse_generated(await self._post("/completion", body))
        pieces: list[str] = []
        tokens = array("i")
        response = await self._send("/completion", body, stream=True)
        try:
            async for event in _read_events(response):
                if "error" in event:
                    raise self._make_refusal(event)
                tokens.extend(event["tokens"])
                if piece := event["content"]:
                    pieces.append(piece)
                    on_text(piece)
                if event["stop"]:
                    return _parse_generated(event | {"content": "".join(pieces), "tokens": tokens})
        except TransportFault as error:
            raise self._make_crash_error() from error
        finally:
            response.close()
        raise self._make_crash_error()

    async def rank_next(self, prompt: Sequence[int], count: int) -> dict[int, float]:
        """Return the ``count`` most likely tokens after ``prompt``, with their log-probabilities."""
        body = {
            "prompt": list(prompt),
            "n_predict": 1,
            "n_probs": count,
            "cache_prompt": False,
            "temperature": 0,
            # llama.cpp lists nothing if the chosen token ends the reply, or ends within a character. So this letter is
            # chosen; the listed probabilities are those before the bias.
            "logit_bias": [["a", _CERTAIN]],
        }
        answer = await self._post("/completion", body)
        listed = answer.get("completion_probabilities")
        return {one["id"]: one["logprob"] for one in listed[0]["top_logprobs"]} if listed else {}

    async def close(self) -> None:
        """Stop the server and release its memory."""
        await self._pool.close()
        assert self._worker.stdin is not None
        self._worker.stdin.close()  # The process ends with its input, also when this process is killed.
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
                raise self._make_refusal(json.loads(await response.read_all()))
        except TransportFault as error:
            raise self._make_crash_error() from error
        return response

    def _make_crash_error(self) -> TryAgain:
        what = (
            f"llama.cpp did nothing for {self._patience:.0f} s"
            if self._stood_still
            else "llama.cpp has stopped"
        )
        return TryAgain(f"{what} and is started again.", where=self._where)

    def _stop_standing(self) -> None:
        """End the process, which has work and does none; pending requests fail with the reason."""
        self._stood_still = True
        with suppress(ProcessLookupError):
            self._worker.kill()

    def _make_refusal(self, answer: Mapping[str, Any]) -> ModelError:
        return Refused(
            f"llama.cpp refuses the request: {answer['error']['message']}.",
            where=self._where,
            next="Check the sampling parameters and, if there is one, the grammar.",
        )


def _parse_generated(answer: Mapping[str, Any]) -> Generated:
    return Generated(
        text=answer["content"],
        tokens=array("i", answer["tokens"]),
        stop=answer["stop_type"],
        cached=answer["timings"]["cache_n"],
        completion=answer["tokens_predicted"],
    )


async def _read_events(response: Response) -> AsyncGenerator[dict[str, Any]]:
    """Yield the JSON of each event of a stream."""
    events = EventReader()
    while piece := await response.read():
        for data in events.feed(piece):
            yield json.loads(data)
