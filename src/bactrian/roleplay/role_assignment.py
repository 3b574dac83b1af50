"""Role assignment: asks a model for the experts that a task needs (paper, appendix)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from pydantic import BaseModel

from bactrian.errors import BadReply
from bactrian.models.model import Model, Request, ResponseFormat, get_traits
from bactrian.options import SamplingSpec
from bactrian.protocol.pack import render_prompt
from bactrian.recipes.parameters import apply_parameters
from bactrian.records.session import Role
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Sampling, Usage
from bactrian.roleplay.response_formats import make_object_schema

_FRUITLESS = 3  # Consecutive answers without a new role before the search gives up.
_ROLES_PER_ANSWER = 20  # Most roles requested in one answer.
_SMALL_ROLES_PER_ANSWER = 1
"""The same for the built-in model, which loses the task before it writes a second role."""
_TOKENS_EACH = 200

_FIELD = re.compile(
    r"^[ \t>#*_-]*(?:\d+[.)][ \t]*)?[*_]*(?P<name>Role|Description|Competenc(?:y|ies))"
    r"(?:[ \t]*#?\d+)?[*_]*[ \t]*:[*_]*[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SuggestedRole:
    """A role that fits a task."""

    name: str
    description: str
    competencies: str

    def role(self) -> Role:
        """Return the role; its description includes the competencies."""
        more = f"{self.description}\nCompetencies: {self.competencies}" if self.competencies else ""
        return Role(self.name, more or self.description)


@dataclass(frozen=True, slots=True)
class RoleSuggestions:
    """The roles found so far, and the usage of the requests."""

    experts: tuple[SuggestedRole, ...]
    usage: Usage = Usage()
    calls: int = 0


class _Expert(BaseModel):
    role: str
    description: str
    competencies: str


class _Experts(BaseModel):
    roles: list[_Expert]


async def find_roles(
    task: str,
    count: int,
    model: Model,
    *,
    language: str | None = None,
    seed: int | None = None,
    temperature: float = 0.7,
    constrained: bool | None = None,
    parameters: tuple[SamplingSpec, ...] = (),
) -> AsyncGenerator[RoleSuggestions]:
    """Ask ``model`` for ``count`` roles that ``task`` needs, with as many requests as it takes.

    Yields the roles so far after every answer. ``constrained`` enforces a response format; None enforces it for a
    model in this process. ``parameters`` replace the default sampling.

    Raises:
        BadReply: three answers in a row contained no new role.
        ModelError: the model does not answer.
    """
    traits = get_traits(model)
    small = traits.small
    enforced = traits.constrained_by == "grammar" if constrained is None else constrained
    suggested = RoleSuggestions(())
    fruitless, names = 0, set[str]()
    while (missing := count - len(suggested.experts)) > 0:
        wanted = min(missing, _SMALL_ROLES_PER_ANSWER if small else _ROLES_PER_ANSWER)
        parts = [
            render_prompt("roles_question_small", task=task)
            if small
            else render_prompt("roles_question", task=task, count=wanted)
        ]
        if suggested.experts:
            taken = "\n".join(f"- {expert.name}" for expert in suggested.experts)
            parts.append(render_prompt("roles_taken", names=taken))
        if language:
            parts.append(render_prompt("roles_language", language=language))
        sampling = Sampling(
            temperature,
            max_tokens=_TOKENS_EACH * wanted + (0 if small else 400),
            seed=None if seed is None else seed + suggested.calls,
        )
        request = Request(
            messages=(Message("user", Text("\n\n".join(parts))),),
            sampling=apply_parameters(sampling, parameters),
            response_format=_build_format(wanted, small=small) if enforced else None,
            session="roles",
            agent="role_assigner",
            call_index=suggested.calls,
            replay_index=suggested.calls,
        )
        reply = await model.reply(request)
        new: list[SuggestedRole] = []
        for expert in read_roles(reply.text):
            if expert.name.casefold() not in names and len(new) < missing:
                names.add(expert.name.casefold())
                new.append(expert)
        fruitless = 0 if new else fruitless + 1
        suggested = RoleSuggestions(
            (*suggested.experts, *new), suggested.usage + reply.usage, suggested.calls + 1
        )
        yield suggested
        if fruitless >= _FRUITLESS:
            raise BadReply(
                f"The model named {len(suggested.experts)} of {count} roles, "
                f"and no new one in {fruitless} answers.",
                where=model.name,
                next="Ask for fewer with count=N, or use another model.",
                sample=reply.raw,
            )


def read_roles(text: str) -> list[SuggestedRole]:
    """Parse the roles in an answer, with any decoration or numbering. Roles without a description are left out."""
    experts: list[SuggestedRole] = []
    fields: dict[str, str] = {}
    marks = list(_FIELD.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=False):
        name = mark["name"].lower()[:4]
        if name == "role":
            experts += _expert(fields)
            fields = {}
        fields.setdefault(name, " ".join(text[mark.end() : end].split()).strip("*_ "))
    return experts + _expert(fields)


def _expert(fields: dict[str, str]) -> list[SuggestedRole]:
    if not (fields.get("role") and fields.get("desc")):
        return []
    name = fields["role"].rstrip(".")[:300]
    return [SuggestedRole(clean_text(name), clean_text(fields["desc"]), clean_text(fields.get("comp", "")))]


def _build_format(count: int, *, small: bool) -> ResponseFormat:
    name = (
        '[A-Z] [a-z]{3,14} (" " [A-Z] [a-z]{3,14})? (" " [A-Z] [a-z]{3,14})?'
        if small
        else "[A-Z] [^\\n:]{2,60}"
    )
    line = '[A-Z] [a-z A-Z,-]{20,140} "."' if small else '[A-Z] [^\\n]{10,400} "."'
    text = {"type": "string"}
    expert = make_object_schema(role=text, description=text, competencies=text)
    return ResponseFormat(
        name="roles",
        schema=make_object_schema(roles={"type": "array", "items": expert}),
        grammar=(
            f"root ::= {' '.join(['expert'] * count)}\n"
            f'expert ::= "Role: " {name} "\\nDescription: " line "\\nCompetencies: " line "\\n\\n"\n'
            f"line ::= {line}\n"
        ),
        read=_from_json,
    )


def _from_json(text: str) -> str:
    return "\n".join(
        f"Role: {expert.role}\nDescription: {expert.description}\nCompetencies: {expert.competencies}\n"
        for expert in _Experts.model_validate_json(text).roles
    )
