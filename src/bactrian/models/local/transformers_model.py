# pyright: basic, reportMissingImports=false
"""Models in a folder of transformers, run by PyTorch in this process: language models and sequence-to-sequence ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from bactrian.errors import ContextFull, Exhausted, InputError, Refused, import_optional
from bactrian.models.local.chat_text import encode_protected, protect_controls, write_source
from bactrian.models.model import Reply, Request, Traits, find_reply_length, make_choice
from bactrian.models.replies import Speech
from bactrian.models.text_tools import add_tools_as_text
from bactrian.records.turn import Message, Sampling, Usage

WINDOW = 4096  # Tokens of one agent's conversation, unless the model takes fewer
TRAITS = Traits("none", in_process=True, priced=False)
_SEEDS = 2**31
_FILES = ("config.json", "tokenizer_config.json")


def check_folder(folder: Path) -> None:
    """Raise InputError if ``folder`` is no model of transformers with safetensors."""
    missing = [name for name in _FILES if not (folder / name).is_file()]
    missing += [] if any(folder.glob("*.safetensors")) else ["*.safetensors"]
    if missing:
        raise InputError(
            f"This is no folder of a transformers model: it has no {missing[0]}.",
            where=str(folder),
            next="Name a folder that has the model and its tokenizer, such as hf:tuned/01-conversations/model.",
        )


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    """A loaded model and its tokenizer."""

    torch: Any
    transformers: Any
    model: Any
    tokenizer: Any
    encoder_decoder: bool
    window: int
    controls: tuple[str, ...]

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens that the model reads before its reply."""
        plain = [{"role": message.role, "content": message.text} for message in messages]
        if self.encoder_decoder:
            return self.tokenizer.encode(write_source(plain))
        safe = [
            {**message, "content": protect_controls(message["content"], self.controls)} for message in plain
        ]
        text = self.tokenizer.apply_chat_template(safe, tokenize=False, add_generation_prompt=True)
        start = self.tokenizer.encode("")[:1]
        tokens = encode_protected(text, self.controls, self._encode_plain, self._spell)
        return (
            tokens
            if not start or start == tokens[:1] or start != [self.tokenizer.bos_token_id]
            else start + tokens
        )

    def _encode_plain(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _spell(self, name: str) -> list[int]:
        return self.tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)


