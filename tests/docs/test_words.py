"""Options, commands, files and links that the pages name exist, and every page is found from the front page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from bactrian.cli.verbs import VERBS
from tests.helpers.pages import GENERATED, PAGES, ROOT, list_sentences, name_page

DOCS = ROOT / "docs"
TEXTS = {page: page.read_text("utf-8") for page in (*PAGES, *GENERATED.glob("*.md"))}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
KNOWN_OPTIONS = {*OPTION.findall((GENERATED / "command-line.md").read_text("utf-8"))}
AGENTS = ("assistant", "user", "task", "critic", "list")
NOT_OURS = {
    "docs/architecture.md": {"--help"},
    "docs/explore.md": {"--bundle"},
    "docs/performance.md": {"--write", "--help"},
    "docs/behaviours.md": {"--write"},
    "docs/behaviours-invented.md": {"--write"},
    "docs/tools.md": {"--repository"},
    "docs/howto/cluster.md": {"--data-parallel-size", "--enable-prompt-tokens-details"},
}
"""Options of other programs, and those that a page says are not built yet."""
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")


def strip_blocks(text: str, languages: str = "text") -> str:
    return re.sub(rf"^ *```(?:{languages})\n.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_option_on_a_page_exists(page: Path) -> None:
    used = {
        re.sub(
            rf"^--(?:{'|'.join(AGENTS)})-(?=temperature|top-p|seed|stop|body|reply|reasoning)", "--", option
        )
        for option in OPTION.findall(strip_blocks(TEXTS[page]))
    }
    assert used - KNOWN_OPTIONS - NOT_OURS.get(name_page(page), set()) - {"--help", "--version"} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_command_on_a_page_exists(page: Path) -> None:
    named = set(re.findall(r"(?:^|`|&& |\| )bactrian ([a-z]+)", TEXTS[page], re.MULTILINE))
    assert named - VERBS.keys() == set()


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_source_file_on_a_page_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:py|toml|md|ipynb))(?:::\w+)?`", TEXTS[page]))
    places = (ROOT, ROOT / "src", ROOT / "src/bactrian", ROOT / "tests")
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


@pytest.mark.parametrize("page", [ROOT / "docs/architecture.md", ROOT / "docs/decisions.md"], ids=name_page)
def test_every_source_folder_on_the_map_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:\w+/)+)`", TEXTS[page]))
    places = (
        ROOT,
        ROOT / "src/bactrian",
        ROOT / "src/bactrian/cli",
        ROOT / "src/bactrian/sandbox",
        ROOT / "src/bactrian/train",
    )
    assert named
    assert {name for name in named if not any((place / name).is_dir() for place in places)} == set()


@pytest.mark.parametrize("page", TEXTS, ids=name_page)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(TEXTS[page]):
        found = (page.parent / target) if target else page
        assert found.exists(), f"{name_page(page)} links to {target}"
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", found.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(name_anchor, headings), f"{name_page(page)} links to {target}#{anchor}"


def name_anchor(heading: str) -> str:
    """The anchor that a forge, and the site, give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_every_page_is_two_clicks_from_the_front_page() -> None:
    front = DOCS / "index.md"
    near, reached = {front}, {front}
    for _ in range(2):
        near = {
            (page.parent / target).resolve()
            for page in near
            for target, _ in LINK.findall(page.read_text("utf-8"))
            if target.endswith(".md")
        } - reached
        reached |= near
    assert {*DOCS.rglob("*.md")} - reached == set()
    assert "docs/index.md" in TEXTS[ROOT / "README.md"]


def test_the_navigation_has_every_page_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = [name for name in list_names(config["nav"]) if not name.startswith("project/")]
    assert sorted(pages) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def list_names(nav: object) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in list_names(part)]  # type: ignore[union-attr]


LONGEST = 30
"""Words of a sentence."""
LONG_SENTENCES = {
    "docs/analyze.md": 8,
    "docs/architecture.md": 2,
    "docs/emergence.md": 9,
    "docs/evaluate.md": 10,
    "docs/export.md": 11,
    "docs/prompts.md": 1,
    "docs/sandbox.md": 4,
    "docs/train.md": 4,
}
"""Pages that still have longer ones, and how many: the numbers may only fall."""


@pytest.mark.parametrize("page", TEXTS, ids=name_page)
def test_no_sentence_of_a_page_is_long(page: Path) -> None:
    long = [sentence for sentence in list_sentences(TEXTS[page]) if len(sentence.split()) > LONGEST]
    assert len(long) <= LONG_SENTENCES.get(name_page(page), 0), "\n".join(long)
