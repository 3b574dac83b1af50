"""The bridge from the synchronous command line to asynchronous code."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

from bactrian.amounts import write_dollars, write_tokens
from bactrian.cli.terminal.console import say
from bactrian.cli.terminal.process import CALL_THREAD
from bactrian.records.turn import Usage

if TYPE_CHECKING:
    from bactrian.models.budget import UsageMeter

SOME_FAILED = 4
INTERRUPTED = 130
TERMINATED = 143
WHOLE = "Each file that was to be written is complete, or as it was before."
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _CallThreads(ThreadPoolExecutor):
    """Threads for blocking calls. The event loop does not wait for them when it closes.

    What is still awaited has ended by then; a cancelled call, such as a look-up of a name, may take minutes.
    """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        super().shutdown(wait=False, cancel_futures=True)


class StopControl:
    """A way to ask work to finish. The work sets :attr:`pull` once it supports this."""

    stop: Callable[[], Coroutine[object, object, None]] | None = None
    is_stopping = False
    """True once a person or the system asked to stop."""
    meter: UsageMeter | None = None
    """Counts what the work costs, and knows which replies were broken off."""

    def describe_broken_off(self) -> str:
        """Say how many replies were broken off, and what they are taken to have cost; empty if none was."""
        if self.meter is None or not (broken := self.meter.broken_off):
            return ""
        used = sum((usage for _, usage in broken), Usage())
        costs = [price.cost(usage) for name, usage in broken if (price := self.meter.prices.get(name))]
        usd = f", {write_dollars(sum(costs))}" if len(costs) == len(broken) else ""
        what = "A reply was" if len(broken) == 1 else f"{len(broken)} replies were"
        return f"{what} broken off: {write_tokens(used)} tokens{usd}. "


def run_async(
    work: Coroutine[object, object, int], *, resume: object, stop_control: StopControl | None = None
) -> NoReturn:
    """Run ``work`` and exit with the code that it returns.

    SIGINT, SIGTERM and a closed terminal cancel it, so that it can release its resources; then ``resume`` is printed.
    Once it has ended, they end the process at once.
    With a ``stop_control``, the first signal calls it instead, and the work has 30 s (10 s unless the signal is
    SIGINT) to finish what is in flight; the second signal cancels it.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 10)  # Python's own, which the start of the program changes
    before = {which: signal.getsignal(which) for which in _STOPPING}
    stop_control = stop_control or StopControl()
    try:
        code = asyncio.run(_interruptible(work, stop_control))
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    if code in (INTERRUPTED, TERMINATED):
        say(f"\nInterrupted. {stop_control.describe_broken_off()}{resume}")
    raise SystemExit(code)


async def _interruptible(work: Coroutine[object, object, int], stop_control: StopControl) -> int:
    task = asyncio.ensure_future(work)
    caught: list[signal.Signals] = []
    pulled: list[asyncio.Task[None]] = []

    def stop(which: signal.Signals) -> None:
        caught.append(which)
        stop_control.is_stopping = True
        if stop_control.stop is None or len(caught) > 1:
            task.cancel()
            return
        pulled.append(loop.create_task(stop_control.stop()))
        loop.call_later(30 if which == signal.SIGINT else 10, task.cancel)
        say("\nFinishing what is in flight; press Ctrl-C again to stop immediately.")

    loop = asyncio.get_running_loop()
    loop.set_default_executor(_CallThreads(thread_name_prefix=CALL_THREAD))
    # Those of nohup, or of a shell's job in the background, stay ignored.
    watched = [which for which in _STOPPING if signal.getsignal(which) != signal.SIG_IGN]
    for which in watched:
        loop.add_signal_handler(which, stop, which)
    try:
        code = await task  # PYTHONASYNCIODEBUG=1 names what blocks the loop, and with it every conversation.
    except asyncio.CancelledError:
        code = None
    finally:
        for which in watched:
            loop.remove_signal_handler(which)
            signal.signal(which, signal.SIG_DFL)
    if caught and (code is None or pulled):  # What has ended by itself is done.
        return INTERRUPTED if caught[0] == signal.SIGINT else TERMINATED
    return TERMINATED if code is None else code
