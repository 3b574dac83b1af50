"""Photographs the explorer's pages: ``python -m tools.photograph_explorer``, for docs/images.

It plays two runs with scripted models, as ``photograph_reports.py`` does. With ``--all FOLDER [RUN…]`` it takes every
page on a desk and on a phone, in light and dark, and printed, of these runs or of its own, to look at. It needs the
extras ``explore``, ``analysis``, ``figures`` (Pillow) and ``dev`` (Playwright) and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tools.photograph_reports import make_run

IMAGES = Path(__file__).parent.parent / "docs/images"
PAGES = ("/", "/conversations?sort=findings", "/statistics", "/map", "/compare", "/help")
IDEAS = (
    "Plan a small herb garden for a sunny balcony",
    "Water the vegetable garden during a dry summer",
    "Write a guide for new colleagues",
    "Write a letter of thanks to old colleagues",
    "Sort the recipes of a year",
    "Cook a warm dinner from the recipes of a grandmother",
    "Repair the chain and the brakes of a bicycle",
    "Choose a bicycle for long tours in the mountains",
    "Teach fractions to a class of children with games",
    "Prepare a class of children for a visit to a museum",
    "Save money for a journey by train through Europe",
    "Draw a time table for trains between three towns",
)
SCREENS = {"desk": (1280, 900), "phone": (390, 844)}


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every page, into this folder")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as tool:
        runs = given.runs or [
            make_run(Path(scratch) / f"{name}.db", trouble, IDEAS).path
            for name, trouble in (("small", 0.6), ("large", 0.25))
        ]
        with serve(runs) as (address, login):
            browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            draw_map(browser, address, login)
            if given.all is None:
                take_docs(browser, address, login, [run.stem for run in runs])
            else:
                given.all.mkdir(parents=True, exist_ok=True)
                take_all(browser, address, login, given.all)


@contextmanager
def serve(runs: Sequence[Path]) -> Generator[tuple[str, dict[str, str]]]:
    """Run the explorer; when its index is complete, provide its address and the header that lets in who sends it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "bactrian", "explore", *map(str, runs), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address, _, token = server.stdout.readline().strip().partition("/?token=")
            login = {"Authorization": f"Bearer {token}"}
            wait_for_index(urllib.request.Request(address, headers=login))
            yield address, login
        finally:
            server.terminate()


def wait_for_index(address: urllib.request.Request) -> None:
    """Wait until no page speaks of work that goes on."""
    while True:
        time.sleep(1)
        try:
            with urllib.request.urlopen(address) as answer:
                page: bytes = answer.read()
                if b"<progress" not in page and b'<data value="0">' not in page:
                    return
        except OSError:
            continue


def draw_map(browser: Browser, address: str, login: dict[str, str]) -> None:
    """Draw the map of tasks of the first run."""
    page = browser.new_page(extra_http_headers=login)
    page.goto(f"{address}/map")
    page.get_by_role("button", name="Draw").click()
    page.locator("canvas").wait_for(timeout=300_000)
    page.close()


def take_docs(browser: Browser, address: str, login: dict[str, str], names: Sequence[str]) -> None:
    """Take the pictures of docs: a conversation, the list, the statistics, a comparison and a map."""
    page = browser.new_page(
        viewport={"width": 1200, "height": 700}, color_scheme="light", extra_http_headers=login
    )
    talk = find_talk(page, address, "behaviour=role_flip&")
    compared = f"/compare?one=data%3D{names[0]}&two=data%3D{names[-1]}"
    pages = {
        "conversation": talk,
        "list": PAGES[1],
        "statistics": "/statistics",
        "compare": compared,
        "map": "/map",
    }
    for name, way in pages.items():
        page.goto(address + way)
        if name == "conversation":
            page.locator("mark.finding").first.evaluate("mark => mark.scrollIntoView({block: 'center'})")
        page.wait_for_timeout(500)
        picture = IMAGES / f"explore-{name}.png"
        page.screenshot(path=picture)
        # Pages have few colours: a table of 256 halves the file.
        Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )


def find_talk(page: Page, address: str, query: str = "") -> str:
    """Return the path of the conversation with the most findings that fits a filter."""
    page.goto(f"{address}/conversations?{query}sort=findings")
    return page.locator("#list h2 a").first.get_attribute("href") or "/"


def take_all(browser: Browser, address: str, login: dict[str, str], folder: Path) -> None:
    """Take every page on every screen in both themes, and print the conversation."""
    for screen, (width, height) in SCREENS.items():
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
                extra_http_headers=login,
            )
            page = context.new_page()
            talk = find_talk(page, address)
            for way in (*PAGES, talk):
                page.goto(address + way)
                page.wait_for_timeout(300)
                name = "conversation" if way == talk else way.partition("?")[0].strip("/") or "library"
                page.screenshot(path=folder / f"{name}-{screen}-{theme}.png")
            if screen == "desk" and theme == "light":
                page.goto(address + talk)
                page.pdf(path=folder / "conversation.pdf")
            context.close()


if __name__ == "__main__":
    main()
