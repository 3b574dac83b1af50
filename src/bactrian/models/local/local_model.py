"""Local models: GGUF files run by llama.cpp, their slots and cached tokens, and the identity of weights."""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from bactrian.errors import BadReply, Exhausted, TryAgain, explain_os_errors
from bactrian.models import model as base
from bactrian.models.local import weights
from bactrian.models.local.llama_server import Generated, LlamaServer, start_server
from bactrian.models.replies import Speech, explain_misfit
from bactrian.models.text_tools import add_tools_as_text
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish, Usage

# The key-value cache of the local model: assignment of slots, and the exact tokens of each conversation.


Key = tuple[str, str]  # Session and agent


# Agents that do not continue a conversation: their slots are reused first.
_ONE_CALL = ("task_specifier", "task_planner", "lister", "translator")


class Slots:
    """Assigns a server's slots. An agent gets its previous slot, otherwise the least recently used one."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        # Idle slots with their last user, least recently used first.
        self._idle: dict[int, Key | None] = dict.fromkeys(range(count))

    @asynccontextmanager
    async def lend(self, key: Key) -> AsyncGenerator[int]:
        """Wait for a slot and hold it for the ``with`` block."""
        async with self._free:
            previous = (slot for slot, last in self._idle.items() if last == key)
            slot = next(previous, next(iter(self._idle)))
            del self._idle[slot]
            try:
                yield slot
            finally:
                if key[1] in _ONE_CALL:
                    self._idle = {slot: key, **self._idle}
                else:
                    self._idle[slot] = key


@dataclass(frozen=True, slots=True)
class ComputedText:
    """A text and the tokens it was computed as.

    Tokenising a model's reply again may give different tokens, and everything after them would miss the cache.
    """

    text: str
    tokens: array[int]


class PrefixCache:
    """The latest computed texts of the ``limit`` most recent agents."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._computed: dict[Key, Sequence[ComputedText]] = {}

    def find_longest(self, key: Key, text: str) -> ComputedText:
        """Return the longest computed text that is a prefix of ``text``; an empty one if not found."""
        fitting = [known for known in self._computed.get(key, ()) if text.startswith(known.text)]
        return max(fitting, key=lambda known: len(known.text), default=ComputedText("", array("i")))

    def store(self, key: Key, computed: Sequence[ComputedText]) -> None:
        """Replace the computed texts of an agent."""
        self._computed.pop(key, None)
        self._computed[key] = computed
        if len(self._computed) > self._limit:
            del self._computed[next(iter(self._computed))]


WINDOW = 4096  # Tokens of one agent's conversation, unless the model was trained with fewer

_MOST_FALLS = 3
_REMEMBERED = 1024  # Agents whose exact tokens are remembered, at four bytes a token
_SEEDS = 2**31  # llama.cpp accepts seeds below this number

_FINISH: dict[str, Finish] = {"eos": "stop", "word": "stop", "limit": "length"}

_BUILT_IN_SAMPLING: dict[str, object] = {"temperature": 0.3, "top_p": 0.9}
# The built-in model needs the DRY sampler against repetition, because DRY penalizes only verbatim repetition.
# A repeat penalty would suppress the topic's own words, and a model this small then loses the topic.
_NO_ECHO: dict[str, object] = {"dry_multiplier": 0.8, "dry_allowed_length": 3, "dry_penalty_last_n": WINDOW}


@dataclass(frozen=True, slots=True)
class _Ready:
    """State of a loaded model."""

    llama: LlamaServer
    window: int
    slots: Slots
    prefixes: PrefixCache
    name: str


