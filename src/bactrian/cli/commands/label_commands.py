"""``bactrian behaviours queue`` and ``labels``: conversations that people label in the browser, and what they say."""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Unpack

from bactrian.analyze.behaviours import check_code, load_definitions
from bactrian.analyze.report_tables import write_labels
from bactrian.api.selection import explain_nothing, iterate_selected, read_selection
from bactrian.cli.flags import Argument, RunArgument
from bactrian.cli.terminal.console import open_output
from bactrian.errors import InputError
from bactrian.evaluate.invitations import (
    DEFAULT_ADDRESS,
    check_address,
    invite_voters,
    make_links,
    tell_server,
    withdraw_invitation,
)
from bactrian.evaluate.label_queues import (
    create_queue,
    describe_labels,
    find_queues,
    list_examples,
    make_queue,
    read_given,
    read_queue,
)
from bactrian.files.atomic import write_atomically
from bactrian.options import ADDRESS, JSON, OUT, OVERWRITE, SAMPLE, SEED, WITHDRAW, Option, SelectOptions
from bactrian.records.run import BEHAVIOURS
from bactrian.records.session import Session
from bactrian.records.text import write_count
from bactrian.store import open_store


def make_label_queue(
    run_file: RunArgument,
    name: Annotated[str, Argument("Name of the queue; with an existing one, only people are invited.")],
    label: Annotated[
        list[str] | None,
        Option("--label", "A label: a code, or CODE=MEANING. Can be repeated, up to nine."),
    ] = None,
    exclusive: Annotated[bool, Option("--one", "Exactly one label fits a conversation.")] = False,
    person: Annotated[
        list[str] | None, Option("--person", "Pseudonym of a person to invite. Can be repeated.")
    ] = None,
    withdraw: Annotated[
        str | None, WITHDRAW, "Make the link of this person invalid; the labels stay."
    ] = None,
    sample: Annotated[int, SAMPLE, "Choose N conversations at random."] = 20,
    seed: Annotated[int, SEED, "Seed of the choice."] = 0,
    address: Annotated[str, ADDRESS] = DEFAULT_ADDRESS,
    json: Annotated[bool, JSON, "Write the links as JSON."] = False,
    **options: Unpack[SelectOptions],
) -> None:
    """Make a queue of conversations that people label in the browser, each with a link.

    Nobody sees the labels of others or the findings of detectors. A new link of a person replaces the old one.
    """
    check_address(address)
    folder = find_queues(run_file).get(name)
    if withdraw is not None:
        withdraw_invitation(_choose_queues(run_file, name)[name], withdraw)
        print(f"The link of {withdraw} is not valid any more.", file=sys.stderr)
        return
    if folder is None:
        labels = _read_labels(label or ())
        sessions = asyncio.run(_choose(run_file, options, sample, seed))
        by_behaviour = bool(options.get("behaviour"))
        queue = make_queue(labels, sessions, exclusive=exclusive, by_behaviour=by_behaviour)
        folder = create_queue(run_file, name, queue)
        print(f"{folder}: {write_count(len(sessions), 'conversation')}, {', '.join(labels)}", file=sys.stderr)
    elif label:
        raise InputError(f"There is a queue {name!r}.", where=str(folder), next="Give another name.")
    links = make_links(address, "label", invite_voters(folder, person or ()))
    if json:
        print(jsonlib.dumps([{"person": who, "link": link} for who, link in links.items()]))
    else:
        print("".join(f"{who}\t{link}\n" for who, link in links.items()), end="")
    print(tell_server(run_file, address), file=sys.stderr)


def _read_labels(written: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in written:
        code, _, meaning = text.partition("=")
        if code in labels:
            raise InputError(f"The label {code!r} is given twice.", option="label", next="Leave one out.")
        if code not in BEHAVIOURS:
            check_code(code)
        elif not meaning:
            meaning = " ".join(load_definitions()[code].split()).partition(": ")[2].partition(". ")[0]
        labels[code] = meaning.strip()
    return labels


async def _choose(run: Path, options: SelectOptions, sample: int, seed: int) -> list[Session]:
    async with open_store(run, read_only=True) as opened, opened.snapshot() as store:
        selection = await read_selection(store, options)
        chosen = [
            selected.session
            async for selected in iterate_selected(store, selection, sample=sample, seed=seed)
            if selected.session.turns
        ]
        if not chosen:
            raise await explain_nothing(store, options)
    return chosen


def show_labels(
    run_file: RunArgument,
    name: Annotated[str | None, Argument("Name of a queue. Default: all.")] = None,
    out: Annotated[
        Path | None, OUT, "Write the labelled conversations, as `bactrian behaviours train` reads them."
    ] = None,
    overwrite: Annotated[bool, OVERWRITE] = False,
    json: Annotated[bool, JSON, "Write shares and agreement as JSON."] = False,
) -> None:
    """Print what people said of queues of conversations, and how much they agree."""
    chosen = _choose_queues(run_file, name)
    if out is not None:
        if len(chosen) > 1:
            raise InputError(
                "There are several queues.", option="out", next=f"Name one: {', '.join(chosen)}."
            )
        (folder,) = chosen.values()
        written = asyncio.run(_write_examples(run_file, folder, out, overwrite=overwrite))
        labelled = len({answer.session for answer in read_given(folder)})
        print(f"{out}: {written:,} of {write_count(labelled, 'labelled conversation')}", file=sys.stderr)
        if written < labelled:
            print(
                "The others do not say in which message a label is first, or people are divided.",
                file=sys.stderr,
            )
    described = {
        key: describe_labels(read_queue(folder), read_given(folder)) for key, folder in chosen.items()
    }
    if json:
        print(jsonlib.dumps(described, ensure_ascii=False))
        return
    for key, of in described.items():
        write_labels(open_output(), key, of)


def _choose_queues(run: Path, name: str | None) -> dict[str, Path]:
    """Return the folders of the run's queues, or of that with a name. Raises InputError if there is none."""
    queues = find_queues(run)
    chosen = {key: folder for key, folder in queues.items() if name in (None, key)}
    if not chosen:
        raise InputError(
            f"There is no queue {name!r}." if name else "The run has no queue.",
            where=str(run),
            next=f"Queues: {', '.join(queues)}."
            if queues
            else "`bactrian behaviours queue RUN NAME` makes one.",
        )
    return chosen


async def _write_examples(run: Path, folder: Path, out: Path, *, overwrite: bool) -> int:
    async with open_store(run, read_only=True) as store:
        rows = [row async for row in list_examples(store, read_queue(folder), read_given(folder))]
    if not rows:
        raise InputError(
            "No labelled conversation can be trained on.",
            where=str(folder),
            next="A label needs the message that shows it first: go there with the key ], or write its number beside "
            "the label, before Enter.",
        )
    with write_atomically(out, overwrite=overwrite) as stage:
        text = "".join(jsonlib.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (stage / out.name).write_text(text, "utf-8")
    return len(rows)
