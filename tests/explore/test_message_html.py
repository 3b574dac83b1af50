"""A message is shown as people read it, and no text of a model becomes anything but text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect

from bactrian.blocks import MarkedSpan
from bactrian.explore.message_html import LONGEST_CODE, MOST_FORMULAS, render_markdown, tokenize_code
from bactrian.explore.rendering import read_asset
from tests.helpers.explorer import RunningExplorer
from tests.helpers.texts import CHARACTERS

TAGS = set(
    "p h3 ul ol li blockquote pre code span strong em s br hr a mark sup div table thead tbody tr th td".split()
)
ATTRIBUTES = {"dir", "class", "href", "rel", "tabindex", "role", "aria-label", "start"}


class Reader(HTMLParser):
    """What a browser makes of a message: its tags, its attributes and its text."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.given: list[tuple[str, str]] = []
        self.text = ""
        self.maths: set[str] = set()
        self.feed(shown)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        (self.maths if tag.startswith("m") and tag != "mark" else self.tags).add(tag)
        self.given += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_of_very_many_formulas_the_later_ones_stay_as_they_are_written() -> None:
    shown = render_markdown(" ".join(["$a$"] * (MOST_FORMULAS + 1)))
    assert shown.count("<math") == MOST_FORMULAS
    assert shown.endswith("<code>$a$</code></p>")


def test_tables_lists_code_and_formulas_are_laid_out() -> None:
    shown = render_markdown(
        "# Plan\n**Now** it costs $5 and $10, and $a^2$.\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n"
        "- one\n\n```python\ndef f(): pass\n```\n\\[\n\\frac{1}{2}\n\\]"
    )
    for part in (
        '<h3 class="level-1" dir="auto">Plan</h3>',
        "<strong>Now</strong>",
        "costs $5 and $10",
        "<msup><mi>a</mi><mn>2</mn></msup>",
        '<td class="n" dir="auto">2</td>',
        '<li dir="auto">one</li>',
        '<span class="t-k">def</span>',
        '<math display="block"><mfrac>',
    ):
        assert part in shown


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (
            r"\begin{split} a &= b \\ c &= d \end{split}",
            '<mtd class="right close"><mi>a</mi></mtd><mtd class="left close">',
        ),
        (r"\sum_{\substack{i<j\\k}} x", "<mi>i</mi><mo>&lt;</mo><mi>j</mi>"),
        (r"E = mc^2 \tag{1}", "<mtext>(1)</mtext>"),
        (r"\sin(x) \mbox{ if } \unknown", r"<code>$$\sin(x) \mbox{ if } \unknown$$</code>"),
        (r"\cos(x) \mbox{ now}", "<mi>cos</mi>"),
        (r"\newcommand{\a}{\a\a} \a", r"<code>$$\newcommand{\a}{\a\a} \a$$</code>"),
    ],
)
def test_what_models_write_in_formulas_is_laid_out_or_stays_as_written(formula: str, shown: str) -> None:
    assert shown in render_markdown(f"$${formula}$$")


def test_evidence_is_marked_across_the_signs_of_markdown() -> None:
    text = "- I will **do it** now.\n- Wait\n\nIt ends."
    shown = render_markdown(text, (MarkedSpan(0, text.index("\n\n"), 3), MarkedSpan(11, 13, 0)))
    marked = re.sub(r"<sup>.*?</sup>", "", "".join(re.findall(r"<mark[^>]*>(.*?)</mark>", shown)))
    assert marked == "I will do it now.Wait"
    assert shown.count('href="#finding-3"') == 1
    assert "<ul>" in shown
    assert "<strong>" in shown


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script><img src=x onerror=alert(1)>",
        "[a](javascript:alert(1)) [b](data:text/html,x) [c](/play?token=1) <javascript:alert(1)>",
        r"$\href{javascript:alert(1)}{x} \text{<script>alert(1)</script>} \style{color:red}{y} \class{z}{w}$",
        "![x](http://elsewhere.example/a.png)",
        '[x](https://e.example "onmouseover=alert(1)") <a href=javascript:a>',
        '```x" onfocus="alert(1)\n</code></pre><script>a</script>\n```',
        "|a|\n|:-:|\n|<b>|",
        "\U000f0000\U000ffffd [\U000f0001](https://e.example)",
    ],
)
def test_a_hostile_text_stays_text(text: str) -> None:
    read = Reader(render_markdown(text))
    assert read.tags <= TAGS
    assert all(name in ATTRIBUTES or read.maths for name, _ in read.given)
    assert not any(name.startswith("on") or name == "style" for name, _ in read.given)
    assert all(value.startswith("http") for name, value in read.given if name == "href")


