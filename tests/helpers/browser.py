"""A real browser for pages, and what a page has that keeps people out."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without windows: the tests take a third of the CPU time in it."""
CHROMIUM = next(filter(None, map(shutil.which, _PROGRAMS)), None)
"""The browser of the tests; None skips them."""
LAYOUT = ("scrollable-region-focusable",)
"""The rules of axe whose result depends on the width of the window."""
APPEARANCE = ("color-contrast", "link-in-text-block", *LAYOUT)
"""Those, and the ones whose result depends on the colours."""
APPEARANCES: tuple[tuple[Literal["light", "dark"], int, Sequence[str]], ...] = (
    ("light", 320, APPEARANCE),
    ("dark", 1280, ()),
)
"""Themes, widths of the window, and what axe tests in them.

Colours depend on the theme and layouts on the width, so that two combinations show all of both; what depends on
neither is looked at once. The last one is that in which the next page is loaded: large, so that no filter is folded.
"""
REPEATED = ("ol.list > li:nth-child(n+13)", "article.turn:nth-of-type(n+13)", "tbody > tr:nth-child(n+31)")
"""What axe does not look at: the rows of a long list after those that may differ in kind."""
IS_TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
"""Whether a page has to be scrolled sideways."""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@contextmanager
def open_browser() -> Generator[Browser]:
    """Open a browser. Its event loop runs in this thread."""
    # Pages are short, so that code that V8 compiles for later, in threads of its own, never pays.
    scripts = "--js-flags=--single-threaded --no-opt --no-maglev"
    flags = ["--no-sandbox", "--in-process-gpu", "--disable-background-networking", scripts]
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def add_axe(context: BrowserContext) -> None:
    """Let each page of ``context`` have axe from its start: it is sent once, and not for each page."""
    context.add_init_script(Axe().axe_script)


def find_barriers(page: Page, *, preload: bool = True, rules: Sequence[str] = ()) -> list[str]:
    """Return what axe finds on a page that keeps people out of it: the rule, and the first element that breaks it.

    With ``preload``, axe fetches the styles and tests them, too, which it cannot in files. ``rules`` are the only ones
    that it tests, if any are given. The rows of a long list are removed from the page before, except the first ones:
    axe takes its time for each element, also for those that it leaves out.
    """
    options: dict[str, object] = {"preload": preload, "resultTypes": ["violations"]}
    if rules:
        options |= {"preload": False, "runOnly": {"type": "rule", "values": list(rules)}}
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(Axe().axe_script)
    page.evaluate("rows => document.querySelectorAll(rows).forEach(row => row.remove())", ", ".join(REPEATED))
    found = page.evaluate("options => axe.run(options).then(results => results.violations)", options)
    return [f"{violation['id']}: {violation['nodes'][0]['html'][:90]}" for violation in found]
