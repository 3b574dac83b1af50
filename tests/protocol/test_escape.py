"""Text of others stays text, wherever it goes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.blocks import to_code_span, to_markdown
from bactrian.records.text import to_file_name, to_line, to_printable
from tests.helpers.exports import exported
from tests.helpers.runs import ORIGIN, session

HOSTILE = [
    "# A heading",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![](http://evil.example/pixel.png)",
    "| a | b |",
    "---\nlicense: mit\n---",
    "`` ` ``",
    "\x1b]0;title\x07\x1b[2J\x1b[31m",
    "\u202eright to left",
    "a\u2028b\x85c",
    "\ud800",
    "~~gone~~ **bold** __under__ $x$ https://evil.example www.evil.example a@evil.example",
    "é" * 300,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_hostile_text_and_does_nothing_else(text: str) -> None:
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": False})
    escaped = to_markdown(text)
    assert "\n" not in escaped
    assert "<script" not in escaped and "<img" not in escaped
    page = markdown.render(f"- Model: {escaped}\n")
    assert not any(tag in page for tag in ("<a ", "<img", "<h1", "<script", "<hr", "<code", "<em", "<strong"))
    assert markdown.render(f"- {to_code_span(text)}\n").count("<code>") == bool(to_line(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_steers_a_terminal_is_printable(text: str) -> None:
    said = to_printable(text)
    assert "\x1b" not in said
    assert "\u202e" not in said
    said.encode()
    assert "\n" not in to_line(text)


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 300, "名" * 150, "", ".", "..", "a/b", "a\\b", "CON:"])
def test_any_id_makes_a_name_that_a_file_system_takes(tmp_path: Path, text: str) -> None:
    name = to_file_name(text.encode("utf-8", "replace").decode())
    (tmp_path / f"{name}.json").write_text("here")
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]


def test_two_long_ids_have_two_names() -> None:
    assert to_file_name("x" * 300 + "1") != to_file_name("x" * 300 + "2")
    assert to_file_name("001_002_003") == "001_002_003"


@pytest.mark.parametrize("out", ["chats", "chats.zip", "chats.tar.gz"])
async def test_an_id_of_300_bytes_is_exported(tmp_path: Path, out: str) -> None:
    path, made = await exported(tmp_path, [session("x" * 300), session("x" * 299)], "camel-chat", out)
    assert made["counts"]["sessions"] == 2
    if path.is_dir():
        ids = {json.loads(file.read_bytes())["id"] for file in path.iterdir()}
        assert ids == {"x" * 300, "x" * 299}


async def test_the_card_of_a_hostile_run_has_no_markup_but_its_own(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    text = " ".join(HOSTILE[:7]).replace("\n", " ")
    origin = replace(ORIGIN, models={"user": text, text: "x"}, prompts=text, language=text)
    plain, _ = await exported(tmp_path, [session()], "hf", "plain")
    one = replace(session(), provenance=origin, mark=text)
    (tmp_path / "again").mkdir()
    hostile, _ = await exported(tmp_path / "again", [one], "hf", "hub", redact=False)
    pages = [
        markdown.render((out / "README.md").read_text("utf-8").split("---\n", 2)[2])
        for out in (plain, hostile)
    ]
    for tag in ("<script", "<img", "<a ", "<h1", "<h2", "<hr"):
        assert pages[0].count(tag) == pages[1].count(tag), tag