class LocalModel:
    """A model on this computer.

    The weights are downloaded and loaded at the first call; a crashed server is restarted at the next call. Without
    ``path``, it is the built-in model, and ``progress`` receives the progress of its download. ``fetch`` returns
    the path of other weights and reports its progress; it runs in a thread. ``slots`` conversations are computed in
    parallel, each with up to ``window`` tokens. Each agent's conversation stays in its slot, so that only new text
    is computed.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        slots: int = 4,
        window: int = WINDOW,
        progress: weights.Progress | None = None,
        fetch: Callable[[weights.Progress], Path] | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name or ("local" if path is None else f"local:{path}")
        self.traits = base.BUILT_IN_MODEL if path is None and fetch is None else base.LOCAL_WEIGHTS
        self._fetch = fetch or partial(weights.fetch_weights, weights.BUILT_IN, weights.find_cache_folder())
        self._path = path
        self._slots = slots
        self._window = window
        self._progress = progress
        self._loading = asyncio.Lock()
        self._ready: _Ready | None = None
        self._has_loaded = False
        self._falls = 0

    async def reply(self, request: base.Request) -> base.Reply:
        """Answer ``request``. Of several replies, only the first is streamed.

        Raises:
            BadReply: the reply does not follow the response format.
            ContextFull: prompt and reply do not fit into a slot.
            InputError: the model's file cannot be used, or the cache folder cannot be written.
            MissingExtra: the extra ``local`` is not installed.
            ModelError: the built-in model cannot be downloaded, or llama.cpp refuses the request.
        """
        return await add_tools_as_text(self._reply, request)

    async def _reply(self, request: base.Request) -> base.Reply:
        ready = await self._load()
        key = (request.session, request.agent)
        text = await ready.llama.chat(request.messages)
        # Tokens that were computed before are reused, and only the rest is tokenised.
        known = ready.prefixes.find_longest(key, text)
        prompt = known.tokens + await ready.llama.tokens(text[len(known.text) :], begins=not known.text)
        room = base.find_reply_length(request.sampling.max_tokens or 1, len(prompt), ready.window, self.name)
        if request.sampling.max_tokens is not None:
            request = replace(request, sampling=replace(request.sampling, max_tokens=room))
        speech, begun = Speech(request.on_text, request.on_restart), perf_counter()
        async with ready.slots.lend(key) as slot:
            results = [
                await ready.llama.generate(
                    prompt, slot, self._build_settings(request, number), speech.add if number == 0 else None
                )
                for number in range(request.n)
            ]
        speech.end()
        self._falls = 0
        computed = [await _make_computed_text(ready.llama, text, prompt, result) for result in results]
        ready.prefixes.store(key, computed)
        completion = sum(result.completion for result in results)
        return base.Reply(
            choices=tuple(self._make_choice(result, request.response_format) for result in results),
            usage=Usage(len(prompt), completion, cached=results[0].cached),
            model=ready.name,
            raw="\n".join(result.text for result in results).encode(),
            first_token=speech.begun and speech.begun - begun,
        )

    async def load(self) -> None:
        """Load the model now, to detect errors early. Raises the errors of :meth:`reply`."""
        with suppress(TryAgain):  # the server crashed; the first call restarts it
            await self._load()

    async def close(self) -> None:
        """Unload the model."""
        if self._ready is not None:
            await self._ready.llama.close()
            self._ready = None

    async def _load(self) -> _Ready:
        async with self._loading:
            if self._ready is not None and not self._ready.llama.is_running:
                await self._ready.llama.close()
                self._ready = None
                self._falls += 1
            if self._falls > _MOST_FALLS:
                raise Exhausted(
                    f"llama.cpp has stopped {self._falls} times in a row without an answer.",
                    where=self.name,
                    next="There may be too little memory: reduce the concurrency or use a smaller model, and run the "
                    "same command.",
                )
            if self._ready is None:
                path = self._path
                if path is None:
                    path = await weights.fetch_in_thread(self._fetch, self._progress)
                try:
                    llama = await start_server(path, slots=self._slots, window=self._window)
                except Exhausted as error:
                    if not self._has_loaded:
                        raise
                    # It was loaded before: another process uses the memory now, or has killed the server.
                    self._falls += 1
                    raise TryAgain(error.what, where=error.where, next=error.next) from error
                self._has_loaded = True
                self._ready = _Ready(
                    llama, await llama.window(), Slots(self._slots), PrefixCache(_REMEMBERED), path.stem
                )
            return self._ready

    def _build_settings(self, request: base.Request, number: int) -> dict[str, object]:
        sampling = request.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=(sampling.seed + number) % _SEEDS)
        settings: dict[str, object] = {}
        if self.traits.small:
            settings |= _BUILT_IN_SAMPLING | (_NO_ECHO if sampling.repeat_penalty is None else {})
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "n_predict": sampling.max_tokens,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
            "repeat_penalty": sampling.repeat_penalty,
        }
        settings |= {name: value for name, value in parameters.items() if value is not None}
        if request.response_format is not None and request.response_format.grammar:
            settings["grammar"] = request.response_format.grammar
        elif request.response_format is not None:
            settings["json_schema"] = dict(request.response_format.schema)
        return settings

    def _make_choice(self, result: Generated, form: base.ResponseFormat | None) -> base.ReplyChoice:
        choice = base.make_choice(result.text, finish := _FINISH.get(result.stop, "other"))
        if form is not None and not form.grammar:
            try:
                text = form.read(choice.text)
                clean = Text(clean_text(text))
                choice = replace(choice, text=clean, lossy=choice.lossy or clean != text)
            except ValueError as error:
                raise BadReply(
                    f"The reply does not follow the response format {form.name}"
                    + (
                        ": it was cut off at max_tokens."
                        if finish == "length"
                        else f": {explain_misfit(error)}."
                    ),
                    where=self.name,
                    next="Allow longer replies.",
                    sample=choice.text.encode(),
                ) from error
        return choice


async def _make_computed_text(
    llama: LlamaServer, prompt: str, tokens: array[int], result: Generated
) -> ComputedText:
    """Return prompt and reply together, as far as the reply's tokens match its text exactly.

    There are more tokens than text if an end token, a stop word or an incomplete character was cut off.
    """
    shown = result.tokens[:-1] if result.stop == "eos" else result.tokens
    if await llama.text(shown) != result.text:
        return ComputedText(prompt, tokens)
    return ComputedText(prompt + llama.safe(result.text), tokens + shown)


# Identifies the weights of a model on this computer.


def identify_weights(model: str) -> str | None:
    """Return the hash of the weights of ``local:PATH`` or ``hf:FOLDER``; None for any other model.

    Raises:
        InputError: the file cannot be read.
    """
    kind, _, name = model.partition(":")
    path = Path(name).expanduser()
    if kind == "hf" and path.is_dir():
        return f"sha256:{hash_weights(path)}"
    if kind != "local" or not path.is_file():
        return None
    action = "Check the file's permissions."
    with explain_os_errors("The weights cannot be read", name, action), path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def hash_weights(folder: Path) -> str:
    """Return one SHA-256 over all files of weights in a folder of transformers."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
