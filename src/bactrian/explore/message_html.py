"""A message as people read it: its Markdown, tables, code and formulas as HTML, with the marks of evidence and hits.

No HTML of a message is interpreted, no picture is loaded, and only addresses of the web become links.
"""

# ruff: noqa: ARG002 (the parser calls each method of the renderer with the same arguments)

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import groupby
from keyword import kwlist
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, fromstring

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from bactrian.blocks import MarkedSpan, make_visible

if TYPE_CHECKING:
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from math_core import LatexToMathML

# The label of words of the search. Those of evidence are the numbers of the findings, from 1.
HIT = 0
# Characters of a block of code that are coloured, and of a formula that is laid out; formulas of a text that are.
LONGEST_CODE, _LONGEST_FORMULA, MOST_FORMULAS = 20_000, 1000, 500

# The classes of code that have colours: keywords, operators, texts (``s``), comments and numbers (``m``).
_PYTHON = re.compile(
    r"(?P<c>#[^\n]*)"
    r"|(?P<s>(?i:\b[bfru]{1,2})?(?:\'{3}.*?(?:\'{3}|\Z)|\"{3}.*?(?:\"{3}|\Z)|\'(?:[^\'\\\n]|\\.)*\'?|\"(?:[^\"\\\n]|\\.)*\"?))"
    rf"|(?P<k>\b(?:{'|'.join(kwlist)})\b)|(?P<m>\b\d[\w.]*)|(?P<o>[-+*/%@&|^~<>=!]+)",
    re.S,
)

# Other languages, by how their comments are written. Each expression takes time in proportion to the code, whatever
# that is: a piece that begins is taken to its end. The lexers of a library do not: some lists of words take minutes.
_WORDS = (
    "abstract and as async await bool boolean break case catch char class const continue def default defer"
    " delete do done double elif else elseif elsif end enum esac export extends extern false fi final finally"
    " float fn for foreach from func function go goto if impl implements import in instanceof int interface is"
    " lambda let local long loop match mod module mut namespace new nil not null of or override package"
    " private protected pub public raise register require return self short signed sizeof static string struct"
    " super switch then this throw throws trait true try type typedef typeof union unsigned until use using"
    " val var virtual void volatile where while with yield"
)
_QUERY = (
    "all alter and as asc by case create delete desc distinct drop else end exists from group having in index"
    " inner insert into is join left limit not null on or order outer primary key references right select set"
    " table then union unique update values view when where with"
)


def _write_lexer(comment: str, words: str, flags: str = "") -> re.Pattern[str]:
    return re.compile(
        rf"(?s{flags})(?P<c>{comment})"
        r"|(?P<s>\"(?:[^\"\\\n]|\\.)*\"?|\'(?:[^\'\\\n]|\\.){0,80}\'|`(?:[^`\\]|\\.)*(?:`|\Z))"
        rf"|(?P<k>\b(?:{'|'.join(words.split())})\b)|(?P<m>\b\d[\w.]*)|(?P<o>[-+*/%@&|^~<>=!]+)"
    )


_LEXERS = {
    language: lexer
    for names, lexer in (
        (
            "c c# c++ cpp cs csharp css dart go h java javascript js json kotlin php rust scala swift ts typescript",
            _write_lexer(r"//[^\n]*|/\*.*?(?:\*/|\Z)", _WORDS),
        ),
        (
            "bash console dockerfile elixir ini julia makefile perl powershell r rb ruby sh shell toml yaml yml zsh",
            _write_lexer(r"\#[^\n]*", _WORDS),
        ),
        ("sql mysql postgresql sqlite", _write_lexer(r"--[^\n]*|/\*.*?(?:\*/|\Z)", _QUERY, "i")),
        ("ada haskell hs lua", _write_lexer(r"--[^\n]*", _WORDS)),
        ("erlang latex matlab octave prolog tex", _write_lexer(r"%[^\n]*", _WORDS)),
        ("python py python3", _PYTHON),
    )
    for language in names.split()
}

