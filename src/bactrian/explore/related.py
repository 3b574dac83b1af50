"""Finds what belongs to a conversation: the original of a translation, its translations, and who heard whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bactrian.errors import InputError
from bactrian.explore.library import DataSet, Library
from bactrian.files.atomic import is_same_file
from bactrian.recipes.society_file import Society, list_societies, load_society
from bactrian.records.run import Command
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
    library: Library, one: DataSet, session: Session, recipe: Mapping[str, Any]
) -> list[RelatedSession]:
    """Return the original of a translation, or the translations of an original, as far as their runs are open here."""
    found: list[RelatedSession] = []
    if find_kind(session) == "translation":
        source = _find_source(recipe)
        for other in library.sets.values() if source else ():
            name = session.values.get("source", "")
            if _is_run(source, other.run) and await other.store.session(name) is not None:
                found.append(RelatedSession("Original", other.name, name))
        return found
    for other in library.sets.values():
        if other is one:
            continue
        content = await other.store.recipe() or {}
        if _is_run(_find_source(content), one.run):
            for language, title in _list_languages(content):
                name = name_translation(language, session.id)
                if len(found) < _MOST and await other.store.outlines(ids=[name]):
                    found.append(RelatedSession(title, other.name, name))
    return found


def _find_source(recipe: Mapping[str, Any]) -> str:
    """Return the run that a recipe translates; empty if it translates none."""
    return str(recipe.get("recipe", {}).get("translate", {}).get("source") or "")


def _is_run(source: str, run: Path) -> bool:
    """Return True if ``source``, as a recipe names it, is ``run``; a relative path may be one from the run's folder."""
    if not source:
        return False
    path = Path(source).expanduser()
    return any(is_same_file(one, run) for one in (path, run.parent / path) if one.exists())


def _list_languages(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    axes: list[dict[str, Any]] = recipe.get("recipe", {}).get("axes") or [{}]
    names: dict[str, str] = recipe.get("recipe", {}).get("translate", {}).get("languages", {})
    for code in axes[0].get("given") or ():
        yield code, names.get(code) or code


async def read_hearing(
    store: RunStore, session: Session, recipe: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Return, by speaker, the agents of a group chat that do not hear it.

    It is empty if everyone hears everyone, and where the society is not known: an earlier version did not store a file.
    """
    cast = session.provenance.cast
    if not cast:
        return {}
    society = _find_society(session, recipe) or _find_played(session, await store.commands())
    if society is None:
        return {}
    deaf: dict[str, tuple[str, ...]] = {}
    for speaker in cast:
        others = [
            agent.name
            for agent in society.agents
            if agent.name in cast
            and agent.name != speaker
            and agent.hears is not None
            and speaker not in agent.hears
        ]
        if others:
            deaf[speaker] = tuple(cast[name].name for name in others)
    return deaf


def _find_played(session: Session, commands: Iterable[Command]) -> Society | None:
    """Return the society of a command ``play --society`` that made the session."""
    for command in commands:
        if content := command.options.get("content"):
            try:
                society = Society.model_validate(content)
            except ValidationError:
                continue
            if society.hash == session.provenance.prompts_hash:
                return society
    return None


def _find_society(session: Session, recipe: Mapping[str, Any]) -> Society | None:
    stored = recipe.get("recipe", {}).get("society", {}).get("society") or recipe.get("society")
    if stored:
        try:
            return Society.model_validate(stored)
        except ValidationError:
            return None
    name = session.provenance.prompts.removeprefix("society ")
    if name not in list_societies():
        return None
    try:
        society, _ = load_society(name)
    except InputError:
        return None
    return society if society.hash == session.provenance.prompts_hash else None
