"""Whatever happens between a run and its provider, the run is equal to a live one, and no batch is an orphan."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.helpers.batch_server import BatchServer
from tests.helpers.batched import KEYS, MODELS, play, play_killed, read_texts

Texts = dict[str, tuple[str | None, list[str]]]

FAULTS = ["503", "429", "409", "lost", "drop"]
SCRIPTS = {
    "faults": st.dictionaries(st.integers(0, 60), st.sampled_from(FAULTS), max_size=8),
    "lines": st.dictionaries(
        st.integers(0, 40), st.sampled_from(["500", "expired", "twice", "strange"]), max_size=6
    ),
    "looks": st.integers(0, 2),
    "hidden": st.integers(0, 2),
    "cut": st.booleans(),
    "gone": st.integers(0, 1),
    "no_errors": st.sampled_from([0, 404, 410]),
    "most": st.sampled_from([1 << 30, 3_000]),
    "state": st.sampled_from(["", "somewhere_new"]),
    "seed": st.integers(0, 99),
}
ANY_SCRIPT = st.fixed_dictionaries(SCRIPTS)
KILLS = st.dictionaries(
    st.integers(0, 40), st.sampled_from([*FAULTS, "kill", "kill-after"]), min_size=1, max_size=6
)
ANY_KILLS = st.fixed_dictionaries({**SCRIPTS, "faults": KILLS})
QUIETLY = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(scope="module", autouse=True)
def keys() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, key in KEYS.items():
            patch.setenv(name, key)
        yield


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Texts]:
    """The texts of a live run, by dialect."""

    async def make(dialect: str) -> Texts:
        folder = tmp_path_factory.mktemp(dialect)
        async with BatchServer() as server:
            await play(folder, server.url, dialect, batch=False)
        return await read_texts(folder)

    return {dialect: asyncio.run(make(dialect)) for dialect in MODELS}


def check(script: dict[str, Any], dialect: str, live: Texts, *, killed: bool) -> None:
    async def run(folder: Path) -> None:
        async with BatchServer(**script) as server:
            if killed:
                while (code := await play_killed(folder, server, dialect)) != 0:
                    assert code == -9, code
            else:
                await play(folder, server.url, dialect)
        assert await read_texts(folder) == live
        assert server.orphans == []
        assert server.paid_twice == 0

    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what came back twice, or for others
        asyncio.run(run(Path(folder)))


@pytest.mark.soak
@settings(QUIETLY, max_examples=int(os.environ.get("EXAMPLES", "10")))
@given(script=ANY_SCRIPT, dialect=st.sampled_from(list(MODELS)))
def test_any_script_of_faults_gives_the_data_of_a_live_run(
    live: dict[str, Texts], script: dict[str, Any], dialect: str
) -> None:
    check(script, dialect, live[dialect], killed=False)


@pytest.mark.soak
@settings(QUIETLY, max_examples=int(os.environ.get("EXAMPLES", "25")))
@given(script=ANY_KILLS, dialect=st.sampled_from(list(MODELS)))
def test_so_does_any_script_that_kills_the_command(
    live: dict[str, Texts], script: dict[str, Any], dialect: str
) -> None:
    check(script, dialect, live[dialect], killed=True)
