"""The documentation as a site: it builds without a warning, and works from disk without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.helpers.browser import needs_chromium
from tests.helpers.pages import ROOT

# `.ci/run` builds the site, too; what these add is needed before a release.
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built anew; a warning, such as a broken link, is an error."""
    command = [sys.executable, "tools/build_site.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "site" / "html"


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"?(?:https?:)?//|<link[^>]* href=\"?https?:|@import"
    )
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert [page.name for page in pages if loads.search(page.read_text("utf-8"))] == []


@needs_chromium
def test_the_search_works_from_disk_on_a_phone_in_the_dark(site: Path, chromium: Browser) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").fill("wilson interval")
    page.locator("[role=listbox] a[href*='statistics.html']").first.click()
    page.wait_for_url(re.compile(r"statistics\.html"))
    context.close()
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
