"""How to reach models, read from flags and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable

from bactrian.models.names import Access


def access(
    base_url: str | None,
    *,
    window: int | None = None,
    timeout: float = 600.0,
    longest_wait: float = 600.0,
) -> Access:
    """What the flags say, and what they leave open from ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``."""
    from bactrian.play.recorded import Recorded

    return Access(
        base_url=base_url or os.environ.get("OPENAI_BASE_URL") or None,
        key=os.environ.get("OPENAI_API_KEY", ""),
        window=window,
        timeout=timeout,
        longest_wait=longest_wait,
        progress=_fetching(),
        recorded=Recorded,
    )


def _fetching() -> Callable[[int, int], None]:
    """A progress bar on standard error that appears when the weights are first fetched."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    from bactrian.cli.terminal import progress

    bar = Progress(
        TextColumn("Fetching the built-in model"), BarColumn(), DownloadColumn(), console=progress()
    )
    shown: list[TaskID] = []

    def tell(done: int, total: int) -> None:
        if not shown:
            bar.start()
            shown.append(bar.add_task("weights", total=total))
        bar.update(shown[0], completed=done)
        if done >= total:
            bar.stop()

    return tell
