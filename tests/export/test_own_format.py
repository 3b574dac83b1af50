"""A format of one's own, and what a format is given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.errors import InputError
from bactrian.export.exporter import ExportOptions, export_run
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.formats import find_format
from bactrian.records.session import Session
from bactrian.store import open_store
from tests.helpers.command import clean_environment
from tests.helpers.exports import exported, handed, lines
from tests.helpers.packages import install
from tests.helpers.runs import make_run, session


@contextmanager
def open_markdown(path: Path, context: ExportContext) -> Generator[Add]:
    with path.open("w", encoding="utf-8") as file:
        file.write(f"# {context.run}\n")

        def add(sample: Sample) -> int:
            found = ", ".join(finding.behaviour for finding in sample.findings or ())
            file.write(f"\n## {sample.session.id}: {found or 'nothing found'}\n\n")
            for turn in sample.session.turns:
                file.write(f"**{turn.role}**: {turn.text}\n\n")
            return 1

        yield add


MARKDOWN = Format("markdown", open_markdown, ".md", needs=frozenset(("findings",)))


async def test_a_format_of_ones_own_gets_what_it_needs(tmp_path: Path) -> None:
    flip = session(
        "flip", texts=["Instruction: Boil water.", "Instruction: Boil it yourself."], code="failed"
    )
    run = await make_run(tmp_path / "tea.db", [flip, session("good")])
    async with open_store(run, read_only=True) as store:
        made = await export_run(store, ExportOptions(MARKDOWN, tmp_path / "tea.md", findings=find_behaviours))
    text = (tmp_path / "tea.md").read_text()
    assert text.startswith("# tea\n")
    assert "## flip: role_flip" in text
    assert "## good: nothing found" in text
    assert made["format"] == "markdown"
    assert made["counts"]["rows"] == {"train": 2}


async def test_a_format_that_needs_nothing_asks_nobody_for_findings(tmp_path: Path) -> None:
    def never(session: Session) -> tuple[()]:
        raise AssertionError(session.id)

    run = await make_run(tmp_path / "tea.db", [session()])
    made = await handed(run, "messages", tmp_path / "tea.jsonl", findings=never)
    assert made["counts"]["sessions"] == 1


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of an installed package that brings formats."""
    info = tmp_path / "site" / "acme_formats-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-formats\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[bactrian.export_formats]\nmarkdown = acme_formats:MARKDOWN\nbroken = acme_formats:nothing\n"
        "wrong = acme_formats:open_markdown\n"
    )
    (tmp_path / "site" / "acme_formats.py").write_text(
        "from tests.export.test_own_format import MARKDOWN, open_markdown\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "acme_formats", raising=False)
    return info


@pytest.mark.usefixtures("package")
async def test_a_format_of_an_installed_package_is_found_by_its_name(tmp_path: Path) -> None:
    _, made = await exported(tmp_path, [session()], "markdown", "tea.md")
    assert made["format"] == "markdown"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "cannot be loaded: AttributeError"),
        ("wrong", "a function, not a"),
        ("markdwn", "markdown"),
    ],
)
def test_a_format_that_cannot_be_used_is_explained(name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        find_format(name)
    assert said in f"{caught.value} {caught.value.next}"


def thinking() -> Session:
    """A session of which the AI assistant's first turn, and the AI user's, were thought over."""
    made = session(rounds=2, code="max_messages")
    turns = [
        replace(turn, thought=f"I am {turn.speaker}; mail a@acme.io.") if turn.number <= 2 else turn
        for turn in made.turns
    ]
    return replace(made, turns=tuple(turns))


@pytest.mark.parametrize("form", ["messages", "csv", "sharegpt", "camel-chat"])
async def test_thoughts_stay_at_home_unless_asked_for(tmp_path: Path, form: str) -> None:
    out, _ = await exported(tmp_path, [thinking()], form, "tea")
    files = [out] if out.is_file() else list(out.iterdir())
    assert all(b"I am " not in file.read_bytes() for file in files)


async def test_messages_hold_the_thoughts_of_the_side_that_learns(tmp_path: Path) -> None:
    out, made = await exported(tmp_path, [thinking()], "messages", "tea.jsonl", thoughts=True)
    rows = [row for row in lines(out)[0]["messages"] if row["role"] == "assistant"]
    assert [row.get("reasoning_content") for row in rows] == ["I am assistant; mail a@acme.io.", None]
    assert "I am user" not in out.read_text()
    assert made["thoughts"] is True


async def test_thoughts_are_redacted_too(tmp_path: Path) -> None:
    pytest.importorskip("detect_secrets")
    out, _ = await exported(tmp_path, [thinking()], "csv", "tea.csv", thoughts=True, redact=True)
    assert "I am assistant; mail <EMAIL>." in out.read_text()


async def test_parquet_and_hf_hold_thoughts_in_a_column_of_their_own(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    run = await make_run(tmp_path / "tea.db", [thinking()])
    await handed(run, "parquet", tmp_path / "tables", thoughts=True)
    table = polars.read_parquet(tmp_path / "tables" / "messages.parquet")
    assert table["thought"].to_list()[2:] == ["", ""]
    assert table["thought"][0].startswith("I am user")
    await handed(run, "hf", tmp_path / "hub", thoughts=True)
    rows = polars.read_parquet(tmp_path / "hub" / "data" / "*.parquet")["messages"][0].to_list()
    assert next(row["reasoning_content"] for row in rows if row["role"] == "assistant").startswith(
        "I am assi"
    )


async def test_a_format_that_cannot_hold_thoughts_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not support thoughts"):
        await exported(tmp_path, [thinking()], "camel-chat", "tea.zip", thoughts=True)
    assert not (tmp_path / "tea.zip").exists()


INTERRUPTED = """
import os
import signal
from contextlib import contextmanager

from bactrian.export.format import Format

@contextmanager
def begin(path, context):
    path.touch()
    yield lambda sample: 1

FORM = Format("late", begin, ".x", finish=lambda target, manifest: os.kill(os.getpid(), signal.SIGINT))
"""


@pytest.mark.system
async def test_a_signal_that_comes_too_late_is_not_told_as_if_nothing_was_written(tmp_path: Path) -> None:
    install(tmp_path, "acme_late", INTERRUPTED, "bactrian.export_formats", "late = acme_late:FORM")
    await make_run(tmp_path / "tea.db", [session()])
    done = subprocess.run(
        [sys.executable, "-m", "bactrian", "export", "tea.db", "--format", "late", "--out", "tea.x"],
        cwd=tmp_path,
        env=clean_environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "tea.x").exists()
    assert done.returncode in (0, 130)
    assert "Nothing was written" not in done.stderr
    assert done.returncode == 0 or "is complete, or as it was" in done.stderr
