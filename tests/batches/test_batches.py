"""Runs in batches are equal to runs that ask live, whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.batch_server import BatchServer
from tests.helpers.batched import KEYS, MODELS, play, play_killed, read_texts

DIALECTS = list(MODELS)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


async def play_live(folder: Path, dialect: str) -> dict[str, tuple[str | None, list[str]]]:
    folder.mkdir()
    async with BatchServer() as server:
        await play(folder, server.url, dialect, batch=False)
    return await read_texts(folder)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_run_in_batches_has_the_texts_of_a_live_one_and_pays_for_each_reply_once(
    tmp_path: Path, dialect: str
) -> None:
    async with BatchServer(looks=1) as server:
        await play(tmp_path, server.url, dialect)
    texts = await read_texts(tmp_path)
    assert texts == await play_live(tmp_path / "live", dialect)
    assert len(texts) == 6
    assert server.live == 0
    assert server.paid_twice == 0
    assert server.orphans == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_run_that_does_not_wait_goes_on_with_the_same_command(tmp_path: Path, dialect: str) -> None:
    async with BatchServer(looks=1) as server:
        codes = [3]
        while codes[-1] == 3:
            codes.append(await play_killed(tmp_path, server, dialect, batch_wait=0.0))
        assert codes[-1] == 0
        assert len(codes) > 4
    texts = await read_texts(tmp_path)
    assert [ending for ending, _ in texts.values()] == ["max_messages"] * 6
    assert server.paid_twice == 0
    assert server.orphans == []
