# pyright: basic, reportMissingImports=false
"""Opens the base model and its tokenizer, and writes all data as tokens in Arrow files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as ArrowSequence
from datasets.arrow_writer import ArrowWriter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from bactrian.errors import InputError, Refused
from bactrian.models.hub_access import import_hub
from bactrian.models.local.chat_text import encode_protected, write_source
from bactrian.models.local.local_model import hash_weights
from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from bactrian.train.training_data import ChatMessage, read_prepared
from bactrian.train.training_examples import IGNORED, CutCounts, Cutter, Example, cut_conversation, is_empty
from bactrian.train.training_folder import StageFolder, list_stage_folders, read_plan, weigh_model, write_json
from bactrian.train.training_recipe import (
    BUILT_IN_BASE,
    NEW,
    Base,
    NewModel,
    Training,
    TrainRecipe,
    read_template,
)
from bactrian.train.worker.gguf_file import can_write, read_metadata, write_gguf
from bactrian.train.worker.model_files import find_machine, is_encoder_decoder
from bactrian.train.worker.worker_events import Emit

# Opens the base model of a training as a folder of transformers, from wherever it comes, or makes one from nothing.


CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# ChatML, which llama.cpp knows. It adds no system prompt.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def make_new_model(spec: NewModel, texts: Iterable[str], seed: int, folder: Path) -> None:
    """Write a new model and its tokenizer, trained on ``texts``, to ``folder``."""
    tokenizer = _train_tokenizer(texts, spec.vocabulary, closes=spec.kind == "t5")
    torch.manual_seed(seed)
    if spec.kind == "t5":
        shape: dict[str, Any] = {
            "d_model": spec.width,
            "d_ff": spec.width * 3,
            "d_kv": spec.width // spec.heads,
        }
        shape |= {"num_layers": spec.layers, "num_heads": spec.heads, "dropout_rate": 0.0}
        shape |= {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 2}
        made = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **shape))
        # Untrained, it would say nothing but control tokens, and an empty answer is none.
        made.generation_config.suppress_tokens, made.generation_config.begin_suppress_tokens = [0, 1], [2]
        made.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.width,
        intermediate_size=spec.width * 3,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        max_position_embeddings=spec.window,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _train_tokenizer(texts: Iterable[str], vocabulary: int, *, closes: bool) -> PreTrainedTokenizerFast:
    """Train byte-level BPE with GPT-2's way of dividing words, which llama.cpp knows too.

    One that ``closes`` puts the end token after each text, as the encoder of T5 reads it.
    """
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(CONTROLS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    if closes:
        raw.post_processor = processors.TemplateProcessing(
            single="$A <|im_end|>", special_tokens=[("<|im_end|>", 2)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<|im_start|>",  # noqa: S106  names of tokens
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|im_end|>",  # noqa: S106
        unk_token="<|endoftext|>",  # noqa: S106
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


_LARGEST_COPY = 4_000_000_000  # Bytes of a base model of which a GGUF copy is written without being asked


@dataclass(frozen=True, slots=True)
class OpenBase:
    """The base model."""

    model: Path  # Folder of transformers
    gguf: Path | None
    source: Path | None  # The GGUF file that it was converted from
    name: str
    sha256: str
    license: str | None


def open_base(recipe: TrainRecipe, stage: StageFolder, texts: Iterable[str]) -> OpenBase:
    """Fetch, convert or make the base model.

    Raises:
        InputError: it cannot be read, or has a format that training cannot use.
        ModelError: it cannot be downloaded.
    """
    base = recipe.base
    if base.new is not None:
        folder, gguf = stage.folder / "model", stage.folder / "model.gguf"
        make_new_model(base.new, texts, recipe.training.seed, folder)
        if has_gguf := base.new.kind == "llama":
            write_gguf(folder, gguf, "f16")
        return OpenBase(folder, gguf if has_gguf else None, None, NEW, hash_weights(folder), None)
    assert base.model is not None
    path = Path(base.model)
    if base.model == BUILT_IN_BASE:
        path = fetch_weights(BUILT_IN, find_cache_folder())
        return _convert(path, "SmolLM2-135M-Instruct (built-in)", base, stage)
    if path.suffix == ".gguf" and not path.is_file():
        raise InputError("There is no such file.", where=base.model, next="Check base.model.")
    if path.is_file():
        return _convert(path, path.name, base, stage)
    folder = path if path.is_dir() else _download(base.model, base.revision)
    if not (folder / "config.json").is_file():
        raise InputError(
            "This folder contains no model of transformers: it has no config.json.",
            where=base.model,
            next="Check base.model.",
        )
    gguf = stage.folder / "model.gguf"
    if can_write(folder) and weigh_model(folder) <= _LARGEST_COPY:
        write_gguf(folder, gguf, "f16", template=base.template and read_template(base.template))
    name = base.model if base.revision is None else f"{base.model} at {base.revision}"
    return OpenBase(
        folder.resolve(),
        gguf if gguf.exists() else None,
        None,
        name,
        hash_weights(folder),
        base.license or _read_license(folder),
    )


def _convert(path: Path, name: str, base: Base, stage: StageFolder) -> OpenBase:
    """Dequantise a GGUF file once, and keep the result in the cache folder."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    cached = find_cache_folder() / f"transformers-{digest[:16]}"
    if not (cached / "model.gguf").exists():
        _convert_to(path, cached)
    stated = read_metadata(path).get("general.license")
    gguf = cached / "model.gguf"
    if base.template is not None:
        gguf = stage.folder / "model.gguf"
        write_gguf(cached / "model", gguf, "f16", source=path, template=read_template(base.template))
    terms = base.license or (str(stated) if stated else None)
    return OpenBase(cached / "model", gguf, path, name, digest, terms)


