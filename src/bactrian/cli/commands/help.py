"""``bactrian help``: the help of a command, or a page of the documentation."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import bactrian
from bactrian.cli.flags import Argument
from bactrian.cli.verbs import list_verbs, write_overview
from bactrian.errors import InputError

# Pages for those who change the program, and the front page of the site.
_NOT_TOPICS = frozenset({"architecture", "decisions", "index"})
_COMMENT = re.compile(r"^ *<!--.*?--> *\n", re.MULTILINE)
_IMAGE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n*", re.MULTILINE)
_IN_REPOSITORY = re.compile(r"python -m (?:benchmarks|tools)|\b(?:examples|src/bactrian)/")
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!https?:)(?P<path>[^)#]*)(?:#[^)]*)?\)")


def show_help(
    verb: Annotated[
        list[str] | None,
        Argument(metavar="TOPIC", help="Words of a command, or the name of a page. Default: a list of all."),
    ] = None,
) -> None:
    """Show the help of a command, or a page of the documentation."""
    words = list(verb or ())
    topics = list_topics()
    if not words:
        pages = textwrap.wrap(
            "  ".join(topics), 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
        print(
            "\n".join(
                [
                    write_overview(),
                    "",
                    "Pages (`bactrian help PAGE`; `.md` where a command has the name):",
                    *pages,
                ]
            )
        )
        return
    page = find_page(" ".join(words), topics)
    if page is not None:
        _print_page(page, topics)
        return
    commands = list_verbs()
    if words[0] not in commands:
        from bactrian.files.toml import suggest_name

        name = " ".join(words)
        heading = re.compile(rf"^#+ .*\b{re.escape(name)}\b", re.MULTILINE | re.IGNORECASE)
        parts = [topic for topic, path in topics.items() if heading.search(path.read_text("utf-8"))]
        raise InputError(
            f"There is no command and no page {name!r}.{suggest_name(words[0], [*commands, *topics])}",
            next=f"`bactrian help {parts[0]}` has a part of that name."
            if parts
            else "`bactrian help` lists all.",
        )
    from bactrian.cli.help_form import build_app

    build_app()([*words, "--help"], prog_name="bactrian", standalone_mode=False)
    if len(words) == 1 and (page := topics.get(f"{words[0]}.md")):
        title = page.read_text("utf-8").partition("\n")[0].lstrip("# ")
        print(f"\nMore on the page {title!r}: bactrian help {words[0]}.md")


def list_topics() -> dict[str, Path]:
    """Return the pages by their names; a page with the name of a command has `.md` in its name."""
    inside = Path(bactrian.__file__).parent / "docs"
    # A wheel has the pages inside the package; a checkout has them beside its sources.
    folder = inside if inside.is_dir() else inside.parents[2] / "docs"
    commands = list_verbs()
    pages = {page.stem: page for page in sorted(folder.rglob("*.md")) if page.stem not in _NOT_TOPICS}
    return {f"{name}.md" if name in commands else name: page for name, page in pages.items()}


def find_page(name: str, topics: dict[str, Path]) -> Path | None:
    """Return the page of this name, or of a path such as ``docs/howto/budget.md``; None if there is none."""
    last = name.rpartition("/")[2]
    return topics.get(name) or (
        topics.get(last) or topics.get(last.removesuffix(".md")) if ".md" in last else None
    )


def _print_page(page: Path, topics: dict[str, Path]) -> None:
    names = {path.stem: name for name, path in topics.items()}

    def spell(link: re.Match[str]) -> str:
        name = names.get(Path(link["path"]).stem)
        return f"{link['text']} (`bactrian help {name}`)" if name and link["path"] else link["text"]

    text = _IMAGE.sub("", _COMMENT.sub("", page.read_text("utf-8")))
    text = _LINK.sub(spell, text)
    if _IN_REPOSITORY.search(text):
        text += (
            "\n`src/`, `examples/`, and the modules `benchmarks` and `tools` are in the source repository.\n"
        )
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.markdown import Markdown

    from bactrian.cli.terminal.console import open_output, open_pager

    out = open_output()
    with open_pager(out):
        out.print(Markdown(text, code_theme="ansi_dark", inline_code_theme="ansi_dark"), soft_wrap=False)
