"""Prompts: the engine's own templates in ``engine.toml``, and prompt packs with the templates of a session."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import cast

from jinja2 import Template

from bactrian.errors import PromptError
from bactrian.files.template import TemplateFault, compile_template
from bactrian.files.toml import FileKind, TomlSource, suggest_name
from bactrian.records.session import Session, check_text

# The engine's own prompts, rendered as strictly as those of a pack.


OVERRIDABLE = frozenset(
    {
        "critic_nothing_said",
        "critic_proposal",
        "critic_proposals",
        "critic_question",
        "critic_tools",
        "critic_way",
        "critic_ways",
        "draft_note",
    }
)
"""Templates that a pack may replace in a table ``[engine]``: a session's, except those that parsers depend on."""
_ENGINE_KIND = FileKind("engine's prompts", PromptError, "`bactrian help prompts.md`", "prompts")


@dataclass(frozen=True, slots=True)
class EnginePrompts:
    """The engine's templates, each checked when it is first rendered. :func:`load_engine_prompts` reads them."""

    hash: str  # SHA-256, hexadecimal, of the templates as JSON with sorted keys.
    templates: Mapping[str, str]  # The templates' sources, by name.
    placeholders: Mapping[str, frozenset[str]]  # Placeholders of each template.
    _compiled: dict[str, Template] = field(
        default_factory=dict[str, Template], repr=False, compare=False, init=False
    )

    def render(self, name: str, /, **values: str | int) -> str:
        """Fill a template with ``values``, one for each of its placeholders.

        Values are inserted unchanged.

        Raises:
            PromptError: there is no such template, or the values do not match its placeholders.
        """
        template = self._compiled.get(name) or self._compile(name)
        if values.keys() != self.placeholders[name]:
            raise _explain_mismatch(name, values, self.placeholders[name], "engine.toml")
        return template.render({key: str(value) for key, value in values.items()})

    def with_templates(self, templates: Mapping[str, str]) -> EnginePrompts:
        """Return these prompts with some of them replaced."""
        merged = {**self.templates, **templates}
        return EnginePrompts(_hash(merged), MappingProxyType(merged), self.placeholders)

    def _compile(self, name: str) -> Template:
        if name not in self.templates:
            raise PromptError(
                f"There is no template {name!r}.{suggest_name(name, self.templates)}", where="engine.toml"
            )
        self._compiled[name] = compile_template(self.templates[name], may=self.placeholders[name])
        return self._compiled[name]


@cache
def load_engine_prompts() -> EnginePrompts:
    """Read ``engine.toml``, once."""
    text = resources.files("bactrian.protocol").joinpath("engine.toml").read_text("utf-8")
    source = TomlSource("engine.toml", text, _ENGINE_KIND)
    texts = source.subtable(source.table(), "templates")
    templates = {name: source.string(texts, name) for name in texts}
    placeholders = {name: _find_placeholders(text) for name, text in templates.items()}
    return EnginePrompts(_hash(templates), MappingProxyType(templates), MappingProxyType(placeholders))


def render_prompt(name: str, /, **values: str | int) -> str:
    """Fill one of the engine's own templates; see :meth:`EnginePrompts.render`."""
    return load_engine_prompts().render(name, **values)


def _explain_mismatch(
    template: str, values: Mapping[str, object], expected: Set[str], where: str
) -> PromptError:
    return PromptError(
        f"Template {template!r} was given {', '.join(sorted(values)) or 'nothing'}.",
        where=where,
        next=f"It takes {', '.join(sorted(expected)) or 'nothing'}.",
    )


def _hash(templates: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(dict(templates), sort_keys=True).encode()).hexdigest()


def _find_placeholders(template: str) -> frozenset[str]:
    """Return the names that ``template`` uses."""
    tags = re.findall(r"\{\{(.*?)\}\}|\{%-?\s*(?:if|elif)\b(.*?)%\}", template, re.DOTALL)
    words = (word for tag in tags for word in re.findall(r"\"[^\"]*\"|[a-z_]+", "".join(tag)))
    return frozenset(word for word in words if word not in _SYNTAX and not word.startswith('"'))


_SYNTAX = frozenset({"and", "or", "not"})


