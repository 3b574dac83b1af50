"""Resumes a stored run or session; its recipe and its options need not be given again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bactrian.api.arguments import OWN, ToolLike, is_object
from bactrian.api.conversation import AskingTerms, order_session, order_society
from bactrian.api.dataset import build_order, check_runs_code, read_shard, use_terms_of_runs
from bactrian.api.endpoints import confirm_addresses, find_foreign
from bactrian.api.known_runs import open_anywhere
from bactrian.api.selection import find_session
from bactrian.errors import InputError, StoreError
from bactrian.evaluate.comparison_jobs import Solutions, Verdicts
from bactrian.models.open import ModelOptions
from bactrian.options import Critic, PlayOptions, ResumeOptions, SocietyOptions, read_fields
from bactrian.recipes.load import read_recipe_content
from bactrian.recipes.schema import Recipe
from bactrian.records.run import Command, list_keys
from bactrian.records.session import HUMAN, Role
from bactrian.roleplay.alone import EmbodiedOrder
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.society import SocietyRun
from bactrian.runs.plan import SHARD, Plan
from bactrian.runs.wiring import RunOrder
from bactrian.store import RunStore, find_address, name_run

# Rebuilds the order of a stored run, so that it resumes without its recipe and options being named.


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a run stores about how it is made."""

    plan: Plan
    # The options of the last command; empty if it was killed before it stored them.
    options: Mapping[str, Any]
    content: Mapping[str, Any]  # What was frozen

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return self.plan.recipe

    @property
    def objects(self) -> tuple[str, ...]:
        """Python objects that the run was made with, and that a file cannot store."""
        models = filter(is_object, self.plan.models.values())
        return tuple(
            dict.fromkeys((*models, *self.content.get("endings", ()), *self.options.get("sources", ())))
        )

    @property
    def needs_limit(self) -> bool:
        """True if nothing says how many of the recipe's jobs are wanted."""
        return "limit" not in self.options


async def is_generated(store: RunStore) -> bool:
    """Return True if the run was made from a recipe."""
    return "recipe" in (await store.recipe() or {})


async def read_stored_run(store: RunStore) -> StoredRun:
    """Return how the run is made. No name of a model in a file is trusted: an address in it receives a key only if a
    person names the address.

    Raises:
        InputError: it was not made from a recipe.
        StoreError: what it stores of its recipe cannot be read.
    """
    content = await store.recipe()
    if content is None or "recipe" not in content:
        raise InputError(
            "This run was not made from a recipe.",
            where=str(store.path),
            next="`bactrian generate` makes runs from recipes.",
        )
    options = [command.options for command in await store.commands() if command.verb == "generate"]
    try:
        models: Mapping[str, str] = dict(content["models"])
        recipe = read_recipe_content(content["recipe"])
        if isinstance(recipe.job, Solutions | Verdicts):
            recipe = recipe.with_folder(str(store.path.parent))
        shard = read_shard(content.get(SHARD), {})
    except (AttributeError, InputError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            "The run does not say in a known form what it is made from.",
            where=str(store.path),
            next="Open it with the version or the package that made it; `bactrian show` reads its conversations.",
        ) from error
    plan = Plan(recipe, models, content.get("seed"), distrusted=frozenset(models.values()), shard=shard)
    return StoredRun(plan, options[-1] if options else {}, content)


async def read_resumable(
    run: Path, session: str | None = None, *, longer: bool = False
) -> StoredRun | Command:
    """Return what can be resumed: a run of a recipe, or the command that made a session.

    Without ``session``, it is the only session that has not ended, failed or was stopped; if it is to become
    ``longer``, the only one of the run.

    Raises:
        InputError: there is no such session, there are several, or the run does not store how it was made.
    """
    async with open_anywhere(run) as (store, _):
        name = None if session is None else (await find_session(store, session)).id
        played = name and find_command(await store.commands(), name)
        if not played and await is_generated(store):
            return await read_stored_run(store)
        if address := find_address(run):
            raise InputError(
                "Processes share runs of recipes only.",
                where=str(address),
                next="Copy it to a file, and resume there: bactrian pull ADDRESS RUN.db",
            )
        name = name or await _find_open(store, longer=longer)
        command = find_command(await store.commands(), name)
        if command is not None:
            taken = await _find_taken(store, name, in_society="society" in command.options)
            command = replace(command, options={**command.options, _TAKEN: taken})
    if command is None:
        raise InputError(
            f"The run does not say how session {name} was made.",
            where=str(run),
            next="Run the command of `bactrian play` again with this --run; it resumes.",
        )
    return command