# A place where a mark begins or ends is one character of this private plane, whose number tells which place it is.
_PLACE = 0xF0000
_MOST_PLACES = 0xFFFD
_PLACES = re.compile(f"[{chr(_PLACE)}-{chr(_PLACE + _MOST_PLACES)}]")
# What begins a line and is no text: a mark begins after it. Whole lines of signs, fences and empty lines.
_NO_TEXT = re.compile(r"[ \t]*(?:(?:```|~~~)[^\n]*|[-|:=*_ \t]*)(?:\n|\Z)")
_LEAD = re.compile(r"[ \t]*(?:(?:[>*+-]|#{1,6}|\d{1,9}[.)]|\|)[ \t]*)*")
# What can make a line more than text.
_MARKUP = re.compile(r"[*_`~$\\\[<&]")
_SIGNS = re.compile(r"[*_`~$\\]+")
_ADDRESS = re.compile(r"\]\([^()\s]*\)|<https?:[^<>\s]*>")
_FORMULA = re.compile(
    r"\\\((?P<a>[^\n]{1,1000}?)\\\)|\\\[(?P<b>.{1,1000}?)\\\]|\$\$(?P<c>.{1,1000}?)\$\$"
    r"|(?<![\w$])\$(?![\s$])(?P<d>[^$\n]{0,1000}[^$\s\\])\$(?![\w$])",
    re.S,
)
# More levels than the parser reads. What it does not read would be lost, so such a text stays as it is written.
_TOO_DEEP = re.compile(r"^(?:[ \t]*[>*+-]){18}|^[ \t]{36}", re.M)
# The time that the parser takes grows with their square.
_MOST_BRACKETS = 1000
# What models write and the library does not know, or only within an equation with a number.
_COMMANDS = {
    "mathds": r"\mathbb{#1}",
    "mbox": r"\text{#1}",
    "pmb": r"\boldsymbol{#1}",
    "substack": r"\begin{matrix}#1\end{matrix}",
    "tag": r"\qquad\text{(#1)}",
}
# The style of a cell: equations that stand below each other meet at their signs.
_CELL = re.compile("text-align: (left|right)")
_MATHS = frozenset(
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom menclose msub msup msubsup munder"
    " mover munderover mmultiscripts mprescripts mtable mtr mtd".split()
)
_ATTRIBUTES = frozenset(
    "display displaystyle scriptlevel stretchy symmetric form accent accentunder mathvariant linethickness notation"
    " width height depth lspace rspace minsize maxsize".split()
)
_BLOCKS = frozenset("paragraph_open list_item_open heading_open th_open td_open blockquote_open".split())


@lru_cache(maxsize=256)
def render_markdown(text: str, marks: tuple[MarkedSpan[int], ...] = ()) -> Markup:
    """Return ``text`` as HTML, in which ``marks`` stand."""
    text = _PLACES.sub("\ufffd", text)
    places = [
        (at, _shift(text, at)) for at in sorted({at for mark in marks for at in (mark.begin, mark.end)})
    ]
    places = [(at, shown) for at, shown in places if shown < len(text)][:_MOST_PLACES]
    states: list[tuple[int, ...]] = [
        tuple(dict.fromkeys(mark.label for mark in marks if mark.begin <= at < mark.end)) for at, _ in places
    ]
    parts, last = list[str](), 0
    for number, (_, shown) in enumerate(places):
        parts += [text[last : max(shown, last)], chr(_PLACE + number)]
        last = max(shown, last)
    source = "".join(parts) + text[last:]
    env: dict[str, Any] = {"states": states, "now": (), "links": [], "formulas": 0}
    if _TOO_DEEP.search(source) or source.count("[") > _MOST_BRACKETS:
        return Markup(f'<p class="prose" dir="auto">{"".join(_mark(source, env))}</p>')  # noqa: S704
    return Markup(_get_parser().render(source, env).strip())  # noqa: S704 (every text in it is escaped)


