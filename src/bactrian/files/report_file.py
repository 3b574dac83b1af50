"""A report as a file: a page, the same as a PDF, or its numbers as JSON, by the suffix of its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, InputError
from bactrian.files.atomic import check_target

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
# A page that is printed needs no network, and the browser's own services would tell others that it ran: they are off,
# and what is left of them meets a proxy that does not answer. An address of this computer goes past no proxy either.
_OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    "--proxy-bypass-list=<-loopback>",
    "--proxy-server=127.0.0.1:1",
)
_LONGEST = 120.0  # Seconds that the browser may take
# In the head of every page that this program writes, so that it replaces no page of anybody else.
_GENERATOR = b'<meta name="generator" content="bactrian">'


def check_report(path: Path) -> None:
    """Check the suffix of a report before the work for it begins.

    Raises:
        InputError: the suffix is neither .html, .json nor .pdf, or no browser can write a PDF.
    """
    page = path.with_suffix(".html")
    match path.suffix.lower():
        case ".html" | ".htm" | ".json":
            return
        case ".pdf":
            if _find_browser() is None:
                raise InputError(
                    "Chromium or Chrome writes the PDF, and neither is installed.",
                    where=str(path),
                    next=f"Install one, or write {page} and print that from a browser.",
                )
        case suffix:
            raise InputError(
                f"A report is not written as {suffix or 'a file without a suffix'}.",
                where=str(path),
                next=f"Name a file that ends in .html, .pdf or .json, such as {page}.",
            )


def check_own_report(path: Path) -> None:
    """Check a report that replaces one of before without being asked: as above, and only a page written here.

    Raises:
        InputError: the file is something else, or cannot be written.
    """
    check_report(path)
    if path.exists() and not _is_own(path):
        raise InputError(
            "This exists, and is no page that bactrian wrote.", where=str(path), next="Use another name."
        )
    check_target(path.absolute(), overwrite=True, is_file=True)


def write_report_file(path: Path, page: str, data: Mapping[str, Any]) -> None:
    """Write a report to ``path``: its ``page``, or its ``data`` as JSON.

    Raises:
        BactrianError: the browser cannot write the PDF.
    """
    match path.suffix.lower():
        case ".json":
            path.write_text(json.dumps(data), "utf-8")
        case ".pdf":
            path.write_bytes(_print_page(page))
        case _:
            path.write_text(page, "utf-8")


def _is_own(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _GENERATOR in file.read(1024)


def _find_browser() -> str | None:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


def _print_page(page: str) -> bytes:
    """Return a page as PDF. The page allows neither scripts nor requests."""
    browser = _find_browser()
    with tempfile.TemporaryDirectory(prefix="bactrian-", ignore_cleanup_errors=True) as name:
        source, target = Path(name, "report.html"), Path(name, "report.pdf")
        source.write_text(page, "utf-8")
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={name}/profile"]
        options += _OFFLINE
        if os.geteuid() == 0:  # the browser's own sandbox does not work for root
            options.append("--no-sandbox")
        command = [browser or _BROWSERS[0], *options, f"--print-to-pdf={target}", source.as_uri()]
        reason = "it wrote nothing"
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=_LONGEST)  # noqa: S603 - fixed
            return target.read_bytes()
        except subprocess.TimeoutExpired:
            reason = f"it took more than {_LONGEST:.0f} seconds"
        except OSError as error:
            reason = reason if isinstance(error, FileNotFoundError) and browser else str(error)
    raise BactrianError(
        f"The browser could not write the PDF: {reason}.",
        where=browser,
        next="Name a file that ends in .html, and print that from a browser.",
    )