_TAKEN = "taken"


async def _find_taken(store: RunStore, name: str, *, in_society: bool) -> list[str]:
    """Return the agents whose last turn, or choice, in a session or in the stages of its society is a person's."""
    models: dict[str, str] = {}
    async for each in store.progress():
        if each.id == name or (in_society and {*list_keys(each.id)} & {*list_keys(name)}):
            session, known = await store.session(each.id), await store.deliberation(each.id)
            asked = session.provenance.models if session else ()  # Who only began it is not asked again.
            models |= {
                turn.speaker: turn.model
                for turn in (session.turns if session else ())
                if turn.speaker in asked
            }
            models.update((CRITIC, verdict.model) for verdict in known.verdicts)
    return [agent for agent, model in models.items() if model == HUMAN]


async def _find_open(store: RunStore, *, longer: bool) -> str:
    imported = await store.list_imported()
    own = [session async for session in store.progress() if session.id not in imported]
    begun = [session.id for session in own if session.goes_on or (longer and len(own) == 1)]
    if len(begun) == 1:
        return begun[0]
    raise InputError(
        f"{len(begun):,} sessions of the run can be continued." if begun else "Every session has ended.",
        where=str(store.path),
        next=f"Name one: {', '.join(begun[:5])}"
        if begun
        else "Its ID and max_messages=N resume one that reached its limit.",
    )


def build_resume_order(stored: StoredRun, run: Path, chosen: ResumeOptions) -> RunOrder:
    """Return the order that continues a run of a recipe.

    Raises:
        InputError: an option must be given, because the run does not store it.
    """
    options = _merge(stored.options, chosen)
    if stored.objects:
        raise InputError(
            f"The run was made with {stored.objects[0]!r} from Python, which a run cannot store.",
            where=str(run),
            next="Make the same call of bactrian.generate again; it resumes.",
        )
    if stored.needs_limit and chosen.get("limit") is None:
        raise InputError(
            f"The run does not say how many of its {stored.recipe.size:,} jobs you want.",
            where=str(run),
            next="Say it with limit=N.",
        )
    if stored.recipe.tools is not None:
        raise InputError(
            "The agents of this run have tools, and a run never loads code by itself.",
            where=str(run),
            next=f"Name its recipe: bactrian generate RECIPE --run {shlex.quote(str(run))}",
        )
    check_runs_code(stored.recipe, allowed=chosen.get("run_code", False))
    confirmed = _list_confirmed(chosen)
    trusted = confirm_addresses(stored.plan.models.values(), None, run, confirmed)
    plan = replace(stored.plan, distrusted=stored.plan.distrusted - trusted)
    options = use_terms_of_runs(plan, run, options, confirmed=confirmed)
    return build_order(plan, run, {**options, "retry_failed": chosen.get("retry_failed", False)})


