"""Starts a llama.cpp server in a child process, and notices when it hangs.

``xllamacpp`` runs llama.cpp's own server in threads. Requests go to its listener on 127.0.0.1, protected by a random
key, and not through the package's direct calls: those return no token ids, which are needed to avoid computing tokens
twice, and cannot be cancelled.
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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, Exhausted, InputError, MissingExtra, ModelError, Refused, TryAgain
from bactrian.models.http import Pool, Timeouts, read_address
from bactrian.models.http_response import EventReader, Response, TransportFault
from bactrian.models.local.weights import read_info
from bactrian.records.turn import Message

# Notices a process that has work and does nothing, as after a deadlock.
#
# The processor's time tells it from a process that is only slow: on a busy computer even a process of the lowest
# priority receives some, and a reply of a large model may take an hour.


PATIENCE = 120.0  # Seconds between two looks at the processor's time
_LEAST = 0.05  # Seconds of the processor's time in between that show that a process works


def read_processor_seconds(pid: int) -> float | None:
    """Return how long the processor has worked for all threads of a process; None if the system does not tell."""
    with suppress(OSError, IndexError, ValueError):
        # The name of the program stands in parentheses and may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


# Stand-in for the name of a control token inside a message. Unicode reserves these two characters for
# internal use.
_STAND_IN = re.compile("\ufdd0([0-9]+)\ufdd1")
_CERTAIN = 1e4  # Added to a token's logit, so that no other token is chosen
_FOREVER = 1e9
_LARGEST = 1 << 30
_END = 5.0  # Seconds to wait for the process to exit


@dataclass(frozen=True, slots=True)
class Generated:
    """The output of the server for one prompt."""

    text: str
    tokens: array[int]
    stop: str  # llama.cpp's reason for the end: `eos`, `word` or `limit`
    cached: int  # Prompt tokens from the slot's cache
    completion: int  # Tokens generated


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
        self._stood_still = asyncio.Event()
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
        async with self._watch():
            response = await self._pool.get("/slots", most=_LARGEST)
            return json.loads(await response.read_all())[0]["n_ctx"]

    def safe(self, text: str) -> str:
        """Replace names of control tokens in ``text`` with stand-ins, which :meth:`tokens` treats as plain text."""
        return self._control.sub(
            lambda match: f"\ufdd0{self._controls.index(match[0])}\ufdd1", text.replace("\ufdd0", "\ufffd")
        )

    async def chat(self, messages: Sequence[Message]) -> str:
        """Render the messages with the model's chat template as one safe text, up to the start of the reply."""
        plain = [{"role": message.role, "content": self.safe(message.text)} for message in messages]
        return (await self._post("/apply-template", {"messages": plain}))["prompt"]

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
        async with self._watch():
            return await self._generate(body, on_text)

    @asynccontextmanager
    async def _watch(self) -> AsyncGenerator[None]:
        """End the process if it stands still while it has work; pending requests fail with the reason."""
        watch = asyncio.create_task(_end_if_still(self._worker, self._patience, self._stood_still))
        try:
            yield
        finally:
            watch.cancel()

    async def _generate(self, body: Mapping[str, object], on_text: Callable[[str], None] | None) -> Generated:
        if on_text is None:
            return _parse_generated(await self._ask("/completion", body))
        pieces: list[str] = []
        tokens = array("i")
        response = await self._send("/completion", body, stream=True)
        events = EventReader()
        try:
            while received := await response.read():
                for event in map(json.loads, events.feed(received)):
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
        listed = (await self._post("/completion", body)).get("completion_probabilities")
        return {token["id"]: token["logprob"] for token in listed[0]["top_logprobs"]} if listed else {}

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
        async with self._watch():
            return await self._ask(path, body)

    async def _ask(self, path: str, body: Mapping[str, object]) -> Any:
        return json.loads(await (await self._send(path, body)).read_all())

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
        if self._stood_still.is_set():
            return _make_stillness_error(self._patience, self._where)
        return TryAgain("llama.cpp has stopped and is started again.", where=self._where)

    def _make_refusal(self, answer: Mapping[str, Any]) -> ModelError:
        return Refused(
            f"llama.cpp refuses the request: {answer['error']['message']}.",
            where=self._where,
            next="Check the sampling parameters and, if there is one, the grammar.",
        )


