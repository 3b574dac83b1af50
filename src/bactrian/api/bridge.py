"""The bridge from synchronous to asynchronous code: an event loop in a private thread.

A notebook runs a loop in its main thread, where no second one can run. The private loop lives as long as the process,
so that a client opened by a user's own model stays usable from one call to the next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sysconfig
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import bactrian
from bactrian.errors import BactrianError

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")
_PATIENCE = 30.0  # Seconds for work in flight to finish after an interrupt


# Where code runs that is not the user's: this package and the standard library.
_INTERNAL = (str(Path(bactrian.__file__).parent) + os.sep, sysconfig.get_path("stdlib") + os.sep, "<frozen ")
_PACKAGES = f"{os.sep}site-packages{os.sep}"


def cut_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame of the user's code on; None if it has none."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_INTERNAL) or (_PACKAGES in file and not file.startswith(_INTERNAL[0])):
            return trace
        trace = trace.tb_next
    return None


@contextmanager
def shorten_traceback() -> Generator[None]:
    """Leave only the frames of the user's code in the traceback of an error, and in that of its cause.

    A cause without such frames is an inner matter, and not shown. ``BACTRIAN_DEBUG`` keeps everything.
    """
    try:
        yield
    except Exception as error:
        if not os.environ.get("BACTRIAN_DEBUG"):
            if (cause := error.__cause__) is not None:
                cause.__traceback__ = cut_frames(cause.__traceback__)
                if cause.__traceback__ is None and isinstance(error, BactrianError):
                    error.__cause__ = None
            error.__traceback__ = cut_frames(error.__traceback__)
        raise


def shorten_errors(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a public function whose errors show the frames of the user and not those of this package."""

    @wraps(function)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **options)
        except BactrianError as error:
            if not os.environ.get("BACTRIAN_DEBUG"):
                error.__traceback__ = None
            raise

    return call


def run_sync(
    work: Coroutine[Any, Any, _Result], stop: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> _Result:
    """Run ``work`` and return its result, whether or not a loop runs in this thread.

    Ctrl-C calls ``stop``, waits up to 30 seconds for work in flight, and then cancels it. Without ``stop``, or at the
    second Ctrl-C, it is cancelled immediately. Resources are closed before KeyboardInterrupt is raised.

    Raises:
        BactrianError: called from a coroutine on the private loop.
    """
    loop = _private_loop(os.getpid())
    if _running_loop() is loop:
        work.close()
        raise BactrianError(
            "A synchronous call cannot be made from a coroutine of a model, a tool or a source.",
            next="Use bactrian.stream there, or call it from a function that is not asynchronous.",
        )
    task: list[asyncio.Task[_Result]] = []

    async def guard() -> _Result:
        task.append(asyncio.ensure_future(work))
        return await task[0]

    future = asyncio.run_coroutine_threadsafe(guard(), loop)
    try:
        with _interruptible(), shorten_traceback():
            return future.result()
    except KeyboardInterrupt:
        if stop is not None:
            asyncio.run_coroutine_threadsafe(stop(), loop)
            _wait(future, _PATIENCE)
        if not future.done():
            loop.call_soon_threadsafe(lambda: [begun.cancel() for begun in task])
            _wait(future, None)
        raise


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the main thread, even where ``asyncio.run`` has taken the signal.

    Its handler asks the loop to cancel its task, but that loop waits for this call.
    """
    if _running_loop() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not _is_of_asyncio(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_of_asyncio(handler: object) -> bool:
    function = getattr(handler, "func", handler)  # asyncio.Runner installs a partial
    return getattr(function, "__module__", None) == "asyncio.runners"


def _wait(future: Any, seconds: float | None) -> None:
    """Wait until the work has ended in any way; another Ctrl-C ends the wait."""
    from concurrent.futures import wait

    try:
        wait([future], timeout=seconds)
    except KeyboardInterrupt:
        return


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


@cache
def _private_loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001  a fork has no threads of its parent
    """Return the loop of this process; the first call starts it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run_loop, args=(loop,), name="bactrian", daemon=True).start()
    return loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop for ever. A SystemExit or KeyboardInterrupt of a user's own code ends its task, not the loop."""
    while True:
        with suppress(SystemExit, KeyboardInterrupt):  # asyncio raises them out of the loop, too
            loop.run_forever()
