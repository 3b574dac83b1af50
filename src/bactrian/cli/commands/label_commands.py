"""``bactrian behaviours``: the known ones, those that are learned, and the queues in which people label."""

from __future__ import annotations

import asyncio
import json as jsonlib
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Unpack

from bactrian import options as opts
from bactrian.amounts import write_ends, write_percent
from bactrian.analyze.behaviours import (
    DETECTORS,
    check_code,
    find_installed,
    load_definitions,
    read_behaviours,
)
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.analyze.judge import list_doubtful
from bactrian.analyze.learned import LearnedBehaviour, check_unregistered, register_learned
from bactrian.analyze.report_tables import write_labels
from bactrian.api.selection import explain_nothing, iterate_selected, read_selection
from bactrian.cli.flags import Argument, RunArgument
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.detect.fit import learn_behaviour, list_codes, read_labelled
from bactrian.errors import InputError
from bactrian.evaluate import invitations
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
from bactrian.records.run import BEHAVIOURS, Confirmation, Finding
from bactrian.records.session import HUMAN, Session
from bactrian.records.text import to_line, to_printable, write_count
from bactrian.records.turn import Usage
from bactrian.stats.intervals import Proportion
from bactrian.store import open_store

# ``bactrian behaviours``: the behaviours that analyses detect, and those that are learned from labels.


def behaviours() -> None:
    """List the behaviours that are detected, show, train or label one."""
    for code, definition in load_definitions().items():
        print(f"{code:<20} {to_line(_shorten(definition))}")
    for behaviour in (*read_behaviours([CODE_FAILS]), *find_installed()):
        print(f"{behaviour.code:<20} {to_line(_shorten(behaviour.description))}")


def show_behaviour(name: Annotated[str, Argument("Code of a behaviour.")]) -> None:
    """Print the definition of a behaviour."""
    definition = load_definitions().get(name)
    if definition is None:
        (behaviour,) = read_behaviours([name])
        definition = behaviour.description
    print(to_printable(definition.strip()))


def train_behaviour(
    data: Annotated[Path, Argument(metavar="DATA.jsonl", help="Labelled conversations.")],
    name: Annotated[
        str | None, opts.Option("--name", "The behaviour to learn, if the labels name several.")
    ] = None,
    description: Annotated[
        str | None, opts.Option("--description", "One sentence that defines it, for a judge.")
    ] = None,
    overwrite: Annotated[bool, opts.OVERWRITE, "Replace a learned behaviour of the same name."] = False,
) -> None:
    """Learn a behaviour of your own from labelled conversations, and register it by name.

    Analyses, exports and the Python API detect it from then on. The figures are measured on conversations that were
    left out: one author at a time, or a fifth of the data if fewer than three authors are named.
    """
    conversations = read_labelled(data)
    code = check_code(name or _find_only_code(list_codes(conversations), data))
    if not overwrite:
        check_unregistered(code)
    progress = open_progress()
    learned = learn_behaviour(
        conversations, code, lambda done, parts: progress.say(f"{done} of {parts} parts left out in turn")
    )
    path = register_learned(
        LearnedBehaviour(code, description or code.replace("_", " "), learned.model), overwrite=overwrite
    )
    precision, recall = learned.precision, learned.recall
    print(f"{code}: {learned.conversations:,} conversations, {learned.groups} parts left out in turn")
    print(f"precision {_write_share(precision)}, recall {_write_share(recall)}")
    progress.say(to_line(f"Registered as {code}: {path}"))


def _write_share(of: Proportion) -> str:
    ends = "" if of.interval is None else f"{write_ends(*of.interval)}; "
    return f"{write_percent(of.rate)} ({ends}{of.count} of {of.total})"


def _shorten(definition: str) -> str:
    """Return the first sentence, without the name."""
    first = definition.strip().partition("\n\n")[0].replace("\n", " ")
    return first.partition(": ")[2] or first


def _find_only_code(codes: list[str], data: Path) -> str:
    if len(codes) == 1:
        return codes[0]
    listed = ", ".join(codes) or "no behaviour"
    raise InputError(f"The labels name {listed}.", where=str(data), next="Choose one with --name.")


