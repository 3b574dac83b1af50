"""``python tools/build_site.py [--keep-going]``: build the documentation as a site, in build/site/html.

The pages are plain Markdown and can be read in the tree. This script copies them to build/site/pages, together with the
files outside of docs/ that they link to, and runs Zensical on them. A warning, such as a broken link, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "site" / "pages"
HTML = ROOT / "build" / "site" / "html"
LOOK = ROOT / "src" / "bactrian" / "figures" / "look.css"
"""The colours of the explorer and of reports are the site's, too."""
TOP = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages of the site that are not in docs/: a forge looks for them in the root."""
LINK = re.compile(r"(\]\(|<img [^>]*src=\")(?!https?:|mailto:|#)([^)\s#\"]+)")
SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
FENCE = re.compile(r"^(?:```.*?^```|<!--.*?-->)", re.MULTILINE | re.DOTALL)


def place_of(source: Path) -> Path:
    """Return where a file of the tree is in the site."""
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS)
    inside = source.relative_to(ROOT)
    return Path("project", inside.name.lower()) if inside.name in TOP else Path("files", inside)


def copy_page(source: Path) -> set[Path]:
    """Copy a page with its links set right, and return the files outside of docs/ that it links to."""
    others: set[Path] = set()
    here = place_of(source)

    def set_right(link: re.Match[str]) -> str:
        target = (source.parent / link[2]).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        if not target.is_relative_to(DOCS):
            others.add(target)
        return link[1] + relpath(place_of(target), here.parent)

    text, at = "", 0
    page = source.read_text("utf-8")
    for fence in FENCE.finditer(page):
        text += LINK.sub(set_right, page[at : fence.start()]) + fence[0]
        at = fence.end()
    text += LINK.sub(set_right, page[at:])
    (PAGES / here).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / here).write_text(text, "utf-8")
    return others


def copy_pages() -> None:
    """Copy docs/, the pages of the root, and every file that they link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copyfile(LOOK, PAGES / "site" / LOOK.name)
    pages = {*DOCS.rglob("*.md"), *(ROOT / name for name in TOP)}
    others = set[Path]().union(*(copy_page(page) for page in sorted(pages))) - pages
    for other in sorted(others):
        (PAGES / place_of(other)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(other, PAGES / place_of(other))


def replace_shim(page: Path) -> None:
    """Let the page load our own script for workers in place of one from elsewhere, which needs a network."""
    text = page.read_text("utf-8")
    worker = relpath(HTML / "site" / "worker.js", page.parent)
    page.write_text(SHIM.sub(f'<script src="{worker}"></script>', text), "utf-8")


def main() -> None:
    """Build the site."""
    copy_pages()
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--clean",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
    ]
    if "--keep-going" not in sys.argv:
        command.append("--strict")
    if failed := subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(failed)
    for page in HTML.rglob("*.html"):
        replace_shim(page)


if __name__ == "__main__":
    main()
