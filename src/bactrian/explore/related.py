"""Finds what belongs to a conversation: the original of a translation, its translations, and who heard whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bactrian.errors import InputError
from bactrian.explore.library import DataSet, Library
from bactrian.files.atomic import is_same_file
from bactrian.recipes.society_file import Society, list_societies, load_society
from bactrian.records.session import Session, find_kind
from bactrian.runs.questions import name_translation
from bactrian.store import RunStore

# Translations that are listed.
_MOST = 20


@dataclass(frozen=True, slots=True)
class RelatedSession:
    """The original or a translation of a conversation."""

    title: str
    data: str
    id: str


async def find_related(
    library: Library, data_set: DataSet, session: Session, recipe: Mapping[str, Any]
) -> list[RelatedSession]:
    """Return the original of a translation, or the translations of an original, as far as their runs are open here."""
    related: list[RelatedSession] = []
    is_translation = find_kind(session) == "translation"
    for other in library.sets.values():
        content = recipe if is_translation else await other.store.recipe() or {}
        run = other.run if is_translation else data_set.run
        if (other is data_set and not is_translation) or not _is_run(_find_source(content), run):
            continue
        names = {session.values.get("source", ""): "Original"}
        if not is_translation:
            names = {name_translation(code, session.id): title for code, title in _list_languages(content)}
        for name, title in names.items():
            if len(related) < _MOST and await other.store.outlines(ids=[name]):
                related.append(RelatedSession(title, other.name, name))
    return related


def _find_source(recipe: Mapping[str, Any]) -> str:
    """Return the run that a recipe translates; empty if it translates none."""
    return str(recipe.get("recipe", {}).get("translate", {}).get("source") or "")


def _is_run(source: str, run: Path) -> bool:
    """Return True if ``source``, as a recipe names it, is ``run``; a relative path may be one from the run's folder."""
    if not source:
        return False
    path = Path(source).expanduser()
    return any(is_same_file(file, run) for file in (path, run.parent / path) if file.exists())


def _list_languages(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    axes: list[dict[str, Any]] = recipe.get("recipe", {}).get("axes") or [{}]
    names: dict[str, str] = recipe.get("recipe", {}).get("translate", {}).get("languages", {})
    for code in axes[0].get("given") or ():
        yield code, names.get(code) or code


async def read_hearing(
    store: RunStore, session: Session, recipe: Mapping[str, Any]
) -> dict[str, tuple[str, ...]] | None:
    """Return, by agent of a group chat, the agents that do not hear it.

    None if it is no group chat, or its society is not known: an earlier version did not store that of a file.
    """
    cast = session.provenance.cast
    society = await _find_society(store, session, recipe) if cast else None
    if society is None:
        return None
    hears = {agent.name: agent.hears for agent in society.agents if agent.name in cast}
    return {
        speaker: tuple(
            name
            for name, heard in hears.items()
            if name != speaker and heard is not None and speaker not in heard
        )
        for speaker in cast
    }


async def _find_society(store: RunStore, session: Session, recipe: Mapping[str, Any]) -> Society | None:
    """Return the society that made a session: the recipe's, that of a command ``play --society``, or a built-in one."""
    frozen = recipe.get("recipe", {}).get("society", {}).get("society") or recipe.get("society")
    if frozen:
        with suppress(ValidationError):
            return Society.model_validate(frozen)
    for command in await store.commands():
        with suppress(ValidationError):
            society = Society.model_validate(command.options.get("content"))
            if society.hash == session.provenance.prompts_hash:
                return society
    name = session.provenance.prompts.removeprefix("society ")
    if name in list_societies():
        with suppress(InputError):
            society, _ = load_society(name)
            return society if society.hash == session.provenance.prompts_hash else None
    return None