_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def label(
    run_file: RunArgument,
    behaviour: Annotated[
        str, opts.BEHAVIOUR, "The behaviour to label: a built-in one or your own."
    ] = "flake_reply",
    limit: Annotated[int, opts.LIMIT, "Maximum number of findings to ask about."] = 20,
) -> None:
    """Say of findings in the terminal whether they are right, those in most doubt first.

    Answer y (it shows the behaviour), n (it does not), Enter (skip) or q (stop). Each answer is stored in the run at
    once, as those given in the browser are: analyses, filters and exports count it. No finding is asked about twice.
    """
    if not sys.stdin.isatty():
        raise InputError(
            "Labelling needs a terminal.", where="standard input", next="Run the command in a terminal."
        )
    installed = () if behaviour in DETECTORS else read_behaviours([behaviour])

    async def find() -> list[tuple[Session, Finding]]:
        async with open_store(run_file, read_only=True) as store:
            return await list_doubtful(store, behaviour, installed, limit)

    async def keep(finding: Finding, answer: str) -> None:
        async with open_store(run_file) as store:
            said = Confirmation(*finding.key, HUMAN, _ANSWERS[answer], answer, Usage(), 0.0, HUMAN)
            await store.add_confirmation(said)

    doubtful, right, read = asyncio.run(find()), 0, 0
    definition = installed[0].description if installed else load_definitions()[behaviour]
    print("\n".join(_wrap(" ".join(part.split())) for part in to_printable(definition.strip()).split("\n\n")))
    for number, (session, finding) in enumerate(doubtful, 1):
        print(f"\n── {number} of {len(doubtful)} · session {to_line(session.id)} ──")
        _show_turns(session, finding.turn)
        answer = _ask(f"Does turn {finding.turn} show {behaviour}? [y/n/Enter/q] ")
        if answer == "q":
            break
        if answer in _ANSWERS:
            asyncio.run(keep(finding, answer))
            right, read = right + _ANSWERS[answer], read + 1
    if not doubtful:
        print(f"No finding of {behaviour} in this run is unread.")
    elif read:
        run = shlex.quote(str(run_file))
        print(
            f"\n{right:,} of {write_count(read, 'finding')} right. bactrian analyze {run} counts your answers."
        )


def _show_turns(session: Session, last: int) -> None:
    for turn in session.turns[max(0, last - 2) : last]:
        print(f"[{turn.number}] {to_line(turn.role)} (AI {to_line(turn.speaker)}):")
        lines = to_printable(turn.text.strip()).split("\n")
        print("\n".join(map(_wrap, lines)) or "(nothing)")


def _wrap(line: str) -> str:
    """Break a long line between words, where the terminal would break it within one."""
    width = get_terminal_size().columns
    return line if len(line) < width else textwrap.fill(line, width - 1)


def _ask(question: str) -> str:
    """Return an answer that is known; end of input is ``q``."""
    while True:
        try:
            answer = input(question).strip().lower()
        except EOFError:
            print()
            return "q"
        if answer in ("", "q", *_ANSWERS):
            return answer
        print("Answer y (shows it), n (does not), Enter (skip) or q (stop).")


# ``bactrian behaviours queue`` and ``labels``: conversations that people label in the browser, and what they say.


def make_label_queue(
    run_file: RunArgument,
    name: Annotated[str, Argument("Name of the queue; with an existing one, only people are invited.")],
    label: Annotated[
        list[str] | None,
        opts.Option("--label", "A label: a code, or CODE=MEANING. Can be repeated, up to nine."),
    ] = None,
    exclusive: Annotated[bool, opts.Option("--one", "Exactly one label fits a conversation.")] = False,
    person: Annotated[
        list[str] | None, opts.Option("--person", "Pseudonym of a person to invite. Can be repeated.")
    ] = None,
    withdraw: Annotated[
        str | None, opts.WITHDRAW, "Make the link of this person invalid; the labels stay."
    ] = None,
    sample: Annotated[int, opts.SAMPLE, "Choose N conversations at random."] = 20,
    seed: Annotated[int, opts.SEED, "Seed of the choice."] = 0,
    address: Annotated[str, opts.ADDRESS] = invitations.DEFAULT_ADDRESS,
    json: Annotated[bool, opts.JSON, "Write the links as JSON."] = False,
    **options: Unpack[opts.SelectOptions],
) -> None:
    """Make a queue of conversations that people label in the browser, each with a link.

    Nobody sees the labels of others or the findings of detectors. A new link of a person replaces the old one.
    """
    invitations.check_address(address)
    folder = find_queues(run_file).get(name)
    if withdraw is not None:
        invitations.withdraw_invitation(_choose_queues(run_file, name)[name], withdraw)
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
    links = invitations.make_links(address, "label", invitations.invite_voters(folder, person or ()))
    if json:
        print(jsonlib.dumps([{"person": who, "link": link} for who, link in links.items()]))
    else:
        print("".join(f"{who}\t{link}\n" for who, link in links.items()), end="")
    print(invitations.tell_server(run_file, address), file=sys.stderr)


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


async def _choose(run: Path, options: opts.SelectOptions, sample: int, seed: int) -> list[Session]:
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
        Path | None, opts.OUT, "Write the labelled conversations, as `bactrian behaviours train` reads them."
    ] = None,
    overwrite: Annotated[bool, opts.OVERWRITE] = False,
    json: Annotated[bool, opts.JSON, "Write shares and agreement as JSON."] = False,
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