def _shift(text: str, at: int) -> int:
    """Return where a mark that begins or ends at ``at`` can stand without changing what the text means."""
    line = text.rfind("\n", 0, at) + 1
    while at < len(text) and (signs := _NO_TEXT.match(text, line)) and at < signs.end():
        at = line = signs.end()
    lead = _LEAD.match(text, line)
    at = max(at, lead.end()) if lead else at
    signs = _SIGNS.search(text, max(at - 20, line), at + 20)
    while signs and signs.end() <= at:
        signs = _SIGNS.search(text, signs.end(), at + 20)
    if signs and signs.start() < at:
        at = signs.end()
    for address in _ADDRESS.finditer(text, line, at + 2000):
        if address.start() < at < address.end():
            return address.end()
    return at


@cache
def _get_parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "breaks": True, "maxNesting": 40}, renderer_cls=_Renderer
    )
    parser.enable(["table", "strikethrough"])
    # A definition far from its link would take text away from where it stands.
    parser.disable(["reference", "html_block", "html_inline"])
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.core.ruler.at("inline", _read_inline)
    parser.validateLink = lambda url: url.startswith(("http://", "https://"))  # type: ignore[method-assign]
    return parser


def _read_inline(state: StateCore) -> None:
    """Read what is within blocks. Most lines have no sign of Markdown, for which the parser need not look."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = children = list[Token]()
        if _MARKUP.search(token.content):
            state.md.inline.parse(token.content, state.md, state.env, children)
            continue
        for number, line in enumerate(token.content.split("\n")):
            if number:
                children.append(Token("hardbreak", "br", 0))
            children.append(Token("text", "", 0, content=line.strip(" ")))


def _read_formula(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\" or not (found := _FORMULA.match(state.src, state.pos)):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup = found[0], found[found.lastgroup or 0]
        token.info = "block" if found.lastgroup in ("b", "c") else "inline"
    state.pos = found.end()
    return True


class _Renderer(RendererHTML):
    """Renders tokens, each text with its marks and with its unseen characters as signs."""

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        return "".join(_mark(tokens[idx].content, env))

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<code>{''.join(_mark(tokens[idx].content, env))}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self.fence(tokens, idx, options, env)

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        code = tokens[idx].content.rstrip()
        language = _PLACES.sub("", tokens[idx].info).strip().partition(" ")[0]
        if env["now"] or _PLACES.search(code):
            shown = "".join(_mark(code, env))
        else:
            shown = "".join(
                f'<span class="t-{kind}">{_escape(part)}</span>' if kind else _escape(part)
                for part, kind in tokenize_code(code, language.lower())
            )
        name = f"Code, {_escape(language)}" if language else "Code"
        return f'<pre tabindex="0" role="group" aria-label="{name}"><code>{shown}</code></pre>\n'

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        """Name a picture, and load nothing."""
        address = f"{tokens[idx].attrGet('src') or ''}"
        return f"⟨picture: {''.join(_mark(tokens[idx].content, env))} {_link(address, _escape(address))}⟩"

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        address = f"{tokens[idx].attrGet('href') or ''}"
        env["links"].append("" if tokens[idx].info == "auto" else urlsplit(address).netloc)
        return _link(address, "").removesuffix("</a>")

    def link_close(
        self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        """Say where a link leads, whatever its words say."""
        host = env["links"].pop() if env["links"] else ""
        return f'</a> <span class="soft">({_escape(host)})</span>' if host else "</a>"

    def formula(self, tokens: Sequence[Token], idx: int, options: Any, env: MutableMapping[str, Any]) -> str:
        token = tokens[idx]
        places = "".join(_PLACES.findall(token.content))
        env["formulas"] += 1
        # Laying out thousands of them takes seconds.
        source = _PLACES.sub("", token.markup).strip() if env["formulas"] <= MOST_FORMULAS else ""
        shown = (
            _layout_formula(source, token.info) or f"<code>{_escape(_PLACES.sub('', token.content))}</code>"
        )
        before = env["now"]
        list(_mark(places, env))
        return f'<mark class="finding">{shown}</mark>' if before or any(env["now"]) else shown

    def table_open(self, *_: Any) -> str:
        return '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>'

    def table_close(self, *_: Any) -> str:
        return "</table></div>"

    def renderToken(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:  # noqa: N802
        token = tokens[idx]
        if token.hidden:
            return ""
        is_heading = token.type.startswith("heading_")
        tag = "h3" if is_heading else token.tag  # All have one level, below the message's own.
        if token.nesting < 0:
            return f"</{tag}>\n" if token.block else f"</{tag}>"
        given = f' class="level-{token.tag[1:]}"' if is_heading else ""
        if token.attrs:  # The policy of the pages permits no styles in tags.
            style = token.attrs.pop("style", "")
            given += ' class="n"' if "right" in f"{style}" else self.renderAttrs(token)
        return f'<{tag}{given} dir="auto">' if token.type in _BLOCKS else f"<{tag}{given}>"


def _escape(text: str) -> str:
    return escapeHtml(make_visible(text))


def _link(address: str, words: str) -> str:
    return f'<a href="{escapeHtml(address)}" rel="noopener noreferrer nofollow">{words}</a>'


def _mark(text: str, env: MutableMapping[str, Any]) -> Iterator[str]:
    """Yield ``text`` with its marks; the number of a finding stands where its words begin."""
    if not env["states"]:
        yield _escape(text)
        return
    fresh: tuple[int, ...] = ()
    for part in re.split(f"({_PLACES.pattern})", text):
        if _PLACES.fullmatch(part):
            new = env["states"][ord(part) - _PLACE]
            fresh = tuple(label for label in new if label and label not in env["now"])
            env["now"] = new
        elif part:
            shown = _escape(part)
            if labels := env["now"]:
                numbers = "".join(
                    f'<sup><a href="#finding-{number}" aria-label="Finding {number}">{number}</a></sup>'
                    for number in fresh
                )
                kinds = " ".join((*(["finding"] if any(labels) else []), *(["hit"] if HIT in labels else [])))
                shown = f'<mark class="{kinds}">{numbers}{shown}</mark>'
            fresh = ()
            yield shown


@cache
def _get_typesetter() -> LatexToMathML:
    from math_core import LatexToMathML

    # What a formula defines cannot make it long.
    return LatexToMathML(
        fancy_error=False, max_expansions=100, allow_unreliable_rendering=True, macros=_COMMANDS
    )


@lru_cache(maxsize=1024)
def _layout_formula(source: str, display: str) -> str:
    """Return a formula as MathML; empty if it cannot be laid out."""
    if not 0 < len(source) <= _LONGEST_FORMULA:
        return ""
    # Errors of LaTeX, XML and Unicode: the formula then stays as it is written.
    with suppress(Exception):
        source = source.replace("{split}", "{aligned}")
        shown = _get_typesetter().convert_with_local_state(source, displaystyle=display == "block")
        shown = shown.replace("&ApplyFunction;", "\u2061")
        return _write_maths(fromstring(shown))  # noqa: S314 (no entities: the library escapes what it is given)
    return ""


def _write_maths(element: Element) -> str:
    """Write MathML with known elements and attributes only: LaTeX can ask for links, styles and classes."""
    inside = _escape(element.text or "") + "".join(map(_write_maths, element))
    if element.tag not in _MATHS:
        return f"<mrow>{inside}</mrow>"
    given = "".join(
        f' {name}="{escapeHtml(value)}"' for name, value in element.items() if name in _ATTRIBUTES
    )
    if cell := _CELL.match(element.get("style", "")):
        given += f' class="{cell[1]}{" close" if f"padding-{cell[1]}: 0" in cell.string else ""}"'
    return f"<{element.tag}{given}>{inside}</{element.tag}>"


@lru_cache(maxsize=256)
def tokenize_code(code: str, language: str) -> tuple[tuple[str, str], ...]:
    """Return code as pieces with the classes of their colours; as one piece if its language is unknown."""
    lexer = _LEXERS.get(language) if len(code) <= LONGEST_CODE else None
    if lexer is None:
        return ((code, ""),)
    kinds = groupby(_lex(code, lexer), itemgetter(1))
    return tuple(("".join(text for text, _ in some), kind) for kind, some in kinds)


def _lex(code: str, lexer: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield pieces of code, each with the class of its colour."""
    last = 0
    for found in lexer.finditer(code):
        if last < found.start():
            yield code[last : found.start()], ""
        yield found[0], found.lastgroup or ""
        last = found.end()
    if last < len(code):
        yield code[last:], ""
