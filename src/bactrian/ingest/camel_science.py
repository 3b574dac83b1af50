"""CAMEL's problems and solutions (math, physics, chemistry, biology): one JSON object for each."""

from __future__ import annotations

from bactrian.ingest.parsed import (
    NotAChat,
    Origin,
    ParsedMessage,
    Row,
    build_turns,
    collect_extra,
    pick_extra,
    read_id,
    read_name,
    read_text,
)
from bactrian.records.ending import Ending
from bactrian.records.session import Role, Session, Task
from bactrian.tables.camel import read_role

FORM = "camel-science"
_KNOWN = frozenset(("role_1", "topic", "topic;", "sub_topic", "message_1", "message_2", "id", "mark"))


def read_problem(row: Row, origin: Origin) -> Session:
    """Return the session of a problem: its question and its answer.

    Raises:
        NotAChat: problem or solution is missing.
    """
    problem = row.lower
    question, answer = problem.get("message_1"), problem.get("message_2")
    if not (isinstance(question, str) and isinstance(answer, str)):
        raise NotAChat("it has no problem and solution as message_1 and message_2")
    if not question.strip():
        raise NotAChat("its problem is empty")
    role = read_name(read_role(problem.get("role_1"))[0], "Assistant")
    said = (ParsedMessage(1, "user", "User", question), ParsedMessage(2, "assistant", role, answer))
    turns = build_turns(said, origin.model)
    topics = {
        "topic": read_text(problem, "topic;") or read_text(problem, "topic"),
        "sub_topic": read_text(problem, "sub_topic"),
    }
    return Session(
        id=read_id(problem.get("id"), row.stem),
        assistant=Role(role),
        user=Role("User"),
        task=Task(str(turns[0].text)),
        provenance=origin.provenance(
            FORM, collect_extra(pick_extra(row.content, _KNOWN), ()), agents=("assistant",)
        ),
        turns=turns,
        ending=Ending("answered", 2, "assistant", ""),
        values={name: text for name, text in topics.items() if text},
        mark=read_text(problem, "mark") or None,
    )
