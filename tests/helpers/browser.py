"""A real browser for pages, and what a page has that keeps people out."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is the same engine without windows: the tests take a third of the CPU time in it."""
CHROMIUM = next(filter(None, map(shutil.which, _PROGRAMS)), None)
"""The browser of the tests; None skips them."""
LAYOUT = ("scrollable-region-focusable",)
"""The rules of axe whose result depends on the width of the window."""
APPEARANCE = ("color-contrast", "link-in-text-block", *LAYOUT)
"""Those, and the ones whose result depends on the colours."""
REPEATED = ("ol.list > li:nth-child(n+13)", "article.turn:nth-of-type(n+13)", "tbody > tr:nth-child(n+31)")
"""What axe leaves out: the rows of a long list after those that may differ in kind."""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@contextmanager
def open_browser() -> Generator[Browser]:
    """Open a browser. As long as it is open, its event loop runs in this thread, and no other can."""
    # Pages are short, so that code that V8 compiles for later, in threads of its own, never pays.
    scripts = "--js-flags=--single-threaded --no-opt --no-maglev"
    flags = ["--no-sandbox", "--in-process-gpu", "--disable-background-networking", scripts]
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def find_barriers(page: Page, *, preload: bool = True, rules: Sequence[str] = ()) -> list[str]:
    """Return what axe finds on a page that keeps people out of it: the rule, and the first element that breaks it.

    With ``preload``, axe fetches the styles and tests them, too, which it cannot in files. ``rules`` are the only ones
    that it tests, if any are given.
    """
    options: dict[str, object] = {"preload": preload, "resultTypes": ["violations"]}
    if rules:
        options |= {"preload": False, "runOnly": {"type": "rule", "values": list(rules)}}
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(Axe().axe_script)
    context = {"exclude": [[one] for one in REPEATED if page.locator(one).count()]}
    found = page.evaluate(
        "([context, options]) => axe.run(context, options).then(results => results.violations)",
        [context, options],
    )
    return [f"{one['id']}: {one['nodes'][0]['html'][:90]}" for one in found]
