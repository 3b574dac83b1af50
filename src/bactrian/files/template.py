"""User-written templates, restricted to a safe subset of Jinja."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Jinja filters a template may use. None of them takes an argument or can grow its input.
FILTERS = ("capitalize", "lower", "title", "trim", "upper")

# Loops, arithmetic, attributes, calls and assignments are left out: with them, a shared pack could run forever,
# exhaust the memory or read the program's data. Without them, rendering cannot fail.
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
_MAX_DEPTH = 20
_TOO_DEEP = f"is nested more than {_MAX_DEPTH} levels deep"
_FLATTEN = "Remove some of the levels."


class TemplateFault(Exception):
    """A fault in a template's source, with its line (1-based)."""

    def __init__(self, what: str, line: int, next: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.next = next


def compile_template(source: str, *, may: frozenset[str], must: frozenset[str] = frozenset()) -> Template:
    """Check a template as :func:`check_template` does, and compile it."""
    tree = check_template(source, may=may, must=must)
    assert tree.environment is not None
    return tree.environment.from_string(tree)


def check_template(source: str, *, may: frozenset[str], must: frozenset[str] = frozenset()) -> nodes.Template:
    """Parse a template that may use the placeholders ``may`` and must use the placeholders ``must``.

    Raises:
        TemplateFault: the template is empty or not valid Jinja, uses a construct or a placeholder that is not
            allowed, or lacks a required placeholder.
    """
    if not source.strip():
        raise TemplateFault("is empty", 1, "Write the text for the model.")
    if "\0" in source:
        line = source.count("\n", 0, source.index("\0")) + 1
        raise TemplateFault("contains a NUL character", line, "Remove it.")
    try:
        tree = _make_environment().parse(source)
    except TemplateSyntaxError as error:
        raise TemplateFault(
            "is not valid Jinja: " + (error.message or "").rstrip("."),
            error.lineno,
            "Correct the template; `bactrian help prompts.md` shows what it may contain.",
        ) from error
    except RecursionError as error:
        raise TemplateFault(_TOO_DEEP, 1, _FLATTEN) from error
    used: set[str] = set()
    for node, depth, line in _walk(tree):
        if depth > _MAX_DEPTH:
            raise TemplateFault(_TOO_DEEP, line, _FLATTEN)
        _check_construct(node, line)
        if isinstance(node, nodes.Name):
            _check_placeholder(node, may)
            used.add(node.name)
    if missing := must - used:
        raise TemplateFault(
            f"lacks {_join_names(missing)}",
            1,
            f"It uses {_join_names(used) or 'no placeholder'}; it must use {_join_names(must)}.",
        )
    return tree


def _make_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        autoescape=False,  # the text goes to a model, which must not read "&amp;"
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # In the file, the template ends with a newline; the message does not.
        keep_trailing_newline=False,
    )
    environment.globals.clear()
    return environment


def _walk(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int, int]]:
    """Yield every node with its depth and line, parents first, without recursion."""
    stack = [(tree, 0, 1)]
    while stack:
        node, depth, line = stack.pop()
        line = getattr(node, "lineno", None) or line  # some nodes have no line
        yield node, depth, line
        stack.extend((child, depth + 1, line) for child in node.iter_child_nodes())


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
        f"uses {refused} which is not allowed in a template",
        line,
        "Allowed: {{ placeholder }}, {% if %} with and, or, not, == and !=, "
        f"and the filters {', '.join(FILTERS)} without arguments.",
    )


def _check_placeholder(node: nodes.Name, may: frozenset[str]) -> None:
    if node.name not in may:
        raise TemplateFault(
            f"uses the placeholder {node.name!r}, which is not defined for it",
            node.lineno,
            f"It may use: {_join_names(may) or 'none'}.",
        )


def _join_names(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
