"""Files of JSON lines that somebody else wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json, read_lines
from tests.helpers.command import bactrian
from tests.helpers.sandbox import needs_sandbox

DEEP = '{"text": ' + "[" * 100_000
READERS = [
    ("behaviours", "train", "FILE"),
    ("evaluate", "pairwise", "openai:a", "openai:b", "--judge", "openai:c", "--questions", "FILE"),
    pytest.param(("evaluate", "humaneval", "--solutions", "FILE"), marks=needs_sandbox),
    ("evaluate", "humaneval", "--problems", "FILE", "--solutions", "FILE"),
    ("play", "Tea", "--model", "scripted:FILE"),
]


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)
    assert parse_json(b'{"a": [1]}') == {"a": [1]}


def test_lines_end_at_line_feeds_only_and_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes('\ufeff"a\u2028b\x85c\x0bd"\r\n\n"e"'.encode())
    assert list(read_lines(path)) == [(1, '"a\u2028b\x85c\x0bd"'), (3, '"e"')]


@pytest.mark.parametrize(
    ("content", "where"), [(b"one\n\xff\n", ":2"), (None, "")], ids=["not UTF-8", "missing"]
)
def test_what_is_no_text_is_named_with_its_line(tmp_path: Path, content: bytes | None, where: str) -> None:
    path = tmp_path / "lines.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_lines(path))
    assert caught.value.where == f"{path}{where}"


def test_a_device_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="The line has more than"):
        list(read_lines(Path("/dev/zero")))


@pytest.mark.parametrize("command", READERS, ids=lambda command: " ".join(command[:2]))
def test_a_file_that_is_nested_too_deeply_is_refused_by_every_command(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "deep.jsonl").write_text(DEEP)
    done = bactrian(*(word.replace("FILE", "deep.jsonl") for word in command), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "deep.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["deep.jsonl"]


def test_a_program_without_an_end_is_refused(tmp_path: Path) -> None:
    done = bactrian("sandbox", "run", "/dev/zero", cwd=tmp_path)
    assert done.returncode == 2
    assert "The program is larger than" in done.stderr
