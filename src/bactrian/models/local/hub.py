"""Weights from the Hugging Face hub: found, fetched, checked, and used again without the network."""

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
_PREFERRED = (
    *("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q5_0", "Q3_K_M"),
    *("Q6_K", "Q8_0", "Q2_K", "BF16", "F16", "F32"),
)
"""Quantisations, the one that suits most computers first: four bits lose little and take a quarter of the memory."""


@dataclass(frozen=True, slots=True)
class HubWeights:
    """A repository, and the file in it; None for the one that suits most computers."""

    repo: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    """What is remembered of a file that was fetched."""

    file: str
    revision: str
    size: int
    sha256: str


def read_hub_name(text: str) -> HubWeights | None:
    """``OWNER/REPO`` or ``OWNER/REPO:FILE``; None if ``text`` is rather the path of a file."""
    found = _NAME.fullmatch(text)
    if found is None or (found["file"] is None and (text.lower().endswith(".gguf") or Path(text).exists())):
        return None
    return HubWeights(found["repo"], found["file"])


def fetch_from_hub(
    wanted: HubWeights,
    folder: Path,
    *,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
) -> Path:
    """Path of the weights in the hub's cache, fetched first if they are not there.

    What is known of them is kept in ``folder``, so that they are checked, and used without the network, from then on.
    ``report`` is told the size before they are fetched. Blocks; run it in a thread.

    Raises:
        InputError: there is no such repository or file, or it is not one file.
        MissingExtra: ``huggingface_hub`` is not installed.
        Refused: the hub cannot be reached, or sent something else.
    """
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError as error:
        raise MissingExtra("hub", "Fetching weights from the Hugging Face hub") from error
    kept = (
        folder / "hub" / f"{wanted.repo.replace('/', '--')}{'--' + wanted.file if wanted.file else ''}.json"
    )
    known = _read_record(kept)
    if known is not None:
        cached = hub.try_to_load_from_cache(
            wanted.repo, known.file, cache_dir=_cache_folder(), revision=known.revision
        )
        if isinstance(cached, str):
            return _check(Path(cached), known)
    record = _choose(_list_files(wanted), wanted)
    if report is not None:
        report(f"Fetching {record.file} of {wanted.repo}: {record.size / 1e6:,.1f} MB.")
    path = _download(wanted.repo, record, progress)
    _check(path, record)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(record)), "utf-8")
    return path


def _list_files(wanted: HubWeights) -> tuple[str, list[RepoSibling]]:
    """The newest revision of the repository, and its GGUF files."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    client = HfApi(endpoint=_endpoint(), token=_token())
    try:
        info = client.model_info(wanted.repo, files_metadata=True)
    except RepositoryNotFoundError as error:
        raise InputError(
            f"The hub has no repository {wanted.repo!r}, or it is not open to you.",
            where=_endpoint(),
            next="Check its name; for a private or gated one set HF_TOKEN.",
        ) from error
    except Exception as error:
        raise _unreachable(wanted.repo, error) from error
    files = [each for each in info.siblings or [] if each.rfilename.lower().endswith(".gguf")]
    return info.sha or "main", files


def _choose(found: tuple[str, Sequence[RepoSibling]], wanted: HubWeights) -> _Record:
    revision, files = found
    names = [each.rfilename for each in files]
    whole = [
        each for each in files if not _PART.search(each.rfilename) and "mmproj" not in each.rfilename.lower()
    ]
    if wanted.file is not None:
        chosen = next((each for each in files if each.rfilename == wanted.file), None)
    else:
        chosen = min(whole, key=_rank, default=None)
    if chosen is None or _PART.search(chosen.rfilename):
        has = f"It has: {', '.join(names[:8])}." if names else "It has no GGUF file."
        raise InputError(
            f"{wanted.repo} has no file {wanted.file!r}."
            if wanted.file and chosen is None
            else f"{wanted.repo} has no weights in one GGUF file.",
            where=f"local:{wanted.repo}",
            next=has,
        )
    lfs = chosen.lfs
    sha256 = lfs.sha256 if lfs is not None else ""
    return _Record(chosen.rfilename, revision, chosen.size or 0, sha256)


def _rank(file: RepoSibling) -> tuple[int, int]:
    """The preferred first; of those that are not known, the smallest."""
    words = re.split(r"[^A-Z0-9_]+", file.rfilename.upper())
    place = next((at for at, name in enumerate(_PREFERRED) if name in words), len(_PREFERRED))
    return place, file.size or 0


def _download(repo: str, record: _Record, progress: Progress | None) -> Path:
    client: Any = import_module("huggingface_hub")
    token = _token()
    try:
        found = client.hf_hub_download(
            repo,
            record.file,
            revision=record.revision,
            cache_dir=_cache_folder(),
            endpoint=_endpoint(),
            token=token,
            tqdm_class=_make_bar(record.size, progress),
        )
    except Exception as error:
        raise _unreachable(repo, error) from error
    return Path(found)


def _make_bar(size: int, progress: Progress | None) -> Any:
    """A class that the hub's client tells how far it is, and that passes that on in place of showing it."""
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
    """``path`` if it holds what the hub says. Reads the whole file, at about a gigabyte a second."""
    if not record.sha256:
        return path
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != record.sha256:
        raise Refused(
            "The weights are damaged: they have another SHA-256 than the hub says.",
            where=str(path),
            next="Delete the file, and run the same command to fetch it again.",
        )
    return path


def _read_record(path: Path) -> _Record | None:
    try:
        return _Record(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB


def _token() -> str | bool | None:
    """The key for the hub; None for the one of ``hf auth login``, which goes to the hub itself only."""
    own = _endpoint() == _HUB
    return find_key("HF_TOKEN", _endpoint(), own=own) or (None if own else False)


def _cache_folder() -> str | None:
    """Where the hub's own tools keep what they fetch; None for their usual place."""
    home = os.environ.get("HF_HOME")
    return os.environ.get("HF_HUB_CACHE") or (str(Path(home) / "hub") if home else None)


def _unreachable(repo: str, error: Exception) -> Refused:
    first = str(error).strip().partition("\n")[0][:200]
    return Refused(
        f"The weights of {repo} could not be fetched: {first or type(error).__name__}.",
        where=_endpoint(),
        next="Go online and run the same command; what was fetched before is used without the network.",
    )