def _convert_to(path: Path, cached: Path) -> None:
    needed = 12 * path.stat().st_size
    cached.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cached.parent).free
    if free < needed:
        raise Refused(
            f"Converting the model needs up to {needed / 1e6:,.0f} MB of disk space, "
            f"and {free / 1e6:,.0f} MB are free.",
            where=str(cached.parent),
            next="Free some space, or set BACTRIAN_CACHE to another folder.",
        )
    aside = Path(tempfile.mkdtemp(dir=cached.parent, prefix="convert-"))
    try:
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
            model = AutoModelForCausalLM.from_pretrained(
                str(path.parent),
                gguf_file=path.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.bfloat16,
            )
        except (ValueError, KeyError, NotImplementedError, TypeError, RuntimeError) as error:
            raise InputError(
                f"This GGUF file cannot be dequantised for training: {str(error).splitlines()[0]}",
                where=str(path),
                next="Use the model's original weights: a folder of transformers, or its name on the Hub.",
            ) from error
        model.save_pretrained(aside / "model")
        _restore_digits(tokenizer, path)
        tokenizer.save_pretrained(aside / "model")
        del model
        write_gguf(aside / "model", aside / "model.gguf", "f16", source=path)
        aside.chmod(0o755)
        with suppress(OSError):  # another process was faster
            aside.rename(cached)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _restore_digits(tokenizer: Any, path: Path) -> None:
    """Divide text as llama.cpp does: transformers does not read that the digits of a GGUF file stand alone.

    Without it, two newlines before a digit are other tokens in a training than in a conversation.
    """
    if read_metadata(path).get("tokenizer.ggml.pre") == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])


def _download(name: str, revision: str | None) -> Path:
    """Fetch a model from the Hub, or from its cache."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    hub: Any = import_hub("Fetching a model from the Hugging Face hub")
    try:
        return Path(
            hub.snapshot_download(
                name, revision=revision, ignore_patterns=["*.pth", "*.bin.index.json", "original/*"]
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"There is no such folder, and the Hub does not give a model of that name: {type(error).__name__}.",
            where=name,
            next="Check base.model and the network; HF_TOKEN is needed for models that ask to accept their terms.",
        ) from error


def _read_license(folder: Path) -> str | None:
    """Return the licence that the model's card states."""
    with suppress(OSError, UnicodeDecodeError):
        match = re.search(
            r"^license(?:_name)?:\s*(\S.*)$", (folder / "README.md").read_text("utf-8"), re.MULTILINE
        )
        return match[1].strip() if match else None
    return None


