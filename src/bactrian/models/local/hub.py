"""Weights from the Hugging Face hub: finds, downloads and verifies them, and reuses them offline."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.errors import InputError, MissingExtra, Refused
from bactrian.models.credentials import find_key
from bactrian.models.local.weights import Progress

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_HUB = "https://huggingface.co"
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
    found = _NAME.fullmatch(text)
    if found is None or (found["file"] is None and (text.lower().endswith(".gguf") or Path(text).exists())):
        return None
    return HubWeights(found["repo"], found["file"])


def fetch_from_hub(
    weights: HubWeights,
    folder: Path,
    *,
    progress: Progress | None = None,
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
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError as error:
        raise MissingExtra("hub", "Fetching weights from the Hugging Face hub") from error
    record_path = (
        folder
        / "hub"
        / f"{weights.repo.replace('/', '--')}{'--' + weights.file if weights.file else ''}.json"
    )
    known = _read_record(record_path)
    if known is not None:
        cached = hub.try_to_load_from_cache(
            weights.repo, known.file, cache_dir=_get_cache_folder(), revision=known.revision
        )
        if isinstance(cached, str):
            return _check(Path(cached), known)
    record = _choose(_list_files(weights), weights)
    if report is not None:
        report(f"Fetching {record.file} of {weights.repo}: {record.size / 1e6:,.1f} MB.")
    path = _download(weights.repo, record, progress)
    _check(path, record)
    record_path.parent.mkdir(parents=True, exist_ok=True)
    record_path.write_text(json.dumps(asdict(record)), "utf-8")
    return path


def _list_files(weights: HubWeights) -> tuple[str, list[RepoSibling]]:
    """Return the latest revision of the repository and its GGUF files."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    client = HfApi(endpoint=_get_endpoint(), token=_get_token())
    try:
        info = client.model_info(weights.repo, files_metadata=True)
    except RepositoryNotFoundError as error:
        raise InputError(
            f"The hub has no repository {weights.repo!r}, or you have no access to it.",
            where=_get_endpoint(),
            next="Check its name; for a private or gated one set HF_TOKEN.",
        ) from error
    except Exception as error:
        raise _make_fetch_error(weights.repo, error) from error
    files = [each for each in info.siblings or [] if each.rfilename.lower().endswith(".gguf")]
    return info.sha or "main", files


def _choose(found: tuple[str, Sequence[RepoSibling]], weights: HubWeights) -> _Record:
    revision, files = found
    names = [each.rfilename for each in files]
    whole = [
        each for each in files if not _PART.search(each.rfilename) and "mmproj" not in each.rfilename.lower()
    ]
    if weights.file is not None:
        chosen = next((each for each in files if each.rfilename == weights.file), None)
    else:
        chosen = min(whole, key=_rank, default=None)
    if chosen is None or _PART.search(chosen.rfilename):
        has = f"It has: {', '.join(names[:8])}." if names else "It has no GGUF file."
        raise InputError(
            f"{weights.repo} has no file {weights.file!r}."
            if weights.file and chosen is None
            else f"{weights.repo} has no weights in one GGUF file.",
            where=f"local:{weights.repo}",
            next=has,
        )
    lfs = chosen.lfs
    sha256 = lfs.sha256 if lfs is not None else ""
    return _Record(chosen.rfilename, revision, chosen.size or 0, sha256)


def _rank(file: RepoSibling) -> tuple[int, int]:
    """Return a sort key: preferred quantisations first, then the others by size."""
    words = re.split(r"[^A-Z0-9_]+", file.rfilename.upper())
    place = next((at for at, name in enumerate(_PREFERRED) if name in words), len(_PREFERRED))
    return place, file.size or 0


def _download(repo: str, record: _Record, progress: Progress | None) -> Path:
    client: Any = import_module("huggingface_hub")
    token = _get_token()
    try:
        found = client.hf_hub_download(
            repo,
            record.file,
            revision=record.revision,
            cache_dir=_get_cache_folder(),
            endpoint=_get_endpoint(),
            token=token,
            tqdm_class=_make_bar(record.size, progress),
        )
    except Exception as error:
        raise _make_fetch_error(repo, error) from error
    return Path(found)


def _make_bar(size: int, progress: Progress | None) -> Any:
    """Return a progress bar class for the hub's client that forwards its progress instead of displaying it."""
    base: Any = import_module("tqdm").tqdm

    class Bar(base):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **{**more, "disable": True})  # pyright: ignore[reportUnknownMemberType]
            self.done = int(more.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            if progress is not None:
                progress(min(self.done, size), size)

    return Bar


def _check(path: Path, record: _Record) -> Path:
    """Return ``path`` if its SHA-256 matches the hub's. Reads the whole file, at about a gigabyte a second."""
    if not record.sha256:
        return path
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != record.sha256:
        raise Refused(
            "The weights are damaged: their SHA-256 differs from the hub's.",
            # Not the link to it: the hub's client would only link to the damaged file again.
            where=str(path.resolve()),
            next="Delete the file, and run the same command to download it again.",
        )
    return path


def _read_record(path: Path) -> _Record | None:
    try:
        return _Record(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _get_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB


def _get_token() -> str | bool | None:
    """Return the key for the hub; None for the key of ``hf auth login``, which is sent only to the hub itself."""
    own = _get_endpoint() == _HUB
    return find_key("HF_TOKEN", _get_endpoint(), own=own) or (None if own else False)


def _get_cache_folder() -> str | None:
    """Return the cache folder of the hub's own tools; None for their default."""
    home = os.environ.get("HF_HOME")
    return os.environ.get("HF_HUB_CACHE") or (str(Path(home) / "hub") if home else None)


def _make_fetch_error(repo: str, error: Exception) -> Refused:
    first = str(error).strip().partition("\n")[0][:200]
    return Refused(
        f"The weights of {repo} could not be downloaded: {first or type(error).__name__}.",
        where=_get_endpoint(),
        next="Go online and run the same command; weights downloaded earlier work offline.",
    )
