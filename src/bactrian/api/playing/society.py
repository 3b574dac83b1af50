"""A society with the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from bactrian.api.commands import describe_options
from bactrian.play.endings.own import read_endings
from bactrian.play.society.group_chat import ChatOptions
from bactrian.play.society.stages import SocietyRun
from bactrian.recipes.society import load_society


class SocietyOptions(TypedDict, total=False):
    """The options of a command for a society."""

    language: str | None
    seed: int | None
    max_messages: int | None
    protocol: str | None
    """``free`` or ``enforced``."""
    prompts: str | None
    """Prompt pack of its role-plays."""
    endings: str
    """Endings of its role-plays."""
    base_url: str | None
    """Address of the endpoint."""
    window: int | None
    timeout: float
    max_wait: float
    budget: float | None
    price: str | None


def build_society_run(
    society: str,
    idea: str | None,
    models: Mapping[str, str],
    options: SocietyOptions,
    *,
    name: str | None = None,
) -> SocietyRun:
    """Combine a society, by its name or file, with what a command says. ``models`` are by agent.

    Raises:
        InputError: the society or an option cannot be used.
    """
    content, prompts = load_society(society)
    rules, paper = read_endings(options.get("endings", "default"))
    task = idea or content.task
    command: dict[str, Any] = {
        **describe_options(options),
        "society": society,
        "content": content.model_dump(mode="json", exclude_none=True),
        "idea": task,
        "models": dict(models),
    }
    return SocietyRun(
        content,
        prompts,
        task,
        ChatOptions(
            models,
            options.get("language"),
            options.get("seed"),
            options.get("max_messages"),
            options.get("protocol"),
        ),
        options.get("prompts"),
        paper_endings=paper,
        endings=rules,
        name=name,
        command=command,
    )
