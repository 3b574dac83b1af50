"""``python tools/photograph_explorer.py FOLDER RUN…``: pictures of the explorer's pages, for README and docs.

Needs Chromium and Playwright. Every page is taken on a desk and on a phone, in light and dark, and printed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

PORT = 8698
ADDRESS = f"http://127.0.0.1:{PORT}"
PAGES = ("/", "/conversations?sort=findings", "/statistics", "/map", "/compare", "/help")
SCREENS = {"desk": (1280, 900), "phone": (390, 844)}


def main() -> None:
    """Take the pictures."""
    folder, runs = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bactrian", "explore", *runs, "--port", str(PORT)]
    with subprocess.Popen(command) as server, sync_playwright() as tool:
        try:
            wait_for_index()
            browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            take_pictures(browser, folder)
        finally:
            server.terminate()


def wait_for_index() -> None:
    """Wait until no page speaks of work that goes on."""
    while True:
        time.sleep(1)
        try:
            with urllib.request.urlopen(ADDRESS) as answer:
                if b"<progress" not in answer.read():
                    return
        except OSError:
            continue


def take_pictures(browser: Browser, folder: Path) -> None:
    """Take every page on every screen in both themes, and print the conversation."""
    for screen, (width, height) in SCREENS.items():
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(f"{ADDRESS}/conversations?sort=findings")
            talk = page.locator("#list h2 a").first.get_attribute("href") or "/"
            for address in (*PAGES, talk):
                page.goto(ADDRESS + address)
                page.wait_for_timeout(300)
                name = (
                    "conversation" if address == talk else address.partition("?")[0].strip("/") or "library"
                )
                page.screenshot(path=folder / f"{name}-{screen}-{theme}.png")
            if screen == "desk" and theme == "light":
                page.goto(ADDRESS + talk)
                page.pdf(path=folder / "conversation.pdf")
            context.close()


if __name__ == "__main__":
    main()
