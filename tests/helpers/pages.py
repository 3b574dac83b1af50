"""The pages of the documentation, and the blocks of code that they show."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent != GENERATED),
]
_FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^\n]+) -->\n)?(?P<indent> *)(?P<fence>```+)(?P<language>\w*)\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_TABLE = re.compile(r"^\|.*\| command \|\n(?:\|.*\n)+", re.MULTILINE)
_IN_TABLE = re.compile(r"^\|.*\| `(bactrian [^`]+)` \|$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    note: str
    """The comment above it: ``file: NAME`` says where it is saved, ``not run: REASON`` why no test runs it."""

    @property
    def reason(self) -> str | None:
        """Why no test runs the block, or None if one does."""
        if self.note == "set-up":
            return ".ci/run runs these commands"
        return self.note.removeprefix("not run: ") if self.note.startswith("not run: ") else None

    @property
    def file(self) -> str | None:
        """The name under which a reader saves the block, or None."""
        if self.note.startswith("file: "):
            return self.note.removeprefix("file: ")
        if self.note == "example":
            return f"{tomllib.loads(self.code)['name']}.toml"
        if name := re.match(r"# (\w+\.py)\n", self.code):
            return name[1]
        return None


def name_page(page: Path) -> str:
    """The path of a page, as its tests are named."""
    return page.relative_to(ROOT).as_posix()


def read_blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, and the commands in tables whose last column is named so, in their order."""
    text = page.read_text("utf-8")
    found: list[tuple[int, Block]] = []
    for match in _FENCE.finditer(text):
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(
            (match.start(), Block(name_page(page), line, match["language"], code, match["note"] or ""))
        )
    tables = [table.span() for table in _TABLE.finditer(text)]
    for match in (match for table in tables for match in _IN_TABLE.finditer(text, *table)):
        line = text.count("\n", 0, match.start()) + 1
        found.append((match.start(), Block(name_page(page), line, "sh", match[1] + "\n", "")))
    return [block for _, block in sorted(found, key=lambda entry: entry[0])]


_SENTENCE = re.compile(r"(?<=[.!?])[)*\"”]*\s+(?=[A-Z*\"“(\[])| · ")
_ITEM = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=[|#])")


def list_sentences(text: str) -> list[str]:
    """The sentences of a page without its blocks of code; a list's item and a table's cell end one."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    sentences: list[str] = []
    for block in _ITEM.split(text):
        for part in re.split(r"(?<!\\)\|", block) if block.lstrip().startswith("|") else [block]:
            words = re.sub(r"`[^`]*`", "CODE", part)
            words = " ".join(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", words).split())
            sentences += _SENTENCE.split(words)
    return sentences
