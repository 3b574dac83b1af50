"""Every command and Python block of README.md and docs/ runs, from top to bottom of its page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.conftest import Reader
from tests.helpers.pages import PAGES, Block, name_page, read_blocks
from tests.helpers.sandbox import HAS_SANDBOX
from tests.helpers.shell import run_script

pytestmark = pytest.mark.system

GIVEN = {
    "docs/analyze.md": "society.db before.db after.db ai_society_chat.tar.gz",
    "docs/export.md": "society.db physics.db german.db HumanEval.jsonl.gz",
    "docs/howto/camel-archive.md": "ai_society_chat.tar.gz",
    "docs/howto/find-and-finish.md": "society.db",
    "docs/howto/label-conversations.md": "society.db",
    "docs/reading.md": "society.db camel.db",
    "docs/recipes.md": "things.txt mine.toml preamble.txt",
}
"""Files that a page takes as given: made elsewhere, or the reader's own."""
SANDBOXED = ("docs/embodied.md", "docs/evaluate.md", "docs/python.md", "docs/sandbox.md")
"""Pages that run programs of models."""
LONG = (
    *(
        f"docs/{name}.md"
        for name in ("analyze", "endings", "evaluate", "export", "gallery", "paper", "python")
    ),
    *("docs/recipes.md", "docs/societies.md", "docs/tutorial.md", "README.md"),
    *(
        f"docs/howto/{name}.md"
        for name in ("camel-archive", "compare-models", "find-and-finish", "providers")
    ),
    "docs/howto/notebooks.md",
)
"""Pages with so many commands that they take over half a second."""
INSTALL = re.compile(r"^pip install \S+(?: && |$)", re.MULTILINE)


def list_blocks(page: Path) -> list[Block]:
    """The blocks to run; tests/test_readme.py runs the README's Python, on the built-in model."""
    languages = ("sh",) if page.name == "README.md" else ("sh", "python")
    return [block for block in read_blocks(page) if block.language in languages and block.reason is None]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if name_page(page) in LONG else ())
        for page in PAGES
        if list_blocks(page)
    ],
    ids=name_page,
)
def test_every_block_of_a_page_runs(
    page: Path, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name_page(page) in SANDBOXED and not HAS_SANDBOX:
        pytest.skip("sandboxes need Linux")
    for name in GIVEN.get(name_page(page), "").split():
        shutil.copy(reader.files / name, tmp_path / name)
    variables = reader.variables(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for block in read_blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.code, "utf-8")
        if block not in list_blocks(page):
            continue
        where = f"{block.page}:{block.line}"
        if block.language == "python":
            exec(compile(block.code, where, "exec"), {"__name__": "__main__"})
        else:
            script = INSTALL.sub("", block.code).replace("http://gpu.example:8000/v1", reader.url)
            done = run_script(script, tmp_path, variables, reader.programs)
            assert done.returncode == 0, f"{where}\n{done.stderr}"
