"""What holds for every test: no network, and an environment without the settings of the person that runs them."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from tests.helpers.cpu_limit import CpuLimit
from tests.helpers.network import LOG, guard_network
from tests.helpers.time_limit import TimeLimit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest_plugins = ["pytester"]

STARTUP = Path(__file__).parent / "helpers" / "startup"
BYTECODE = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
MEMORY = "/dev/shm"
ROOM = 4 << 30
"""Bytes of memory that have to be free for temporary files."""
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""The variable in which pytest reads where temporary folders are to be."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a data folder of their own, before a module reads the environment, and take signals again.

    No test of Hypothesis has a time limit: a busy computer would fail it.

    Stop ignoring signals that the shell ignores, as it does in the background: the program would ignore them too.
    """
    gc.disable()  # until the tests are collected
    config.pluginmanager.register(CpuLimit())
    config.pluginmanager.register(TimeLimit())
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
    keep_files_in_memory()
    data = tempfile.mkdtemp(prefix="bactrian-data-", dir=os.environ.get(TEMPORARY))
    os.environ["BACTRIAN_DATA"] = data
    os.environ["XDG_DATA_HOME"] = data  # for commands without the variables of this program
    os.environ["XDG_STATE_HOME"] = data
    os.environ["HF_DATASETS_OFFLINE"] = "1"  # read once, by whichever test imports the library first
    cache_bytecode()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files, so that it reads what another worker compiled a moment before."""
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and isinstance(collector, pytest.Directory):
        share = int(worker.removeprefix("gw")) / int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        begin = int(len(report.result) * share)
        report.result = report.result[begin:] + report.result[:begin]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by their files, because all workers have to give the same order. A soak is slow, too."""
    items.sort(key=lambda item: item.path)
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out what lives to the end, and come less often: it took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 50)
    gc.enable()


def cache_bytecode() -> None:
    """Cache bytecode where Python is told not to write any, as in many containers.

    Otherwise each process that a test starts compiles every library again, which takes seconds. It is kept in
    .pytest_cache, unless the libraries are compiled: those files would not be read then.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        if Path(cache_from_source(pytest.__file__)).exists():
            return
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)


def keep_files_in_memory() -> None:
    """Put the temporary files of tests into memory where there is room, since a run waits for the disk at each turn."""
    with suppress(OSError):
        space = os.statvfs(MEMORY)
        usable = os.access(MEMORY, os.W_OK) and not space.f_flag & os.ST_NOEXEC
        if usable and space.f_bavail * space.f_frsize > ROOM:
            os.environ.setdefault(TEMPORARY, MEMORY)


def pytest_unconfigure() -> None:
    """Remove the data folder, and let what is still there be: pytest and Python would look through it three times."""
    gc.collect()
    gc.freeze()
    shutil.rmtree(os.environ["XDG_DATA_HOME"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def guarded_processes(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Guard this process and those that it starts; gives the file in which refused connections are written down.

    The built-in weights are fetched before, once for all: they are the one thing the tests take from an index.
    """
    if not (find_cache_folder() / BUILT_IN.file).exists():
        fetch_weights(BUILT_IN, find_cache_folder())
    log = tmp_path_factory.mktemp("network") / "refused.txt"
    log.touch()
    path = os.environ.get("PYTHONPATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOG, str(log))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(STARTUP), *([path] if path else [])]))
        guard_network()
        yield log


@pytest.fixture(autouse=True)
def network_guard(guarded_processes: Path) -> Generator[None]:
    """Fail a test that reaches beyond this computer, in whichever of its processes, and however it takes it."""
    yield
    if refused := guarded_processes.read_text("utf-8"):
        guarded_processes.write_text("")
        pytest.fail(f"The test reached for the network:\n{refused}")


@pytest.fixture(scope="session")
def resting_chromium(guarded_processes: Path) -> Generator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """A browser, and its event loop, which does not count as the one that runs in this thread.

    Otherwise no other loop could run in it, and each file would have to start a browser of its own.
    """
    from tests.helpers.browser import CHROMIUM, open_browser

    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with open_browser() as browser:
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)


@pytest.fixture
def chromium(resting_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Generator[Browser]:
    """A browser. Until the end of the test, its event loop runs in this thread, and no other can.

    Fixtures of a module or a session are made before it, so that they can run a loop, whichever test asks first.
    """
    browser, loop = resting_chromium
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


def pytest_xdist_auto_num_workers() -> int:
    """Return more workers than cores: with one for each of two cores, these were idle a third of the time."""
    cores = os.cpu_count() or 1
    return cores + min(cores, 2)
