"""Data sets of the Hugging Face hub, such as CAMEL's own: ``hf://OWNER/NAME``, ``hf://OWNER/NAME@REVISION/FILE``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.ingest.camel import LICENSE
from bactrian.ingest.parsed import Origin
from bactrian.models.hub_access import explain_hub_errors, get_endpoint, get_token, import_hub, make_hub_bar

# A path has one slash where the address has two.
_ADDRESS = re.compile(r"hf:/+(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@\s]+))?(/(?P<file>.+))?")
_IMPORTED = re.compile(r"(?P<stem>.+?)\.(zip|tar|tar\.gz|tgz|jsonl?|jsonl?\.gz)", re.IGNORECASE)
# CAMEL's chats, or its chats in a language; its repositories have other forms of them, too.
_CHAT = re.compile(r"(.*/)?\w+_chat(_[a-z]{2,3})?", re.IGNORECASE)
_CAMEL = "camel-ai/"


@dataclass(frozen=True, slots=True)
class HubSet:
    """A data set of the hub. Without a file, the conversations of the whole set; without a revision, the latest."""

    repo: str
    revision: str | None = None
    file: str | None = None


def read_hub_address(path: Path) -> HubSet | None:
    """Parse an address; None if ``path`` is none. Raises InputError."""
    parts = _ADDRESS.fullmatch(str(path))
    if parts is None and str(path).startswith("hf:/"):
        next = "Write it as hf://OWNER/NAME."
        raise InputError("This is not the address of a data set.", where=str(path), next=next)
    return HubSet(parts["repo"], parts["revision"], parts["file"]) if parts else None


def fetch_hub_set(
    named: HubSet, origin: Origin, report: Callable[[str], None]
) -> tuple[Sequence[Path], Origin]:
    """Download a data set to the hub's cache, unless it is there, and return its files with their origin.

    The client continues a download whose connection broke, and keeps files that are complete. ``report`` receives a
    message before each download.

    Raises:
        InputError: there is no such data set, revision or file, or it is not clear which file is meant.
        MissingExtra: ``huggingface_hub`` is not installed.
        Refused: the hub cannot be reached.
    """
    hub: Any = import_hub("Importing from the Hugging Face hub")
    with explain_hub_errors(named.repo, f"The data set {named.repo} could not be downloaded"):
        api = hub.HfApi(endpoint=get_endpoint(), token=get_token())
        info = api.dataset_info(named.repo, revision=named.revision, files_metadata=True)
        sizes: dict[str, int] = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        paths: list[Path] = []
        for name in choose_files(named, sizes):
            report(f"Fetching {name} of {named.repo}: {sizes[name] / 1e6:,.1f} MB.")
            path = hub.hf_hub_download(
                named.repo,
                name,
                repo_type="dataset",
                revision=info.sha,
                endpoint=get_endpoint(),
                token=get_token(),
                tqdm_class=make_hub_bar(sizes[name]),
            )
            paths.append(Path(path))
    card: Any = info.card_data
    license_name = _write_license(card.get("license") if card else None)
    if named.repo.startswith(_CAMEL):
        license_name = license_name or LICENSE
    source = {"name": named.repo, "revision": str(info.sha)}
    source |= {"license": license_name} if license_name else {}
    return paths, replace(origin, source={**source, **origin.source})


def choose_files(named: HubSet, sizes: dict[str, int]) -> list[str]:
    """Return the files to import, by name and size: the file that is named, or the chats.

    Of two files with the same content, such as CAMEL's ``.zip`` and ``.tar.gz``, the smaller one is taken.

    Raises:
        InputError: there is none, or several that have nothing in common.
    """
    where = f"hf://{named.repo}"
    if named.file is not None:
        if named.file in sizes:
            return [named.file]
        raise InputError(
            f"The data set has no file {named.file!r}.", where=where, next=f"It has: {_list_names(sizes)}."
        )
    matches = {name: match["stem"] for name in sizes if (match := _IMPORTED.fullmatch(name))}
    by_size = sorted(matches.items(), key=lambda item: -sizes[item[0]])  # the last one of a stem stays
    smallest = {stem: name for name, stem in by_size if not name.endswith("dataset_infos.json")}
    chats = {stem: name for stem, name in smallest.items() if _CHAT.fullmatch(stem)}
    chosen = chats or smallest
    if not chosen or (len(chosen) > 1 and not chats):
        what = "several files to choose from" if chosen else "no file that can be imported"
        raise InputError(
            f"The data set has {what}.",
            where=where,
            next=f"Name one: {where}/FILE. It has: {_list_names(sizes)}.",
        )
    return sorted(chosen.values())


def _list_names(sizes: dict[str, int]) -> str:
    return ", ".join(sorted(sizes)[:12]) or "none"


def _write_license(named: object) -> str:
    """Return the licence of a card as SPDX writes it, as far as that is only a matter of capitals."""
    text = " AND ".join(map(str, named)) if isinstance(named, list) else str(named or "")  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return text.upper() if text.lower().startswith("cc") else text