# Opens the base model and its tokenizer, and writes all data as tokens in Arrow files.


_FEATURES = Features({"input_ids": ArrowSequence(Value("int32")), "labels": ArrowSequence(Value("int32"))})
PARTS = ("train", "held-out")
_PREVIEWED = 50  # Examples that the preview shows


# The tokenizer, and how it cuts conversations: by a chat template, or as pairs of texts.


_SPACE = "\u2581"  # A space, as SentencePiece writes it
# Stands for the prompt before a reply. It merges with nothing in SentencePiece's vocabularies of bytes.
_BEFORE = "\n"


def open_tokenizer(model: str, base: Base) -> Any:
    """Open the tokenizer of a model's folder, with the recipe's chat template, which sequence-to-sequence models lack.

    Raises:
        InputError: there is no tokenizer, or a language model has no template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The model's tokenizer cannot be read: {type(error).__name__}.",
            where=model,
            next="Put the files of its tokenizer (tokenizer.json, tokenizer_config.json) into this folder.",
        ) from error
    if is_encoder_decoder(Path(model)):
        return tokenizer
    if base.template is not None:
        tokenizer.chat_template = read_template(base.template)
    if not tokenizer.chat_template:
        raise InputError(
            "The model has no chat template, so nothing says how messages are written to it.",
            where=model,
            next="Use a chat model (often named -Instruct or -Chat), or a template: base.template=vicuna",
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


_LONGEST_RENDERING = 10.0  # Seconds of CPU for one conversation: a template is a program, and may never end


@contextmanager
def limit_seconds(most: float) -> Generator[None]:
    """Raise TimeoutError in the main thread if the process takes ``most`` seconds of CPU within the context."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"it takes longer than {most:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def make_cutter(tokenizer: Any, model: str) -> Cutter:
    """Return the way that this model's conversations are cut into tokens."""
    controls = tuple(
        token.content for token in tokenizer.added_tokens_decoder.values() if token.special and token.content
    )

    def render(messages: Sequence[ChatMessage], add: bool) -> str:
        try:
            with limit_seconds(_LONGEST_RENDERING):
                return tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=add
                )
        except (jinja2.TemplateError, ValueError, TypeError, MemoryError, TimeoutError) as error:
            raise InputError(
                f"The model's chat template cannot write these messages: {error}.",
                where=model,
                next="Models without a system role, for example, cannot be trained with a system prompt.",
            ) from error

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    def spell(name: str) -> list[int]:
        return tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)

    def encode_safe(text: str) -> list[int]:
        return encode_protected(text, controls, encode, spell)

    before = len(encode(_BEFORE))
    return Cutter(
        render=render,
        encode=encode_safe,
        stops=_find_stops(tokenizer, model),
        controls=controls,
        start=_find_start(tokenizer),
        encode_reply=(lambda text: encode_safe(_BEFORE + text)[before:]) if _adds_space(tokenizer) else None,
    )


def _find_start(tokenizer: Any) -> tuple[int, ...]:
    """Return the token that the tokenizer puts before each text, as llama.cpp does too."""
    begun = tokenizer.encode("")[:1]
    return tuple(begun) if begun == [tokenizer.bos_token_id] else ()


def _adds_space(tokenizer: Any) -> bool:
    """Return True if the tokenizer puts a space before each text, as LLaMA's does: a reply would begin with two."""
    first = tokenizer.convert_ids_to_tokens(tokenizer.encode("a", add_special_tokens=False))[0]
    return str(first).startswith(_SPACE)


def hash_template(tokenizer: Any) -> str:
    """Return the SHA-256 of the chat template."""
    return hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()


def _find_stops(tokenizer: Any, model: str) -> tuple[str, ...]:
    """Return the texts of the tokens at which generation stops."""
    ids: list[int] = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    if (Path(model) / "generation_config.json").exists():
        stated = GenerationConfig.from_pretrained(model).eos_token_id
        ids += stated if isinstance(stated, list) else [stated] if stated is not None else []
    return tuple(dict.fromkeys(tokenizer.convert_ids_to_tokens(token) for token in ids))


