"""A template that a person wrote, in the small part of Jinja that can do no harm."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FILTERS = ("capitalize", "lower", "title", "trim", "upper")
"""Jinja filters a template may use. None of them takes an argument or can grow its input."""

# Loops, arithmetic, attributes, calls and assignments are left out: with them a shared pack could run for
# ever, fill the memory or look into the program. Without them rendering cannot fail.
_ALLOWED_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.If,
    nodes.Not,
    nodes.And,
    nodes.Or,
    nodes.Compare,
    nodes.Operand,
    nodes.Filter,
)
_DEEPEST = 20
_TOO_DEEP = f"is nested more than {_DEEPEST} levels deep"
_FLATTEN = "Take some of the levels out."


class TemplateFault(Exception):
    """What is wrong with a template's source, and in which of its lines (1-based)."""

    def __init__(self, what: str, line: int, next: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.next = next


def compile_template(source: str, *, may: frozenset[str], must: frozenset[str] = frozenset()) -> Template:
    """Check and compile a template that may use some placeholders and must use some of them.

    Raises:
        TemplateFault: it is empty or not valid Jinja, uses more of Jinja than it may, has a placeholder that
            it may not have, or lacks one that it must have.
    """
    if not source.strip():
        raise TemplateFault("is empty", 1, "Write what the model is to be told.")
    if "\0" in source:
        line = source.count("\n", 0, source.index("\0")) + 1
        raise TemplateFault("holds a NUL character", line, "Take it out.")
    environment = _environment()
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        message = (error.message or "").rstrip(".")
        raise TemplateFault(
            f"is not valid Jinja: {message}",
            error.lineno,
            "Mend the template; docs/prompts.md shows what it may hold.",
        ) from error
    except RecursionError as error:
        raise TemplateFault(_TOO_DEEP, 1, _FLATTEN) from error
    used: set[str] = set()
    for node, depth, line in _walk(tree):
        if depth > _DEEPEST:
            raise TemplateFault(_TOO_DEEP, line, _FLATTEN)
        _check_construct(node, line)
        if isinstance(node, nodes.Name):
            _check_placeholder(node, may)
            used.add(node.name)
    if missing := must - used:
        raise TemplateFault(
            f"lacks {_listed(missing)}",
            1,
            f"It uses {_listed(used) or 'no placeholder'}; it must use {_listed(must)}.",
        )
    return environment.from_string(tree)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        autoescape=False,  # the text goes to a model, which must not read "&amp;"
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # A template ends with the line that closes it in the file; the message does not.
        keep_trailing_newline=False,
    )
    environment.globals.clear()
    return environment


def _walk(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int, int]]:
    """Every node with its depth and its line, parents first, without recursion."""
    waiting = [(tree, 0, 1)]
    while waiting:
        node, depth, line = waiting.pop()
        line = getattr(node, "lineno", None) or line  # some nodes have none of their own
        yield node, depth, line
        waiting.extend((child, depth + 1, line) for child in node.iter_child_nodes())


def _check_construct(node: nodes.Node, line: int) -> None:
    match node:
        case nodes.Filter() if node.name not in FILTERS or node.args or node.kwargs:
            refused = f"the filter {node.name!r}, or arguments to it,"
        case nodes.Operand() if node.op not in ("eq", "ne"):
            refused = "a comparison other than == and !="
        case _ if not isinstance(node, _ALLOWED_NODES):
            refused = f"{type(node).__name__!r}"
        case _:
            return
    raise TemplateFault(
        f"uses {refused} which a template may not",
        line,
        "Allowed: {{ placeholder }}, {% if %} with and, or, not, == and !=, "
        f"and the filters {', '.join(FILTERS)} without arguments.",
    )


def _check_placeholder(node: nodes.Name, may: frozenset[str]) -> None:
    if node.name not in may:
        raise TemplateFault(
            f"uses the placeholder {node.name!r}, which it is never given",
            node.lineno,
            f"It may use: {_listed(may) or 'none'}.",
        )


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