# The templates of a pack, and the placeholders of each.


_SESSION = frozenset(
    {"task", "assistant_role", "user_role", "assistant_description", "user_description", "language"}
)
_PREPARATION = frozenset({"task", "assistant_role", "user_role", "language"})

# The templates every pack has, and the placeholders each may use.
PLACEHOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "task_specifier": _PREPARATION | {"word_limit"},
        "task_planner": _PREPARATION,
        "assistant_system": _SESSION,
        "user_system": _SESSION,
        "opening_request": _SESSION,
        "critic": _PREPARATION | {"critic_role", "criteria"},
    }
)

# The placeholders each template must use, so that no prompt omits the task or a role by mistake.
NEEDED: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: frozenset[str]() if name == "opening_request" else frozenset({"task"}) for name in PLACEHOLDERS}
)


_KIND = FileKind("prompt pack", PromptError, "`bactrian help prompts.md`", "packs", "protocol/packs")
_KEYS = ("name", "description", "axes", "templates", "engine")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_NO_AXES: Mapping[str, str] = MappingProxyType({})
_AXIS = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAKEN = frozenset[str]().union(*PLACEHOLDERS.values())


@dataclass(frozen=True, slots=True)
class Pack:
    """A checked pack of prompts. :func:`load_pack` makes one."""

    name: str
    description: str
    hash: str
    """SHA-256, hexadecimal, of the templates as JSON with sorted keys. Packs with the same hash render
    the same prompts: comments, layout, line ends, name and description are not part of it."""
    templates: Mapping[str, str]  # The templates' sources, by name.
    axes: tuple[str, ...]  # Axes of a recipe that the templates may use beside their own placeholders.
    engine: EnginePrompts = field(repr=False, compare=False)
    """The engine's own prompts, some of which the pack may replace."""
    _compiled: Mapping[str, Template] = field(repr=False, compare=False)

    def check_axes(self, available: Collection[str], next: str | None = None) -> None:
        """Check that the pack's axes are among ``available``, the axes of the recipe.

        Raises:
            PromptError: an axis is missing; ``next`` says what to do about it.
        """
        if missing := [axis for axis in self.axes if axis not in available]:
            listed = ", ".join(sorted(available))
            has = f"the recipe has {listed}" if listed else "this conversation is not made by a recipe"
            raise PromptError(
                f"The prompt pack {self.name!r} uses the axis {', '.join(map(repr, missing))}, and {has}.",
                where=self.name,
                next=next or "Use another pack, or a recipe with these axes: `bactrian help prompts.md`.",
            )

    def render(self, template: str, axes: Mapping[str, str] = _NO_AXES, /, **values: str | int) -> str:
        """Fill ``template`` with ``values``, which are inserted unchanged.

        ``values`` has one value for each placeholder of the template (:data:`PLACEHOLDERS`), an empty text
        for one that does not apply. ``axes`` has the session's item of each axis that the pack uses.

        Raises:
            PromptError: there is no such template, or the values do not match its placeholders.
            InputError: a value cannot be sent or stored (see :func:`~bactrian.records.session.check_text`).
        """
        if template not in PLACEHOLDERS:
            raise PromptError(
                f"There is no template {template!r}.{suggest_name(template, PLACEHOLDERS)}",
                where=self.name,
                next=f"Templates: {', '.join(PLACEHOLDERS)}.",
            )
        if values.keys() != PLACEHOLDERS[template]:
            raise _explain_mismatch(template, values, PLACEHOLDERS[template], self.name)
        self.check_axes(axes)
        values |= {axis: axes[axis] for axis in self.axes}
        for placeholder, value in values.items():
            check_text(str(value), placeholder, None)
        return self._compiled[template].render(values)


def list_packs() -> tuple[str, ...]:
    """Return the names of the built-in packs."""
    return _KIND.list_built_in()


def find_pack(pack_hash: str) -> Pack | None:
    """Return the built-in pack with this hash, or None."""
    return next((pack for pack in map(load_pack, list_packs()) if pack.hash == pack_hash), None)