@dataclass(frozen=True, slots=True)
class Seq2SeqCutter:
    """A tokenizer of a sequence-to-sequence model such as FlanT5 (paper, Table 6); each reply is an example of its own.

    Such a model has no chat template. The encoder reads the conversation as plain text, one message a paragraph.
    """

    tokenizer: Any

    def cut_replies(
        self, messages: Sequence[ChatMessage], max_length: int, counts: CutCounts
    ) -> list[Example]:
        """Return one example for each reply with words; of a long conversation, the last tokens before the reply."""
        examples: list[Example] = []
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                counts.pairs += 1
                if is_empty(message):
                    counts.empty += 1
                    continue
                before = self.tokenizer.encode(write_source(messages[:number]))
                reply = self.tokenizer.encode(message["content"])
                examples.append(Example(before[-max_length:], reply[:max_length]))
        counts.conversations += 1
        counts.split += len(examples) > 1
        return examples


# The tokens of all stages.


def encode_stage(
    stage: StageFolder, cutter: Cutter | Seq2SeqCutter, tokenizer: Any, training: Training
) -> dict[str, Any]:
    """Write the tokens of a stage's data, and a preview for people. Return the numbers for its manifest.

    Raises:
        InputError: no example is left, too many are lost, or nothing in one is learned.
    """
    numbers: dict[str, Any] = {}
    for part in PARTS:
        source = stage.data / f"{part}.jsonl"
        counts = CutCounts()
        preview: list[Example] = []
        totals = {"examples": 0, "tokens": 0, "learned_tokens": 0, "longest": 0}
        with ArrowWriter(features=_FEATURES, path=str(stage.data / f"{part}.arrow")) as writer:
            for conversation in read_prepared(source):
                about = (conversation.messages, training.max_length, counts)
                for example in (
                    cut_conversation(conversation.id, conversation.messages, cutter, *about[1:])
                    if isinstance(cutter, Cutter)
                    else cutter.cut_replies(*about)
                ):
                    if len(preview) < _PREVIEWED:
                        preview.append(example)
                    writer.write({"input_ids": example.ids, "labels": example.labels})
                    totals["examples"] += 1
                    totals["tokens"] += len(example.ids)
                    totals["learned_tokens"] += example.learned
                    totals["longest"] = max(totals["longest"], len(example.ids))
            writer.finalize()
        counts.check(training.lost_at_most, str(source))
        if part == "train":
            if not totals["learned_tokens"]:
                empty = f": {counts.empty:,} of {counts.pairs:,} replies are empty" if counts.empty else ""
                raise InputError(
                    f"The stage {stage.name} has no example in which anything is learned{empty}.",
                    where=str(source),
                    next="Change its data, its filters, its side or max_length, and use another out=FOLDER.",
                )
            (stage.data / "preview.txt").write_text(_show(preview, tokenizer), "utf-8")
        numbers[part] = {
            **totals,
            "conversations": counts.conversations,
            "pairs": counts.pairs,
            "split": counts.split,
            "truncated_pairs": counts.truncated,
            "empty_replies": counts.empty,
            "lost_pairs": len(counts.lost),
            "lost": counts.lost[:20],
        }
    return numbers


def load_part(stage: StageFolder, part: str) -> Dataset:
    """Open the tokens of a part of a stage's data."""
    return Dataset.from_file(str(stage.data / f"{part}.arrow"))


def _show(examples: Iterable[Example], tokenizer: Any) -> str:
    """Return examples as text, with ⟦ and ⟧ around what is learned."""
    shown: list[str] = []
    for number, example in enumerate(examples, start=1):
        runs: list[tuple[bool, list[int]]] = []
        if len(example.ids) != len(example.labels):  # a sequence-to-sequence model
            text = f"{tokenizer.decode(example.ids)}⟦{tokenizer.decode(example.labels)}⟧"
            shown.append(f"=== example {number} ===\n{text}\n")
            continue
        for token, label in zip(example.ids, example.labels, strict=True):
            learned = label != IGNORED
            if not runs or runs[-1][0] != learned:
                runs.append((learned, []))
            runs[-1][1].append(token)
        text = "".join(
            f"⟦{tokenizer.decode(ids)}⟧" if learned else tokenizer.decode(ids) for learned, ids in runs
        )
        shown.append(
            f"=== example {number}: {len(example.ids)} tokens, {example.learned} learned ===\n{text}\n"
        )
    return "What is between ⟦ and ⟧ is learned, the stop token included.\n\n" + "\n".join(shown)


