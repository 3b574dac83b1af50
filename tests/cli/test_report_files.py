"""A report is written in the form that its name asks for."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session


@pytest.mark.parametrize(
    "verb", [("analyze", "tea.db"), ("evaluate", "pairwise", "a", "b", "--questions", "code")]
)
@pytest.mark.parametrize("name", ["r.tex", "r.doc", "report", "r.db", ".html"])
def test_a_report_of_another_kind_is_refused_before_the_work(
    tmp_path: Path, verb: tuple[str, ...], name: str
) -> None:
    asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    done = bactrian(*verb, "--report", name, cwd=tmp_path)
    assert done.returncode == 2
    assert "not written as" in done.stderr and ".html, .pdf or .json" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tea.db"]


def test_a_pdf_without_a_browser_is_refused_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = bactrian("analyze", "tea.db", "--report", "tea.pdf", cwd=tmp_path)
    assert done.returncode == 2
    assert "write tea.html" in done.stderr
    assert not (tmp_path / "tea.pdf").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_pdf_is_a_pdf_with_the_text_of_the_page(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    done = bactrian("analyze", "tea.db", "--report", "tea.pdf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = (tmp_path / "tea.pdf").read_bytes()
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
    assert content.count(b"/Type /Page\n") >= 1 and len(content) > 20_000


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_the_browser_that_prints_a_pdf_tells_nobody(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        words = ("analyze", "tea.db", "--report", "tea.pdf")
        done = bactrian(*words, cwd=tmp_path, http_proxy=address, https_proxy=address, all_proxy=address)
        assert done.returncode == 0, done.stderr
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):  # Nobody has connected.
            proxy.accept()
