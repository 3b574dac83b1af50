"""Resumes a stored run or session; its recipe and its options need not be given again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

from bactrian.api.arguments import Critic, PlayOptions, ToolLike
from bactrian.api.commands import OWN, describe_run
from bactrian.api.models import ChosenModels, build_model_options
from bactrian.api.play import build_session_order
from bactrian.api.playing.embodied import ALONE, build_embodied_order, check_runs_code
from bactrian.api.playing.society import SocietyOptions, build_society_run
from bactrian.api.reading.stored import StoredRun
from bactrian.errors import InputError
from bactrian.generate.run import RunOrder
from bactrian.generate.run_models import RunLimits
from bactrian.generate.spread import read_spread
from bactrian.models.http.address import is_loopback, read_address
from bactrian.models.pricing import choose_prices
from bactrian.models.providers import load_providers, split_name
from bactrian.models.registry import ModelOptions
from bactrian.models.wrappers.budget import UsageMeter
from bactrian.play.embodied.alone import EmbodiedOrder
from bactrian.play.run_session import SessionOrder
from bactrian.play.society.stages import SocietyRun
from bactrian.records.run import Command
from bactrian.records.session import Role
from bactrian.store import name_run


class ResumeOptions(TypedDict, total=False):
    """Options that may change when a run is resumed; the others stay as stored."""

    limit: int | None
    """Most jobs of the run."""
    budget: float | None
    """US dollars, earlier calls included."""
    max_tokens: int | None
    """Tokens of the whole run."""
    concurrency: int | None
    price: str | None
    base_url: str | None
    max_messages: int | None
    """Messages of a session, for one that reached its limit."""
    tools: Sequence[str]
    """Tools that the run names but never loads by itself: files of Python functions, and ``mcp:COMMAND``."""
    send_keys_to: Sequence[str]
    """Addresses named in the run that may receive a key."""
    retry_failed: bool
    run_code: bool
    """Let embodied agents run code of a model in the sandbox."""


def build_resume_order(stored: StoredRun, run: Path, given: ResumeOptions) -> RunOrder:
    """Return the order that continues a run of a recipe.

    Raises:
        InputError: an option must be given, because the run does not store it.
    """
    options: dict[str, Any] = {
        **stored.options,
        **{name: value for name, value in given.items() if value is not None},
    }
    if stored.objects:
        raise InputError(
            f"The run was made with {stored.objects[0]!r} from Python, which a run cannot store.",
            where=str(run),
            next="Make the same call of bactrian.generate again; it resumes.",
        )
    if stored.needs_limit and given.get("limit") is None:
        raise InputError(
            f"The run does not say how many of its {stored.recipe.size:,} jobs you want.",
            where=str(run),
            next="Say it with --limit; it was made by an earlier version.",
        )
    if stored.recipe.tools is not None:
        raise InputError(
            "The agents of this run have tools, and a run never loads code by itself.",
            where=str(run),
            next=f"Name its recipe: bactrian generate RECIPE --run {shlex.quote(str(run))}",
        )
    check_runs_code(stored.recipe, allowed=given.get("run_code", False), flag="--yes")
    access, trusted = _open_access(stored.plan.models.values(), options, given, str(run))
    plan = replace(stored.plan, distrusted=stored.plan.distrusted - trusted)
    prices = choose_prices(
        plan.models.values(), options.get("price"), access.base_url, budget=options.get("budget")
    )
    return RunOrder(
        plan,
        run,
        access,
        UsageMeter(options.get("max_tokens"), options.get("budget"), prices),
        RunLimits(
            options.get("concurrency"),
            options.get("requests_per_minute"),
            options.get("tokens_per_minute"),
        ),
        options.get("limit"),
        given.get("retry_failed", False),
        command=describe_run(options),
        spread=read_spread(options, plan.seed),
    )


def build_resume_session(
    command: Command, run: Path, given: ResumeOptions
) -> SessionOrder | EmbodiedOrder | tuple[SocietyRun, ModelOptions]:
    """Return the order that continues a session of ``play``; for one of a society, the society with its models.

    The order of an embodied agent, alone or not, runs code of a model: ask before it is played.

    Raises:
        InputError: the session used what a file cannot store.
    """
    stored_options: Mapping[str, Any] = command.options
    if not is_resumable(command):
        raise InputError(
            "The session was made with objects from Python, which a run cannot store.",
            where=str(run),
            next="Make the same call of bactrian.play again; it resumes.",
        )
    models: Mapping[str, str] = stored_options["models"]
    access, trusted = _open_access(models.values(), {**stored_options, **given}, given, str(run))
    access = replace(access, distrusted=frozenset(models.values()) - trusted)
    limit = given.get("max_messages") or stored_options.get("max_messages")
    names = {
        name: stored_options[name] for name in stored_options.keys() & (SocietyOptions.__annotations__.keys())
    }
    if "society" in stored_options:
        settings = cast("SocietyOptions", {**names, "max_messages": limit})
        return build_society_run(
            stored_options["society"],
            stored_options["idea"],
            models,
            settings,
            name=stored_options.get("name"),
        ), access
    kept = {name: stored_options[name] for name in stored_options.keys() & PlayOptions.__annotations__.keys()}
    if stored_options.get(ALONE):
        return build_embodied_order(
            stored_options["idea"],
            Role(**stored_options["assistant"]),
            ChosenModels(models),
            access,
            cast("PlayOptions", kept),
            tools=_find_tools(stored_options, given, str(run)),
            run=run,
            name=command.session,
        )
    critic: dict[str, Any] | None = stored_options.get("critic")
    return build_session_order(
        stored_options["idea"],
        (Role(**stored_options["assistant"]), Role(**stored_options["user"])),
        ChosenModels(models),
        access,
        cast("PlayOptions", {**kept, "max_messages": limit}),
        critic=Critic(**critic) if critic else None,
        tools=_find_tools(stored_options, given, str(run)),
        endings=stored_options["endings"],
        run=run,
        name=command.session,
    )


def find_command(commands: Iterable[Command], session: str) -> Command | None:
    """Return the call of ``play`` that made a session; None if the run does not store it."""
    made = {one.session: one for one in commands if one.verb == "play"}
    return made.get(session) or next(
        (one for one in made.values() if session.startswith(f"{one.session.rpartition('-')[0]}-")), None
    )


def is_resumable(command: Command | None) -> bool:
    """Return True if the run stores all that a session was made with, so that it can be resumed by its name."""
    return command is not None and bool(command.options) and not command.options.get(OWN)


def write_resume_command(run: Path, stored: StoredRun) -> str | None:
    """Return the command that resumes it with the run, quoted for the shell; None if only what made it can."""
    if stored.objects or stored.recipe.tools is not None:
        return None
    parts = ["bactrian", "resume", name_run(run)]
    if stored.needs_limit:
        parts += ["--limit", str(stored.recipe.size)]
    base_url = stored.options.get("base_url")
    for address in _find_foreign(stored.plan.models.values(), base_url):
        parts += ["--send-keys-to", address]
    return shlex.join(parts)


def _open_access(
    names: Iterable[str], options: Mapping[str, Any], given: ResumeOptions, where: str
) -> tuple[ModelOptions, frozenset[str]]:
    """Return the options for opening the models, and the names whose addresses a person confirmed."""
    names = tuple(names)
    confirmed = {*given.get("send_keys_to", ()), given.get("base_url"), os.environ.get("OPENAI_BASE_URL")}
    foreign = _find_foreign(names, options.get("base_url"))
    if open_ := [address for address in foreign if address not in confirmed]:
        raise InputError(
            f"The run names the address {open_[0]}, and your key goes there only if you say so.",
            where=where,
            next=f"If you trust it: --send-keys-to {shlex.quote(open_[0])}",
        )
    access = build_model_options(
        options.get("base_url"),
        window=options.get("window"),
        timeout=options.get("timeout", 600.0),
        max_wait=options.get("max_wait", 600.0),
    )
    parts = {name: split_name(name) for name in names}
    trusted = (name for name, one in parts.items() if one is not None and one.address in confirmed)
    return access, frozenset(trusted)


def _find_foreign(names: Iterable[str], base_url: str | None) -> list[str]:
    """Return the addresses that a stored run names, that are not of their provider, and that a key would go to."""
    providers = load_providers()
    found: list[str] = []
    for name in dict.fromkeys(names):
        parts = split_name(name)
        row = None if parts is None else providers.get(parts.provider)
        if parts is None or row is None:
            continue
        address = parts.address or (base_url if row.name == "openai" else None)
        key = os.environ.get(row.key or "", "")
        if address is None or not key or row.is_at(address) or is_loopback(read_address(address).host):
            continue
        found.append(address)
    return list(dict.fromkeys(found))


def _find_tools(
    stored_options: Mapping[str, Any], given: ResumeOptions, where: str
) -> dict[str, Sequence[ToolLike]]:
    """Return the tools by agent: those that the person names, as a run never loads code by itself."""
    agents: list[str] = [*stored_options.get("tools", ()), *stored_options.get("servers", ())]
    if not agents:
        return {}
    if not (tools := given.get("tools", ())):
        files = [file for listed in stored_options.get("tools", {}).values() for file in listed]
        flags = [f"--tools {shlex.quote(file)}" for file in files]
        flags += ["--mcp COMMAND"] * sum(stored_options.get("servers", {}).values())
        raise InputError(
            "The session has tools, and a run never loads code by itself.",
            where=where,
            next=f"Name them: {' '.join(flags)}",
        )
    return {agents[0]: tools}
