"""``bactrian resume``: resumes a run or a session without repeating its command."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import typer

from bactrian.api.models import ChosenModels, make_meter
from bactrian.api.reading.selection import find_session
from bactrian.api.reading.stored import StoredRun, read_stored_run
from bactrian.api.resume import ResumeOptions, build_resume_order, build_resume_session, find_command
from bactrian.cli.commands.generate import watch_run
from bactrian.cli.embodied import ask_consent, watch_embodied
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import RunArgument, declare_option
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.terminal.keyboard import add_person
from bactrian.cli.view.progress import choose_progress_view
from bactrian.cli.view.watching import PlayKeeper, watch_session, watch_society
from bactrian.errors import InputError
from bactrian.models.registry import ModelOptions
from bactrian.play.embodied.alone import EmbodiedOrder
from bactrian.play.human import HUMAN
from bactrian.play.run_session import SessionOrder
from bactrian.records.run import Command
from bactrian.store import RunReader, name_run, open_store


def resume(
    run_file: RunArgument,
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="A session of `bactrian play`. Default: the only unfinished one."
        ),
    ] = None,
    limit: Annotated[
        int | None, declare_option("--limit", "Another number of jobs.", short="-n", min=1)
    ] = None,
    budget: Annotated[
        float | None, declare_option("--budget", "Another budget, in US dollars for the whole run.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, declare_option("--max-tokens", "Another limit of tokens for the whole run.", min=1)
    ] = None,
    max_messages: Annotated[
        int | None, declare_option("--max-messages", "Another limit of messages, for a session.", min=1)
    ] = None,
    concurrency: Annotated[
        int | None, declare_option("--concurrency", "Maximum number of concurrent conversations.", min=1)
    ] = None,
    price: Annotated[
        str | None, declare_option("--price", "US dollars per million tokens, prompt/completion[/cached].")
    ] = None,
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    send_keys_to: Annotated[
        list[str] | None,
        declare_option("--send-keys-to", "Address in the run that may receive your key. Can be repeated."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        declare_option("--tools", "The session's tools: FILE.py or FILE.py:NAME,NAME. Can be repeated."),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        declare_option("--mcp", "Command line of an MCP server of the session. Can be repeated."),
    ] = None,
    retry_failed: Annotated[
        bool, declare_option("--retry-failed", "Retry failed jobs and incomplete lists.")
    ] = False,
    yes: Annotated[
        bool, declare_option("--yes", "Let embodied agents run code without asking first.")
    ] = False,
    json: Annotated[bool, declare_option("--json", "Write JSON lines.")] = False,
) -> None:
    """Resume an interrupted run or session. The run stores all its options; keys come from the environment."""
    run = run_file
    given = ResumeOptions(
        limit=limit,
        budget=budget,
        max_tokens=max_tokens,
        max_messages=max_messages,
        concurrency=concurrency,
        price=price,
        base_url=base_url,
        send_keys_to=send_keys_to or (),
        tools=(*(tools or ()), *(f"mcp:{command}" for command in mcp or ())),
        retry_failed=retry_failed,
        run_code=yes,
    )
    stop_control = StopControl()
    again = f"All results so far are stored. To resume: bactrian resume {shlex.quote(name_run(run_file))}"
    work = _resume(run, session, given, stop_control, json=json, yes=yes)
    run_async(work, resume=again, stop_control=stop_control)


async def _resume(
    run: Path, session: str | None, given: ResumeOptions, stop_control: StopControl, *, json: bool, yes: bool
) -> int:
    async with open_store(run, read_only=True) as store:
        found = await (
            read_stored_run(store) if await _is_generated(store) else _find_command(store, session)
        )
    if isinstance(found, StoredRun):
        order = build_resume_order(found, run, given)
        order = replace(order, access=show_model_progress(order.access))
        return await watch_run(order, choose_progress_view(json=json), stop_control)
    made = build_resume_session(found, run, given)
    before = {name: found.options.get(name) for name in ("price", "budget")}
    limits = cast(
        "ResumeOptions", {**before, **{name: one for name, one in given.items() if one is not None}}
    )
    names: Mapping[str, str] = found.options.get("models", {})
    if isinstance(made, EmbodiedOrder) or (isinstance(made, SessionOrder) and made.embodied):
        role = made.role if isinstance(made, EmbodiedOrder) else made.setup.assistant
        await asyncio.to_thread(ask_consent, role.name, given.get("tools", ()), yes=yes)
    if isinstance(made, EmbodiedOrder):
        options = meter_session(show_model_progress(made.options), {"assistant": made.model}, limits)
        keeper = PlayKeeper(run, keep=False, json=json, meter=options.meter)
        return await watch_embodied(replace(made, options=options), keeper)
    if isinstance(made, SessionOrder):
        options = meter_session(show_model_progress(made.options), names, limits)
        keeper = PlayKeeper(run, keep=False, json=json, meter=options.meter)
        if HUMAN in made.setup.models.values():
            options = add_person(options, stop_control, None)
        return await watch_session(replace(made, options=options), keeper)
    society, options = made
    options = meter_session(show_model_progress(options), names, limits)
    keeper = PlayKeeper(run, keep=False, json=json, meter=options.meter)
    return await watch_society(society, options, keeper)


def meter_session(options: ModelOptions, names: Mapping[str, str], given: ResumeOptions) -> ModelOptions:
    """Return ``options`` with what counts the cost of a session, within the budget that was given.

    Raises:
        InputError: there is a budget, and a price is unknown.
    """
    meter = make_meter(
        ChosenModels(names), price=given.get("price"), budget=given.get("budget"), base_url=options.base_url
    )
    return replace(options, meter=meter)


async def _is_generated(store: RunReader) -> bool:
    content = await store.recipe()
    return content is not None and "recipe" in content


async def _find_command(store: RunReader, session: str | None) -> Command:
    """Return the command that made a session: the named one, or the only one that has not ended.

    Raises:
        InputError: there is none, or there are several.
    """
    if session is not None:
        name = (await find_session(store, session)).id
    else:
        imported = await store.list_imported()
        open_ = [one.id async for one in store.progress() if one.ending is None and one.id not in imported]
        if len(open_) != 1:
            raise InputError(
                f"{len(open_):,} sessions of the run have not ended."
                if open_
                else "Every session has ended.",
                where=str(store.path),
                next=f"Name one: {', '.join(open_[:5])}"
                if open_
                else "Its ID and --max-messages resume one that reached its limit.",
            )
        name = open_[0]
    command = find_command(await store.commands(), name)
    if command is None:
        raise InputError(
            f"The run does not say how session {name} was made.",
            where=str(store.path),
            next="Run the command of `bactrian play` again with this --run; it resumes.",
        )
    return command
