"""Model options from flags and the environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bactrian.api.arguments import build_model_options, check_base_url
from bactrian.cli.terminal.console import hide_spinner, open_progress, return_spinner, say
from bactrian.models.open import ModelOptions
from bactrian.options import AgentModels, list_options

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WARN_EVERY = 60.0  # Seconds between two warnings about transient faults


def read_model_options(base_url: str | None, *names: str, **more: Any) -> ModelOptions:
    """Return the options for opening the models ``names``; ``more`` are fields of ``EndpointOptions``.

    Raises:
        InputError: ``base_url`` is for none of the models.
    """
    check_base_url(base_url, names)
    return show_model_progress(build_model_options({"base_url": base_url, **more}))


def show_model_progress(options: ModelOptions) -> ModelOptions:
    """Return ``options`` with warnings and a progress bar of downloads on standard error."""
    return replace(options, progress=_fetching(), notice=_now_and_then(), report=_say)


def split_models(options: Mapping[str, Any]) -> tuple[str | None, dict[str, str], dict[str, Any]]:
    """Split flags into the model of all agents, the models by agent, and all others."""
    flags = {declared.name for declared in list_options(AgentModels)}
    agents = {"list": "lister"}
    named = {name.removesuffix("_model"): value for name, value in options.items() if name in flags}
    rest = {name: value for name, value in options.items() if name not in flags}
    model = named.pop("model", None)
    return model, {agents.get(agent, agent): name for agent, name in named.items()}, rest


def _say(text: str) -> None:
    say(f"bactrian: {text}")


def _warn(text: str) -> None:
    say(f"bactrian: warning: {text}")


def _now_and_then() -> Callable[[str], None]:
    """Return a function that warns at most once a minute, as many conversations may meet the same fault."""
    last = -_WARN_EVERY

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _WARN_EVERY:
            last = time.monotonic()
            _warn(text)

    return tell


def _fetching() -> Callable[[int, int], None]:
    """Return a function that shows a progress bar on standard error when weights are fetched."""
    shown: list[tuple[Progress, TaskID]] = []

    def tell(done: int, total: int) -> None:
        if not shown:
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            hide_spinner()
            started = Progress(
                TextColumn("Fetching the model"), BarColumn(), DownloadColumn(), console=open_progress()
            )
            started.start()
            shown.append((started, started.add_task("weights", total=total)))
        bar, task = shown[0]
        bar.update(task, completed=done)
        if done >= total:
            bar.stop()
            return_spinner()

    return tell
