"""Exports for the Python API and the command line: formats, filters by code, and uploads to the Hugging Face hub."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bactrian._version import __version__
from bactrian.analyze.behaviours import BehaviourLike, OwnBehaviour, find_behaviours
from bactrian.analyze.code_runs import CODE_FAILS, check_runs
from bactrian.api.selection import check_code, merge_installed, read_selection
from bactrian.api.status import list_asked_sessions
from bactrian.errors import BactrianError, InputError
from bactrian.export.exporter import ExportOptions, OnProgress, export_lists, export_run
from bactrian.export.format import Format
from bactrian.export.formats import LISTS, find_format
from bactrian.export.session_filters import Filters, Predicate, read_benchmark, read_split
from bactrian.files.plugins import list_plugins
from bactrian.models.http import hide_credentials
from bactrian.models.hub_access import explain_hub_errors, get_endpoint, get_token, import_hub
from bactrian.options import ExportChoices, fill_defaults
from bactrian.protocol.pack import load_pack
from bactrian.recipes.parameters import GROUP as ENDINGS_GROUP
from bactrian.records.run import BEHAVIOURS, FindingKey
from bactrian.records.session import ENDING_CODES, Session
from bactrian.runs.plan import RED_TEAM
from bactrian.store import RunStore, open_store

RUNS = "runs"  # Filter of sessions whose solutions contain Python that runs, and none that fails
ASKED = "asked"  # Filter of sessions of the jobs that the last command asked for


async def export_session_data(
    run: Path,
    format: str | Format,  # noqa: A002  as on the command line
    out: Path,
    *,
    only: Sequence[str] = (),
    drop: Sequence[str] = (),
    overwrite: bool = False,
    behaviours: Iterable[BehaviourLike] = (),
    more: ExportChoices,
    ids: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Export the run at ``run`` and return the manifest. Raises what :meth:`bactrian.Run.export` raises.

    If given, no other sessions than ``ids`` are read: those of a list in the explorer.
    """
    if format == LISTS:
        _check_lists(only or drop, more)
        async with open_store(run, read_only=True) as store:
            return await export_lists(store, out, overwrite=overwrite)
    chosen = format if isinstance(format, Format) else find_format(format)
    if (repo := more.get("push")) is not None:
        _check_push(repo, chosen)
    asked = (CODE_FAILS,) if any(text.rpartition("=")[2] == CODE_FAILS for text in (*only, *drop)) else ()
    custom = merge_installed((*behaviours, *asked))
    filled = fill_defaults(more, ExportChoices)
    async with open_store(run, read_only=True) as store:
        answers = await store.answers()
        asked = None
        with (
            nullcontext() if ASKED in only else suppress(BactrianError)
        ):  # as if the run to translate is gone
            asked = await list_asked_sessions(store, run)
        options = ExportOptions(
            format=chosen,
            out=out,
            filters=await _read_filters(store, only, drop, custom, answers, more, asked),
            asked=None if only or drop or ids else asked,
            split=read_split(list(filled["split"])),
            findings=partial(find_behaviours, custom=custom, answers=answers)
            if "findings" in chosen.needs
            else None,
            overwrite=overwrite,
            ids=ids,
            pack=load_pack(filled["prompts"]) if filled["prompts"] else None,
            **{name: filled[name] for name in ("side", "tool", "redact", "thoughts", "plain", "license")},
        )
        manifest = await export_run(store, options, on_progress)
    return manifest | {"pushed": await asyncio.to_thread(_push_export, out, repo)} if repo else manifest


def _check_lists(filters: Sequence[str], more: ExportChoices) -> None:
    """Refuse choices that are about sessions."""
    usual = fill_defaults({}, ExportChoices)
    changed = [
        *(["a filter"] if filters else []),
        *(name for name, value in more.items() if value != usual[name] and value != []),
    ]
    if changed:
        raise InputError(
            f"{LISTS} contains lists and no sessions: {changed[0]} does not apply.",
            option="format",
            next="Leave it out.",
        )