def build_resume_session(
    command: Command, run: Path, chosen: ResumeOptions
) -> SessionOrder | EmbodiedOrder | tuple[SocietyRun, ModelOptions]:
    """Return the order that continues a session of ``play``; for one of a society, the society with its models.

    The order of an embodied agent, alone or not, runs code of a model: ask before it is played.

    Raises:
        InputError: the session used what a file cannot store.
    """
    stored: Mapping[str, Any] = command.options
    if not is_resumable(command):
        raise InputError(
            "The session was made with objects from Python, which a run cannot store.",
            where=str(run),
            next="Make the same call of bactrian.play again; it resumes.",
        )
    models: Mapping[str, str] = stored["models"]
    options, confirmed = _merge(stored, chosen), _list_confirmed(chosen)
    distrusted = frozenset(models.values()) - confirm_addresses(models.values(), None, run, confirmed)
    in_society = "society" in stored
    asking = AskingTerms(stored.get("name") if in_society else command.session, distrusted, confirmed)
    declaration = SocietyOptions if in_society else PlayOptions
    kept: Any = {name: value for name, value in options.items() if name in read_fields(declaration)}
    taken: frozenset[str] = frozenset(stored.get(_TAKEN, ()))
    if in_society:
        settings, access = order_society(
            stored["society"],
            stored["idea"],
            None,
            models,
            kept,
            endings=stored.get("endings", "default"),
            run=run,
            asking=asking,
        )
        return settings, replace(access, taken=taken)
    role = Role(**stored["assistant"])
    if "embodied" in stored:
        kept["embodied"] = role
    critic: dict[str, Any] | None = stored.get("critic")
    ordered = order_session(
        stored["idea"],
        None if "embodied" in stored else role,
        Role(**stored["user"]) if "user" in stored else None,
        models=models,
        critic=Critic(**critic) if critic else None,
        tools=_find_tools(stored, chosen, str(run)),
        endings=stored.get("endings", ()),
        run=run,
        options=kept,
        asking=asking,
    )
    return replace(ordered, options=replace(ordered.options, taken=taken))


def _merge(stored: Mapping[str, Any], chosen: ResumeOptions) -> dict[str, Any]:
    """Return the stored options, changed by those ``chosen`` now; the address is chosen with the terms of the run."""
    changes = {name: value for name, value in chosen.items() if value is not None}
    return {**stored, "base_url": None, **changes}


def _list_confirmed(chosen: ResumeOptions) -> tuple[str, ...]:
    return tuple(filter(None, (*chosen.get("send_keys_to", ()), chosen.get("base_url"))))


def find_command(commands: Iterable[Command], session: str) -> Command | None:
    """Return the call of ``play`` that made a session; None if the run does not store it."""
    made = {command.session: command for command in commands if command.verb == "play"}
    # The stages of a society share its command: their ids differ in what follows the last hyphen.
    stages = (
        command for command in made.values() if session.startswith(f"{command.session.rpartition('-')[0]}-")
    )
    return made.get(session) or next(stages, None)


def is_resumable(command: Command | None) -> bool:
    """Return True if the run stores all that a session was made with, so that it can be resumed by its name."""
    return command is not None and "models" in command.options and not command.options.get(OWN)


def write_resume_command(run: Path, stored: StoredRun) -> str | None:
    """Return the command that resumes it with the run, quoted for the shell; None if only what made it can."""
    if stored.objects or stored.recipe.tools is not None:
        return None
    parts = ["bactrian", "resume", name_run(run)]
    if stored.needs_limit:
        parts += ["--limit", str(stored.recipe.size)]
    for address in find_foreign(stored.plan.models.values(), stored.options.get("base_url")):
        parts += ["--send-keys-to", address]
    return shlex.join(parts)


def _find_tools(
    stored_options: Mapping[str, Any], chosen: ResumeOptions, where: str
) -> dict[str, Sequence[ToolLike]]:
    """Return the tools by agent: those that the person names, as a run never loads code by itself."""
    agents: list[str] = [*stored_options.get("tools", ()), *stored_options.get("servers", ())]
    if not agents:
        return {}
    if not (tools := chosen.get("tools", ())):
        files = [file for listed in stored_options.get("tools", {}).values() for file in listed]
        flags = [f"tools={shlex.quote(file)}" for file in files]
        flags += ["tools=mcp:COMMAND"] * sum(stored_options.get("servers", {}).values())
        raise InputError(
            "The session has tools, and a run never loads code by itself.",
            where=where,
            next=f"Name them: {' '.join(flags)}",
        )
    return {agents[0]: tools}