@pytest.mark.parametrize(
    ("code", "coloured"),
    [
        ("def f(x):\n    return x + 1  # add", "k:def k:return o:+ m:1 c:# add"),
        (
            '"""Doc\n\'s""" != rb\'a\\\'b\' if "# no" else "open\nx',
            's:"""Doc\n\'s""" o:!= s:rb\'a\\\'b\' k:if s:"# no" k:else s:"open',
        ),
        ("classes = define(x2, 0x1f, 'a'", "o:= m:0x1f s:'a'"),
    ],
)
def test_python_is_coloured_without_losing_a_character(code: str, coloured: str) -> None:
    pieces = tokenize_code(code, "python")
    assert "".join(text for text, _ in pieces) == code
    assert " ".join(f"{kind}:{text}" for text, kind in pieces if kind) == coloured


def test_code_of_other_languages_is_coloured_in_few_pieces() -> None:
    pieces = tokenize_code("int main(void) { return 0; } // end", "c")
    assert [text for text, kind in pieces if kind == "c"] == ["// end"]
    assert all(before[1] != after[1] for before, after in pairwise(pieces))


def test_a_link_says_where_it_leads() -> None:
    assert "(evil.example)" in Reader(render_markdown("[bank.example](https://evil.example/x)")).text


@example("\U000f0000**`$", 0, 4)
@example("```\nab\n```", 1, 8)
@given(st.text(CHARACTERS, max_size=200), st.integers(0, 200), st.integers(1, 60))
def test_every_text_is_shown_whatever_marks_it_has(text: str, begin: int, length: int) -> None:
    marked = MarkedSpan(min(begin, len(text)), min(begin + length, len(text)), 1)
    shown = render_markdown(text, (marked,))
    assert Reader(shown).tags <= TAGS
    read = Reader(re.sub("<sup>.*?</sup>", "", shown)).text
    if not set(text) & set("`~&$\\]"):  # Names of languages, codes of signs, and formulas are read otherwise.
        assert set(re.findall("[a-z]{2,}", text)) <= set(re.findall("[a-z]{2,}", read))


@pytest.mark.parametrize("language", ["c", "bash", "sql", "lua", "matlab", "python"])
@pytest.mark.parametrize("part", ["\n", "a\n", "'\\", '"\\', "/*", "a<"])
def test_code_that_is_made_to_hold_a_highlighter_up_is_coloured_to_its_end(language: str, part: str) -> None:
    code = part * (LONGEST_CODE // len(part) - 1) + "x"
    assert "".join(text for text, _ in tokenize_code(code, language)) == code


@pytest.mark.parametrize("language", ["csharp", "autoit"])
def test_a_list_of_words_that_is_called_code_is_shown_in_a_moment(language: str) -> None:
    # A highlighter of general use takes minutes for it.
    assert "last" in Reader(render_markdown(f"```{language}\n" + "word\n" * 3000 + "last\n```")).text


@pytest.mark.parametrize("part", ["[", "![", "> ", "*a ", "\\[", "[a](", "`" * 7 + "a", "- ", "_a__b"])
def test_a_text_that_nests_without_end_is_shown_to_its_end(part: str) -> None:
    assert "end" in render_markdown(part * (20_000 // len(part)) + "end")


@pytest.mark.system
def test_columns_of_a_table_do_not_touch(chromium: Browser) -> None:
    page = chromium.new_page()
    table = render_markdown("| a | b |\n|--:|:--|\n| 1,000.99 | much |")
    page.set_content(f'<div class="read">{table}</div>')
    for name in ("style.css", "talk.css"):
        page.add_style_tag(content=read_asset(name))
    number = page.locator("td").first.evaluate("one => parseFloat(getComputedStyle(one).paddingRight)")
    page.close()
    assert number >= 8


@pytest.mark.system
def test_a_reader_switches_to_the_raw_text_and_back(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/c/run/loop"))
    expect(page.locator(".read").first).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator(".read")).to_have_count(0)
    page.goto(f"{explored.address}/c/run/flip")  # The choice stays.
    expect(page.locator(".read")).to_have_count(0)
    page.get_by_role("link", name="Read as Markdown").click()
    expect(page.locator(".read").first).to_be_visible()