async def _read_filters(
    store: RunStore,
    only: Sequence[str],
    drop: Sequence[str],
    custom: Sequence[OwnBehaviour],
    answers: Mapping[FindingKey, bool],
    more: ExportChoices,
    asked: frozenset[str] | None,
) -> Filters:
    """Parse ``ending=CODE``, ``finding=CODE`` and, to drop, ``mark=NAME``.

    A session needs one of the endings to keep, and all of the findings that count: not those that readers reject by
    their ``answers``, and candidates only if they confirm them. The codes of the run's endings and of ``custom`` are
    valid, too. ``runs`` and ``asked`` are not codes.

    Raises:
        InputError: a filter is not valid, or its code is unknown.
    """
    endings: dict[str, None] = {}
    marks = defaultdict[str, set[str]](set)
    if only or drop:
        endings = {session.ending: None async for session in store.progress() if session.ending is not None}
    for mark in await store.marks() if drop else ():
        marks[mark.mark].add(mark.session)
    known = {
        "ending": tuple(dict.fromkeys((*ENDING_CODES, *list_plugins(ENDINGS_GROUP), *endings))),
        "finding": (*BEHAVIOURS, *(behaviour.code for behaviour in custom)),
        "mark": (*marks, *({RED_TEAM} & {text.removeprefix("mark=") for text in drop})),
    }

    def test(kind: str, code: str) -> Predicate:
        if kind == "ending":
            return lambda session: session.ending is not None and session.ending.code == code
        if kind == "mark":
            return lambda session: session.mark == code or session.id in marks[code]
        return lambda session: _shows(session, code, custom, answers)

    kept = [
        _read_code(text, "only", ("ending", "finding"), known) for text in only if text not in (RUNS, ASKED)
    ]
    dropped = {text: _read_code(text, "drop", ("finding", "ending", "mark"), known) for text in drop}
    findings = {f"{kind}={code}": test(kind, code) for kind, code in kept if kind == "finding"}
    names = ("id", "role", "pair", "task", "mark")
    selected: Any = {name: value for name, value in more.items() if name in names}
    required = (await read_selection(store, selected)).tests
    filled = fill_defaults(more, ExportChoices)
    return Filters(
        endings=frozenset(code for kind, code in kept if kind == "ending"),
        reject={text: test(*parts) for text, parts in dropped.items()},
        min_rounds=filled["min_rounds"],
        unfinished=filled["unfinished"],
        dedup=filled["dedup"],
        benchmark=read_benchmark(Path(filled["decontaminate"])) if filled["decontaminate"] else None,
        # Expensive tests come last: a session of another pair is not searched for behaviours.
        require={
            **required,
            **({ASKED: lambda session: asked is None or session.id in asked} if ASKED in only else {}),
            **({RUNS: check_runs} if RUNS in only else {}),
            **findings,
        },
    )


def _shows(
    session: Session, code: str, custom: Sequence[OwnBehaviour], answers: Mapping[FindingKey, bool]
) -> bool:
    built_in = [code] if code in BEHAVIOURS else []
    others = [behaviour for behaviour in custom if behaviour.code == code]
    return bool(find_behaviours(session, built_in, custom=others, answers=answers))


def _read_code(
    text: str, option: str, kinds: tuple[str, ...], known: dict[str, tuple[str, ...]]
) -> tuple[str, str]:
    """Split ``ending=task_done`` at the equals sign and check both sides; ``task_done`` alone is enough."""
    kind, equals, code = text.partition("=")
    if not equals:
        # A code alone determines its kind: no ending and behaviour have the same code.
        kind, code = next(((known_as, text) for known_as in kinds if text in known[known_as]), (kind, code))
    if kind not in kinds or not code:
        forms = ["mark=NAME" if name == "mark" else f"{name}=CODE" for name in kinds]
        forms += [ASKED, RUNS] if option == "only" else []
        raise InputError(
            f"{text!r} is not a valid filter.", option=option, next=f"Write {' or '.join(forms)}."
        )
    check_code(kind, code, known[kind], option)
    return kind, code


# Uploads of exports to the Hugging Face hub.


_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def _check_push(repo: str, form: Format) -> None:
    """Check that an export can be uploaded, before it is made.

    Raises:
        InputError: the name is not valid, the format has no card, or there is no key.
        MissingExtra: ``huggingface_hub`` is not installed.
    """
    where = "--push"
    if not _HUB_NAME.fullmatch(repo):
        raise InputError(f"{repo!r} is not the name of a data set.", where=where, next="Write OWNER/NAME.")
    if form.name != "hf":
        raise InputError(f"{form.name} has no card and is not uploaded.", where=where, next="Use form=hf.")
    hub: Any = import_hub("Uploading to the Hugging Face hub")
    if get_token() is False or (get_token() is None and hub.get_token() is None):
        raise InputError(
            "The hub needs a key.", where=get_endpoint(), next="Set HF_TOKEN to one that can write."
        )


def _push_export(folder: Path, repo: str) -> str:
    """Send an export as one commit to the data set ``repo``, and return its address. Blocks.

    A data set that does not exist is created, for its owner alone.

    Raises:
        InputError: there is no access to it.
        Refused: the hub cannot be reached, or does not take it.
    """
    hub: Any = import_hub("Uploading to the Hugging Face hub")
    failure = f"{folder} could not be uploaded, and is complete here"
    with explain_hub_errors(
        repo, failure, "Check the key and the network, and run the same command with --overwrite."
    ):
        api = hub.HfApi(endpoint=get_endpoint(), token=get_token())
        api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            folder_path=str(folder),
            repo_id=repo,
            repo_type="dataset",
            commit_message=f"Written by bactrian {__version__}",
        )
    return f"{hide_credentials(get_endpoint())}/datasets/{repo}"