def load_pack(name_or_path: str | Path) -> Pack:
    """Read and check a pack: a built-in one by its name, or a file by its path.

    A built-in name takes precedence; ``./ai-society`` is always a file.

    Raises:
        PromptError: the file cannot be read, is not TOML, has unknown keys, lacks a template, or has an invalid one.
    """
    return _pack(_KIND.find(str(name_or_path)))


@lru_cache(maxsize=32)  # compiling the templates takes some milliseconds
def _pack(source: TomlSource) -> Pack:
    data = source.table()
    source.check_keys(data, known=_KEYS, needed=("name", "templates"), kind="key")
    name = source.string(data, "name")
    if not _NAME.fullmatch(name):
        raise source.error(
            f"{name!r} cannot be the name of a pack.",
            "name",
            "Use up to 64 lower-case letters, digits and hyphens.",
        )
    texts = source.subtable(data, "templates")
    source.check_keys(texts, known=PLACEHOLDERS, needed=PLACEHOLDERS, kind="template")
    templates = {key: source.string(texts, key) for key in PLACEHOLDERS}
    axes = _read_axes(source, data)
    engine = _read_engine_templates(source, data)
    return Pack(
        name=name,
        description=source.string(data, "description") if "description" in data else "",
        hash=_hash({**templates, "engine": engine} if engine else templates),
        templates=MappingProxyType(templates),
        axes=axes,
        engine=load_engine_prompts().with_templates(engine) if engine else load_engine_prompts(),
        _compiled=MappingProxyType(
            {
                key: _compile(source, key, text, may=PLACEHOLDERS[key].union(axes), must=NEEDED[key])
                for key, text in templates.items()
            }
        ),
    )


def _read_axes(source: TomlSource, data: Mapping[str, object]) -> tuple[str, ...]:
    """Return the axes of a recipe that the pack may use."""
    listed = data.get("axes", [])
    if not isinstance(listed, list):
        raise source.error("'axes' is not a list.", "axes", 'Write the names in brackets: axes = ["domain"].')
    names: list[str] = []
    for name in cast("list[object]", listed):
        if not isinstance(name, str) or not _AXIS.fullmatch(name) or name in (*_TAKEN, *names):
            raise source.error(
                f"{name!r} cannot be an axis of a pack.",
                "axes",
                "Name each axis of the recipe once: lower-case letters, digits and underscores, and none of "
                f"{', '.join(sorted(_TAKEN))}.",
            )
        names.append(name)
    return tuple(names)


def _read_engine_templates(source: TomlSource, data: Mapping[str, object]) -> dict[str, str]:
    """Return the checked templates of the table ``engine``, which replace the engine's own."""
    if "engine" not in data:
        return {}
    texts = source.subtable(data, "engine")
    source.check_keys(texts, known=OVERRIDABLE, needed=(), kind="template")
    templates = {key: source.string(texts, key) for key in texts}
    for key, text in templates.items():
        names = load_engine_prompts().placeholders[key]
        _compile(source, key, text, may=names, must=names)
    return templates


def _compile(
    source: TomlSource, key: str, text: str, *, may: frozenset[str], must: frozenset[str]
) -> Template:
    try:
        return compile_template(text, may=may, must=must)
    except TemplateFault as fault:
        raise source.error(f"Template {key!r}, line {fault.line}, {fault.what}.", key, fault.next) from fault


# The prompts of a session (paper, section 3.2).


def render_session(template: str, session: Session, pack: Pack, **more: str | int) -> str:
    """Fill a template of ``pack`` with the roles and the task of ``session``, and with ``more``.

    The session's preamble comes before it, unless it is the opening request, which is no instruction to an agent.

    Raises:
        PromptError: the pack cannot be rendered with them.
        InputError: a role or the task contains characters that cannot be sent.
    """
    values = {
        "task": session.task.text,
        "assistant_role": session.assistant.name,
        "user_role": session.user.name,
        "assistant_description": session.assistant.description,
        "user_description": session.user.description,
        "language": session.provenance.language or "",
    }
    used = {name: value for name, value in values.items() if name in PLACEHOLDERS[template]}
    text = pack.render(template, session.values, **used, **more)
    preamble = session.provenance.preamble
    return f"{preamble}\n\n{text}" if preamble and template != "opening_request" else text
