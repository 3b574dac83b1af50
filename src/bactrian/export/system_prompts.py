"""The system prompts of a stored session."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bactrian.files.template import compile_template
from bactrian.prompts.engine import render_prompt
from bactrian.prompts.inception import InceptionPrompts, render_inception
from bactrian.prompts.pack import Pack, find_pack
from bactrian.records.session import SYSTEM, Session, find_kind
from bactrian.records.turn import Speaker


class SystemPrompts:
    """Renders the prompts of stored sessions again, from their packs and recipe.

    A session stores the hash of its pack. If that pack is neither built in nor ``own``, or if there was none, as in an
    imported conversation without a system prompt, a short substitute is used; see :meth:`is_known`.
    """

    def __init__(self, recipe: Mapping[str, Any] | None = None, own: Pack | None = None) -> None:
        self._packs: dict[str, Pack | None] = {own.hash: own} if own else {}
        made_from: Mapping[str, Any] = recipe["recipe"] if recipe else {}
        self._answer: Mapping[str, Any] | None = made_from.get("answer")

    def is_known(self, session: Session, side: Speaker = "assistant") -> bool:
        """Return True if :meth:`render` returns the original prompt of ``side``."""
        return self._pack(session) is not None or self._answered(session) or side in _find_given(session)

    def render(self, session: Session) -> InceptionPrompts:
        """Return the initial prompts of both sides of ``session``."""
        if pack := self._pack(session):
            return render_inception(session, pack)
        if self._answered(session):
            assert self._answer is not None
            names = frozenset(session.values)
            system = compile_template(self._answer["system"], may=names).render(session.values).strip()
            return InceptionPrompts(user="", assistant=system, opening="")
        return replace(_stand_in(session), **_find_given(session))

    def _pack(self, session: Session) -> Pack | None:
        known = session.provenance.prompts_hash
        if known not in self._packs:
            self._packs[known] = find_pack(known)
        return self._packs[known]

    def _answered(self, session: Session) -> bool:
        if self._answer is None or find_kind(session) != "answer":
            return False
        said = f"{self._answer['system']}\0{self._answer['question']}"
        return hashlib.sha256(said.encode()).hexdigest() == session.provenance.prompts_hash


def _find_given(session: Session) -> dict[str, str]:
    """Return the system prompts of an imported conversation by side, as far as its file has them."""
    given = session.provenance.extra.get(SYSTEM, {})
    sides: tuple[Speaker, ...] = ("assistant", "user")
    return {side: given[side] for side in sides if isinstance(given.get(side), str)}


def _stand_in(session: Session) -> InceptionPrompts:
    assistant, user = session.assistant.name, session.user.name
    task = session.task.text
    if find_kind(session) == "answer":
        return InceptionPrompts(
            user="", assistant=render_prompt("unknown_answerer", role=assistant), opening=""
        )
    return InceptionPrompts(
        user=render_prompt("unknown_user", role=user, other=assistant, task=task),
        assistant=render_prompt("unknown_assistant", role=assistant, other=user, task=task),
        opening=render_prompt("unknown_opening"),
    )
