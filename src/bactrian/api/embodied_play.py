"""Embodied agents: the order of one that acts alone, and the consent that recipes need."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.api.arguments import (
    OWN,
    ToolsLike,
    describe_options,
    describe_tools,
    read_limits,
    read_tools,
)
from bactrian.api.model_arguments import ChosenModels, limit_time
from bactrian.errors import InputError
from bactrian.models.open import ModelOptions
from bactrian.options import PlayOptions, fill_defaults
from bactrian.recipes.job_specs import RolePlay
from bactrian.recipes.parameters import read_parameters
from bactrian.recipes.schema import Recipe
from bactrian.records.session import Role

if TYPE_CHECKING:
    from bactrian.roleplay.alone import EmbodiedOrder

ALONE = "alone"
"""The key that is true if the stored command was for an embodied agent without a partner."""
_NOT_TAKEN = ("plan", "language", "protocol", "prompts", "max_messages", "word_limit")


def build_embodied_order(
    thoughts: str,
    role: Role,
    models: ChosenModels,
    access: ModelOptions,
    options: PlayOptions,
    *,
    tools: ToolsLike | None = None,
    run: str | Path | None = None,
    name: str | None = None,
) -> EmbodiedOrder:
    """Combine the arguments of :func:`bactrian.play` for an embodied agent without a partner.

    ``name`` is the id of the stored session to continue.

    Raises:
        InputError: an argument cannot be used.
    """
    usual = fill_defaults({}, PlayOptions)
    if wrong := [name for name in _NOT_TAKEN if options.get(name, usual[name]) not in (None, usual[name])]:
        raise InputError(
            f"An embodied agent alone takes no {wrong[0]}.",
            where=wrong[0],
            next="Leave it out, or give the agent a partner: user=ROLE.",
        )
    specs, functions = read_tools(tools or (), options)
    if wrong_agents := specs.keys() - {"assistant"}:
        raise InputError(
            f"{min(wrong_agents)!r} does not take part.",
            where="tools",
            next="Give the tools to the embodied role.",
        )
    model = models.names["assistant"]
    own, files, servers = describe_tools(tools or ())
    command: dict[str, Any] = {
        **describe_options({**options, "embodied": role.name}),
        ALONE: True,
        "idea": thoughts,
        "assistant": asdict(role),
        "models": {"assistant": model},
        "tools": files,
        "servers": servers,
        OWN: own or model.startswith("python:"),
    }
    from bactrian.roleplay.alone import EmbodiedOrder

    return EmbodiedOrder(
        thoughts=thoughts,
        role=role,
        model=model,
        seed=options.get("seed"),
        parameters=read_parameters(options.get("parameters", {})).by_agent().get("assistant", ()),
        options=replace(access, objects={**access.objects, **limit_time(models.objects, access.timeout)}),
        tools=specs,
        functions=functions,
        limits=read_limits(options),
        run=Path(run) if run is not None else None,
        name=name,
        command=command,
    )


def check_runs_code(recipe: Recipe, *, allowed: bool, flag: str = "--run-code") -> None:
    """Refuse a recipe whose agents run code, unless that is ``allowed`` by ``flag``.

    Raises:
        InputError: it is not.
        SandboxError: this computer has no sandbox.
    """
    if not (isinstance(recipe.job, RolePlay) and recipe.job.embodied):
        return
    if not allowed:
        raise InputError(
            "The assistants of this recipe run Python that a model writes, in the sandbox.",
            where="role_play.embodied",
            next=f"Allow it with {flag} (in Python: run_code=True).",
        )
    from bactrian.sandbox.programs import choose_tier

    choose_tier()
