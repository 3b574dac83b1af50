"""Settings that nobody would write: files, numbers and addresses that are refused without being obeyed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from bactrian.cli.terminal.console import open_output
from tests.helpers.command import bactrian

STEERING = "\x1b]0;mine\x07\x1b[2J\x9b31m"


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def make_long(path: Path) -> None:
    path.write_text("".join(f"OPENAI_{number}=x\n" for number in range(100_000)))


@pytest.mark.parametrize("make", [make_pipe, make_device, make_huge, make_long, Path.mkdir])
def test_a_file_of_variables_that_is_no_small_file_is_ignored(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".env")
    done = bactrian("runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (".env is ignored" in done.stderr) is (make is not Path.mkdir)


def test_names_in_a_file_of_variables_steer_no_terminal_and_are_few(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "".join(f"X{STEERING}{number}=1\n" for number in range(900)) + "OPENAI_A=\0\n"
    )
    done = bactrian("runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 1000


@pytest.mark.parametrize("number", ["inf", "nan", "-1", "1e400", "-inf", "1e-400x", "9" * 5000])
@pytest.mark.parametrize("option", ["--budget", "--limit", "--timeout"])
def test_a_number_that_is_none_or_has_no_end_is_refused(tmp_path: Path, option: str, number: str) -> None:
    done = bactrian("generate", "ai-society", "--run", "a.db", f"{option}={number}", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a.db").exists()


ADDRESSES = (
    "http://me:hunter2@ho st/",
    "http://me:hun/ter2@host:x/v1",
    "me:hunter2@host",
    "http://[me:hunter2@host/v1",
    "http://me:hunter2@host:99999/v1",
    "ftp://me:hunter2@host/",
    "//me:hunter2@host",
)


@pytest.mark.parametrize("url", ADDRESSES)
@pytest.mark.parametrize("way", ["flag", "variable", "name", "debug"])
def test_the_password_of_an_address_that_is_none_is_shown_and_stored_nowhere(
    tmp_path: Path, url: str, way: str
) -> None:
    flags = {
        "flag": ["--model", "openai:m", "--base-url", url],
        "variable": ["--model", "openai:m"],
        "name": ["--model", f"openai:m@{url}"],
        "debug": ["--debug", "--json", "--model", "openai:m", "--base-url", url],
    }[way]
    from_variable = url if way == "variable" else ""
    done = bactrian(
        "play",
        "tea",
        *flags,
        "--run",
        "a.db",
        cwd=tmp_path,
        OPENAI_BASE_URL=from_variable,
        OPENAI_API_KEY="k",
    )
    assert done.returncode != 0
    assert "ter2" not in done.stdout + done.stderr
    assert all(b"ter2" not in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("models", "openai"),
        ("models", "openai", "--json"),
        ("import", "hf://goat/tea", "--run", "a.db"),
        ("import", "http://me:hunter2@127.0.0.1/tea.zip", "--run", "a.db"),
    ],
)
def test_the_password_of_an_address_is_shown_by_no_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    url = "http://me:hunter2@127.0.0.1:9"
    done = bactrian(*words, cwd=tmp_path, OPENAI_BASE_URL=url, HF_ENDPOINT=url)
    assert "127.0.0.1" in done.stdout + done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_no_form_of_text_on_the_console_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(f"Head {STEERING}")
    table.add_row(Text(f"Cell {STEERING}"))
    for shown in (f"Plain {STEERING}", Text(f"Text {STEERING}"), table):
        open_output().print(shown)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Head", "Cell", "Plain", "Text"))
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


@pytest.mark.parametrize("secret", ["?key=pwSECRET", "#pwSECRET", "/chat?a=1&key=pwSECRET"])
def test_a_key_in_an_address_is_refused_and_never_shown(tmp_path: Path, secret: str) -> None:
    address = f"http://127.0.0.1:1/v1{secret}"
    for options in (("-m", "openai:m", "--base-url", address), ("-m", f"openai:m@{address}")):
        done = bactrian("play", "tea", "--run", "tea.db", *options, cwd=tmp_path)
        assert done.returncode == 2
        assert "SECRET" not in done.stdout + done.stderr
        assert not any(b"SECRET" in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("number", ["\u0661", "1_000", "\uff11"])
def test_a_number_is_written_in_plain_digits(tmp_path: Path, number: str) -> None:
    for option in ("--budget", "--max-messages"):
        done = bactrian("play", "tea", option, number, cwd=tmp_path)
        assert done.returncode == 2
        assert "number" in done.stderr
