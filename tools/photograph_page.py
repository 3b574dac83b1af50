"""``python tools/photograph_page.py REPORT.html OUT.png``: photograph the first screen of a report with Chromium."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1200, 900


def main() -> None:
    """Open the report and write its picture."""
    report, out = Path(sys.argv[1]).resolve(), sys.argv[2]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.as_uri())
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main()
