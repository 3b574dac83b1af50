"""Weights from the Hugging Face hub: finds, downloads and verifies them, and reuses them offline."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.errors import InputError, Refused
from bactrian.models.hub_access import explain_hub_errors, get_endpoint, get_token, import_hub, make_hub_bar
from bactrian.models.local.weights import Progress

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

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