async def _end_if_still(
    worker: asyncio.subprocess.Process, patience: float, stood_still: asyncio.Event
) -> None:
    """End a process once it has used no processor time for a while, and set ``stood_still``.

    Nothing is watched where the system does not tell the time of another process, as on macOS.
    """
    before = read_processor_seconds(worker.pid)
    while before is not None:
        await asyncio.sleep(patience)
        now = read_processor_seconds(worker.pid)
        if now is not None and now - before < _LEAST:
            stood_still.set()
            with suppress(ProcessLookupError):
                worker.kill()
            return
        before = now


def _make_stillness_error(patience: float, where: str) -> TryAgain:
    return TryAgain(f"llama.cpp did nothing for {patience:.0f} s and is started again.", where=where)


def _parse_generated(answer: Mapping[str, Any]) -> Generated:
    return Generated(
        text=answer["content"],
        tokens=array("i", answer["tokens"]),
        stop=answer["stop_type"],
        cached=answer["timings"]["cache_n"],
        completion=answer["tokens_predicted"],
    )


# Starts a llama.cpp server in a child process.


async def start_server(path: Path, *, slots: int, window: int, patience: float = PATIENCE) -> LlamaServer:
    """Load the model at ``path`` with ``slots`` slots of ``window`` tokens, at most as many as it was trained with.

    A server that does nothing for ``patience`` seconds, although it loads or has work, is stopped.

    Raises:
        InputError: the file is missing or not a complete GGUF file, or the system lacks a library.
        MissingExtra: ``xllamacpp`` is not installed.
        ModelError: the model cannot be loaded.
        TryAgain: it stood still while it was loaded.
    """
    info = await asyncio.to_thread(read_info, path)
    window = min(window, info.window)
    if find_spec("xllamacpp") is None:
        raise MissingExtra("local", "A model on this computer")
    key = secrets.token_urlsafe()
    worker = await asyncio.create_subprocess_exec(
        # -P: a folder named bactrian in the working directory must not shadow this package.
        *(sys.executable, "-P", "-m", "bactrian.models.local.server_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must reach only this process, which may finish the turns in flight.
        # Its threads spin while they wait for each other. On shared cores they block the thread that they wait for,
        # especially while it scans the vocabulary for tokens that a grammar allows.
        env={"OMP_WAIT_POLICY": "passive", **os.environ},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    stood_still = asyncio.Event()
    watch = asyncio.create_task(_end_if_still(worker, patience, stood_still))
    try:
        # The key is sent over stdin, because other processes can read arguments and environment.
        order = {"path": str(path), "slots": slots, "window": window, "key": key}
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        line = await worker.stdout.readline()
    except BaseException:
        worker.kill()
        raise
    finally:
        watch.cancel()
    answer: dict[str, str] = json.loads(line or b"{}")
    if "address" not in answer:
        await worker.wait()
        if stood_still.is_set():
            raise _make_stillness_error(patience, str(path))
        raise _explain_failure(path, slots, window, answer.get("unusable"))
    return LlamaServer(worker, answer["address"], key, str(path), info.controls, patience)


def _explain_failure(path: Path, slots: int, window: int, unusable: str | None) -> BactrianError:
    if unusable is None:  # llama.cpp gives no reason.
        return Exhausted(
            "llama.cpp cannot load the model: its file is damaged, or there is not enough memory "
            f"for {slots} slots of {window:,} tokens.",
            where=str(path),
            next="Free some memory, reduce the concurrency, or download the file again.",
        )
    return InputError(
        f"llama.cpp cannot be started on this system: {unusable}.",
        next="Install the library: apt-get install libgomp1, or dnf install libgomp."
        if "libgomp" in unusable
        else "Install the library that it names, or another version: pip install --force-reinstall xllamacpp",
    )
