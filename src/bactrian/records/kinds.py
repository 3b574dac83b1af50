"""What a session is: a role-play, a translation of one, or a question and its answer."""

from __future__ import annotations

from typing import Literal

from bactrian.records.session import Session

Kind = Literal["role-play", "translation", "answer", "talk"]


def find_kind(session: Session) -> Kind:
    """The kind of ``session``, by who took part in it."""
    if session.provenance.cast:
        return "talk"
    agents = session.provenance.models.keys()
    if "translator" in agents:
        return "translation"
    alone = "assistant" in agents and "user" not in agents
    return "answer" if alone else "role-play"
