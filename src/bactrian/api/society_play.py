"""A society with the options of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bactrian.api.arguments import check_base_url, describe_options
from bactrian.api.model_arguments import LOCAL, ChosenModels, open_access
from bactrian.errors import InputError
from bactrian.models.open import ModelOptions
from bactrian.options import SocietyOptions
from bactrian.recipes.society_file import load_society
from bactrian.roleplay.endings import read_endings
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.society import ChatOptions, SocietyRun, name_models


def order_society(
    society: str,
    idea: str | None,
    model: str | None,
    models: Mapping[str, str],
    options: SocietyOptions,
    *,
    endings: str = "default",
) -> tuple[SocietyRun, ModelOptions]:
    """Combine a society, by its name or file, with what a command says.

    ``models`` has those of ``task`` and ``critic``; ``model`` is for all agents for which the society names none.

    Raises:
        InputError: the society or an option cannot be used.
    """
    content, _ = load_society(society)
    if models.get("critic") == HUMAN and not any(stage.critic for stage in content.stages):
        raise InputError(
            "No stage of this society has a critic.",
            where="--critic",
            next="Give a stage a [stages.critic] in a file of your own: docs/societies.md.",
        )
    usual = model or LOCAL
    names = name_models(content, usual, task_model=models.get("task"), critic_model=models.get("critic"))
    check_base_url(options.get("base_url"), names.values())
    access = open_access(options, ChosenModels(names))
    if access.base_url is not None:
        options = {**options, "base_url": access.base_url}
    # A society's file may come from another person: the addresses in it get no key.
    access = replace(access, distrusted=frozenset(names.values()) - {usual, *models.values()})
    return build_society_run(society, idea, names, options, endings=endings), access


def build_society_run(
    society: str,
    idea: str | None,
    models: Mapping[str, str],
    options: SocietyOptions,
    *,
    endings: str = "default",
    name: str | None = None,
) -> SocietyRun:
    """Combine a society, by its name or file, with its options. ``models`` are by agent.

    Raises:
        InputError: the society or an option cannot be used.
    """
    content, prompts = load_society(society)
    rules, paper = read_endings(endings)
    task = idea or content.task
    command: dict[str, Any] = {
        **describe_options(options),
        "endings": endings,
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
