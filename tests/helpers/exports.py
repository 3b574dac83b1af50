"""What the tests of the formats have in common."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.formats import find_format
from bactrian.protocol.markers import DONE
from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.runs import make_run


async def handed(run: Path, form: str, out: Path, **more: Any) -> dict[str, Any]:
    """Export ``run``; gives the manifest."""
    async with open_store(run, read_only=True) as store:
        return await export_run(store, ExportOptions(find_format(form), out, **more))


async def exported(
    folder: Path, sessions: Iterable[Session], form: str, name: str, **more: Any
) -> tuple[Path, dict[str, Any]]:
    """Make a run of ``sessions`` and export it; gives the target and the manifest."""
    run = await make_run(folder / "tea.db", sessions)
    return folder / name, await handed(run, form, folder / name, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive or a folder, by name."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as pack:
            return {name: pack.read(name) for name in pack.namelist()}
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as pack:
            return {member.name: (pack.extractfile(member) or pytest.fail()).read() for member in pack}
    return {file.name: file.read_bytes() for file in path.iterdir()}


def convert(content: bytes) -> list[tuple[str, str]]:
    """What CAMEL's converter, written anew from its rules, makes of a chat: speakers and texts without markers."""
    chat = {key.lower(): value for key, value in json.loads(content).items()}
    count = chat["num_messages"] - (chat["termination_reason"] == DONE)
    said: list[tuple[str, str]] = []
    for number in range(1, count + 1):
        message = chat[f"message_{number}"]
        text = message["content"]
        for token in (
            "Instruction: ",
            "\nInput: None",
            "Input: None",
            "\nInput:",
            "Input:",
            "Solution: \n\n",
            "Solution:\n",
            "Solution: ",
            "\nNext request.",
            " Next request.",
        ):
            text = text.replace(token, "")
        said.append(({"USER": "human", "ASSISTANT": "gpt"}[message["role_type"]], text))
    return said