class TransformersModel:
    """A folder of transformers weights, ``hf:FOLDER``: on a GPU if there is one, otherwise on the processor.

    It is loaded at the first call. One reply is computed at a time, from the whole conversation. A sequence-to-sequence
    model reads the conversation as ``bactrian train`` wrote it. Only safetensors are
    read, and no code of the folder runs.
    """

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        self.name = name or f"hf:{folder}"
        self.traits = TRAITS
        self._folder = folder
        self._ready: _LoadedModel | None = None
        self._busy = asyncio.Lock()

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``. Of several replies, only the first is streamed.

        Raises:
            ContextFull: prompt and reply do not fit into the model's window.
            InputError: the folder cannot be used.
            MissingExtra: the extra ``train`` is not installed.
            ModelError: the template refuses the messages, or there is too little memory.
        """
        return await add_tools_as_text(self._reply, request)

    async def load(self) -> None:
        """Load the model now, to detect errors early. Raises the errors of :meth:`reply`."""
        async with self._busy:
            await self._load()

    async def close(self) -> None:
        """Unload the model."""
        self._ready = None

    async def _load(self) -> _LoadedModel:
        if self._ready is None:
            self._ready = await asyncio.to_thread(_load, self._folder)
        return self._ready

    async def _reply(self, request: Request) -> Reply:
        loop, cancelled = asyncio.get_running_loop(), threading.Event()
        speech, begun = Speech(request.on_text, request.on_restart), perf_counter()

        def pass_on(piece: str) -> None:
            loop.call_soon_threadsafe(speech.add, piece)

        async with self._busy:
            ready = await self._load()
            thread = asyncio.ensure_future(
                asyncio.to_thread(self._generate, ready, request, pass_on, cancelled)
            )
            try:
                prompt, texts, completion = await asyncio.shield(thread)
            except asyncio.CancelledError:
                cancelled.set()  # The thread notices it after the next token: no other reply begins before that.
                await asyncio.wait([thread])
                raise
        speech.end()
        return Reply(
            choices=tuple(make_choice(text, "stop" if ended else "length") for text, ended in texts),
            usage=Usage(prompt, completion),
            model=self._folder.name,
            raw="\n".join(text for text, _ in texts).encode(),
            first_token=speech.begun and speech.begun - begun,
        )

    def _generate(
        self,
        ready: _LoadedModel,
        request: Request,
        pass_on: Callable[[str], None],
        cancelled: threading.Event,
    ) -> tuple[int, list[tuple[str, bool]], int]:
        """Return the number of tokens of the prompt, the texts and whether each ended by itself, and their tokens."""
        try:
            prompt = ready.encode(request.messages)
        except Exception as error:  # A template is a program of the folder and may raise anything.
            raise Refused(
                f"The model's chat template cannot write these messages: {error}.",
                where=self.name,
                next="Models without a system role, for example, cannot play with a system prompt.",
            ) from error
        longest = request.sampling.max_tokens or ready.window
        if ready.encoder_decoder:
            if len(prompt) > ready.window:
                raise ContextFull(
                    f"The request needs {len(prompt):,} tokens; the window has {ready.window:,}.",
                    where=self.name,
                )
            room = min(longest, ready.window)
        else:
            room = find_reply_length(longest, len(prompt), ready.window, self.name)
        texts: list[tuple[str, bool]] = []
        completion = 0
        for number in range(request.n):
            sampling = request.sampling
            if sampling.seed is not None:
                sampling = replace(sampling, seed=(sampling.seed + number) % _SEEDS)
            tokens = self._run(ready, prompt, room, sampling, pass_on if number == 0 else None, cancelled)
            text = ready.tokenizer.decode(tokens, skip_special_tokens=True)
            cut = min((place for stop in sampling.stop if (place := text.find(stop)) >= 0), default=None)
            texts.append((text if cut is None else text[:cut], cut is not None or len(tokens) < room))
            completion += len(tokens)
        return len(prompt), texts, completion

    def _run(
        self,
        ready: _LoadedModel,
        prompt: list[int],
        room: int,
        sampling: Sampling,
        pass_on: Callable[[str], None] | None,
        cancelled: threading.Event,
    ) -> list[int]:
        """Return the tokens of one reply."""
        torch, transformers = ready.torch, ready.transformers

        class Cancelled(transformers.StoppingCriteria):  # pyright: ignore[reportUntypedBaseClass]
            def __call__(self, ids: Any, _scores: Any, **_more: Any) -> Any:
                return torch.full((ids.shape[0],), cancelled.is_set(), device=ids.device, dtype=torch.bool)

        class ReplyStreamer(transformers.TextStreamer):  # pyright: ignore[reportUntypedBaseClass]
            def on_finalized_text(self, text: str, **_more: Any) -> None:
                if text and pass_on is not None:
                    pass_on(text)

        settings: dict[str, Any] = {"max_new_tokens": room, "do_sample": sampling.temperature != 0}
        if sampling.temperature:
            settings["temperature"] = sampling.temperature
        if sampling.temperature != 0 and sampling.top_p is not None:
            settings["top_p"] = sampling.top_p
        if sampling.repeat_penalty is not None:
            settings["repetition_penalty"] = sampling.repeat_penalty
        if sampling.stop:
            settings |= {"stop_strings": list(sampling.stop), "tokenizer": ready.tokenizer}
        if pass_on is not None and not sampling.stop:  # A stop word would be shown before it is noticed.
            settings["streamer"] = ReplyStreamer(
                ready.tokenizer, skip_prompt=not ready.encoder_decoder, skip_special_tokens=True
            )
        ids = torch.tensor([prompt], device=ready.model.device)
        try:
            with torch.inference_mode(), torch.random.fork_rng():
                if sampling.seed is not None:
                    torch.manual_seed(sampling.seed)
                made = ready.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    stopping_criteria=transformers.StoppingCriteriaList([Cancelled()]),
                    **settings,
                )
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise Exhausted(
                "There is too little memory for this reply.", where=self.name, next="Use a smaller model."
            ) from error
        # The decoder of a sequence-to-sequence model begins with a token of its own, and does not repeat the prompt.
        return made[0].tolist()[1 if ready.encoder_decoder else len(prompt) :]


def _load(folder: Path) -> _LoadedModel:
    """Load a model.

    Raises:
        InputError: the folder cannot be used.
        MissingExtra: PyTorch or transformers is not installed.
    """
    check_folder(folder)
    torch = import_optional("torch", "train", "A folder of transformers")
    transformers = import_optional("transformers", "train", "A folder of transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    has_gpu = torch.cuda.is_available()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
        kind = transformers.AutoModelForSeq2SeqLM if encoder_decoder else transformers.AutoModelForCausalLM
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype="auto" if has_gpu else torch.float32
        )
    except (
        Exception
    ) as error:  # The libraries raise many kinds for a file that is cut off, missing or foreign.
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"The model cannot be loaded: {text}",
            where=str(folder),
            next="Name a folder with config.json, safetensors and a tokenizer.",
        ) from error
    if not encoder_decoder and not tokenizer.chat_template:
        raise InputError(
            "The model has no chat template, so nothing says how messages are written to it.",
            where=str(folder),
            next="Use a chat model (often named -Instruct or -Chat), or put its chat_template.jinja into the folder.",
        )
    stated = getattr(config, "max_position_embeddings", None)
    controls = tuple(
        token.content for token in tokenizer.added_tokens_decoder.values() if token.special and token.content
    )
    model = model.to("cuda" if has_gpu else "cpu").eval()
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    window = min(WINDOW, stated) if isinstance(stated, int) else WINDOW
    return _LoadedModel(torch, transformers, model, tokenizer, encoder_decoder, window, controls)
