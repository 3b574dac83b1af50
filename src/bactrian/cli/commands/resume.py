"""``bactrian resume``: resumes a run or a session without repeating its command."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Unpack

from bactrian.api.resumption import StoredRun, build_resume_order, build_resume_session, read_resumable
from bactrian.cli.flags import Argument, RunArgument
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.terminal.keyboard import ask_consent
from bactrian.cli.view.progress_view import choose_progress_view, watch_run
from bactrian.cli.view.watching import OutputFlags, PlayKeeper
from bactrian.options import JSON, MCP, QUIET, ResumeOptions
from bactrian.roleplay.alone import EmbodiedOrder
from bactrian.store import name_run


def resume(
    run_file: RunArgument,
    session: Annotated[
        str | None,
        Argument(
            "A session of `bactrian play`. Default: the only one, or the only unfinished one.", metavar="[ID]"
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None, MCP, "Command line of an MCP server of the session. Can be repeated."
    ] = None,
    json: Annotated[bool, JSON, "Write JSON lines."] = False,
    quiet: Annotated[bool, QUIET, "Of a run: write only warnings and errors."] = False,
    **options: Unpack[ResumeOptions],
) -> None:
    """Resume an interrupted run or session. The run stores all its options; keys come from the environment."""
    options["tools"] = (*options.get("tools", ()), *(f"mcp:{command}" for command in mcp or ()))
    stop_control = StopControl()
    again = f"All results so far are stored. To resume: bactrian resume {shlex.quote(name_run(run_file))}"
    work = _resume(run_file, session, options, stop_control, json=json, quiet=quiet)
    run_async(work, resume=again, stop_control=stop_control)


async def _resume(
    run: Path,
    session: str | None,
    options: ResumeOptions,
    stop_control: StopControl,
    *,
    json: bool,
    quiet: bool,
) -> int:
    stored = await read_resumable(run, session, longer=options.get("max_messages") is not None)
    if isinstance(stored, StoredRun):
        order = build_resume_order(stored, run, options)
        order = replace(order, access=show_model_progress(order.access))
        return await watch_run(order, choose_progress_view(json=json, quiet=quiet), stop_control)
    ordered = build_resume_session(stored, run, options)
    if not isinstance(ordered, tuple) and ordered.embodied:
        role = ordered.role if isinstance(ordered, EmbodiedOrder) else ordered.setup.assistant
        tools, yes = options.get("tools", ()), options.get("run_code", False)
        await asyncio.to_thread(ask_consent, role.name, tools, yes=yes)
    access = ordered[1] if isinstance(ordered, tuple) else ordered.options
    return await PlayKeeper(OutputFlags(run, json=json), access.meter).watch(ordered, stop_control)