PREPARED = "prepared.json"
_PROMPTS_OF_A_STAGE = 5


def prepare(root: Path, emit: Emit) -> None:
    """Write the base's manifest, the tokens of each stage, and the numbers for a forecast.

    Raises:
        BactrianError: the model or the data cannot be used for training.
    """
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    folders = list_stage_folders(root, [part.name for part in recipe.stages])
    machine = find_machine(recipe.training)
    folders[0].folder.mkdir(exist_ok=True)
    emit("opening", model=recipe.base.model or "a new model")
    base = open_base(recipe, folders[0], _iterate_texts(folders[1:]))
    tokenizer = open_tokenizer(str(base.model), recipe.base)
    cutter: Any = (
        Seq2SeqCutter(tokenizer)
        if is_encoder_decoder(base.model)
        else make_cutter(tokenizer, str(base.model))
    )
    described = _describe(base, folders[0], tokenizer)
    _check_same(described, folders[0], str(base.source or base.model))
    stages: list[dict[str, Any]] = []
    for folder in folders[1:]:
        emit("encoding", stage=folder.name)
        stages.append(encode_stage(folder, cutter, tokenizer, recipe.training))
        emit(
            "encoded",
            stage=folder.name,
            empty_replies=sum(part["empty_replies"] for part in stages[-1].values()),
        )
    if base.gguf is not None:
        _write_prompts(folders[0].folder, folders[1:], cutter)
    write_json(folders[0].folder / "manifest.json", described)
    known = {**asdict(machine), "threads": torch.get_num_threads()}
    write_json(root / PREPARED, {"stages": stages, "weights": weigh_model(base.model), "machine": known})


def _check_same(described: dict[str, Any], folder: StageFolder, where: str) -> None:
    """Raise InputError if the training was begun with another base model, or with another template."""
    if not folder.is_complete:
        return
    before = folder.manifest
    if (before["base"]["sha256"], before["template"]) != (described["base"]["sha256"], described["template"]):
        raise InputError(
            "The training was begun with another base model.",
            where=where,
            next="Put the former model back, or use another out=FOLDER: what is trained so far is kept.",
        )


def _write_prompts(path: Path, folders: list[StageFolder], cutter: Cutter) -> None:
    """Write the first prompts of some conversations as they are trained on, to compare with what ``play`` sends."""
    rows: list[dict[str, Any]] = []
    for folder in folders:
        for conversation in islice(read_prepared(folder.data / "train.jsonl"), _PROMPTS_OF_A_STAGE):
            messages = list(conversation.messages)
            learned = (
                index
                for index, message in enumerate(messages)
                if message["role"] == "assistant" and not is_empty(message)
            )
            if (first := next(learned, None)) is not None:
                asked = cutter.render_pieces(messages[: first + 1])[0].text
                rows.append({"messages": messages[:first], "tokens": cutter.encode_prompt(asked)})
    (path / "prompts.json").write_text(json.dumps(rows), "utf-8")


def _iterate_texts(folders: list[StageFolder]) -> Iterator[str]:
    for folder in folders:
        for conversation in read_prepared(folder.data / "train.jsonl"):
            for message in conversation.messages:
                yield message["content"]


def _describe(base: OpenBase, folder: StageFolder, tokenizer: Any) -> dict[str, Any]:
    def locate(path: Path) -> str:
        return path.relative_to(folder.folder).as_posix() if path.is_relative_to(folder.folder) else str(path)

    return {
        "number": 0,
        "name": "base",
        "base": {"name": base.name, "sha256": base.sha256, "license": base.license},
        "model": locate(base.model),
        "weights": hash_weights(base.model),
        "gguf": locate(base.gguf) if base.gguf else None,
        "gguf_source": str(base.source) if base.source else None,
        "template": {"sha256": hash_template(tokenizer) if tokenizer.chat_template else None},
    }
