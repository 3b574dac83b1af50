"""The inception prompts of a session (paper, section 3.2): its system prompts and first message."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.prompts.pack import Pack
from bactrian.records.session import Session


@dataclass(frozen=True, slots=True)
class InceptionPrompts:
    """The initial prompts of a session's two agents."""

    user: str
    """System prompt of the AI user."""
    assistant: str
    """System prompt of the AI assistant."""
    opening: str
    """First message to the AI user."""


def render_inception(session: Session, pack: Pack) -> InceptionPrompts:
    """Fill ``pack`` with the roles and the task of ``session``.

    Raises:
        PromptError: the pack cannot be rendered with them.
        InputError: a role or the task contains characters that cannot be sent.
    """
    origin = session.provenance
    values = {
        "task": session.task.text,
        "assistant_role": session.assistant.name,
        "user_role": session.user.name,
        "assistant_description": session.assistant.description,
        "user_description": session.user.description,
        "language": origin.language or "",
    }
    before = f"{origin.preamble}\n\n" if origin.preamble else ""
    return InceptionPrompts(
        user=before + pack.render("user_system", session.values, **values),
        assistant=before + pack.render("assistant_system", session.values, **values),
        opening=pack.render("opening_request", session.values, **values),
    )


def render_criticism(session: Session, pack: Pack, *, role: str, criteria: str) -> str:
    """Return the system prompt of a critic that chooses between proposals by ``criteria``.

    Raises:
        PromptError: the pack cannot be rendered with them.
        InputError: a role or the task contains characters that cannot be sent.
    """
    before = f"{session.provenance.preamble}\n\n" if session.provenance.preamble else ""
    return before + pack.render(
        "critic",
        session.values,
        task=session.task.text,
        assistant_role=session.assistant.name,
        user_role=session.user.name,
        language=session.provenance.language or "",
        critic_role=role,
        criteria=criteria,
    )
