"""``bactrian behaviours``: the behaviours that analyses detect, and those that are learned from labels."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

from bactrian.amounts import write_ends, write_percent
from bactrian.analyze.behaviours import (
    DETECTORS,
    check_code,
    find_installed,
    load_definitions,
    read_behaviours,
)
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.analyze.judge import (
    Candidate,
    Label,
    append_label,
    compare_labels,
    list_candidates,
    read_labels,
)
from bactrian.analyze.learned import LearnedBehaviour, check_unregistered, register_learned
from bactrian.cli.flags import Argument, RunArgument
from bactrian.cli.terminal.console import open_progress
from bactrian.detect.fit import LearnedModel, learn_behaviour, list_codes, read_labelled
from bactrian.errors import InputError
from bactrian.options import BEHAVIOUR, LIMIT, OUT, OVERWRITE, Option
from bactrian.records.text import to_line, to_printable
from bactrian.stats.intervals import Proportion
from bactrian.store import open_store


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
        str | None, Option("--name", "The behaviour to learn, if the labels name several.")
    ] = None,
    description: Annotated[
        str | None, Option("--description", "One sentence that defines it, for a judge.")
    ] = None,
    overwrite: Annotated[bool, OVERWRITE, "Replace a learned behaviour of the same name."] = False,
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
    _write_learned(code, learned)
    progress.say(to_line(f"Registered as {code}: {path}"))


def _write_learned(code: str, learned: LearnedModel) -> None:
    precision, recall = learned.precision, learned.recall
    print(f"{code}: {learned.conversations:,} conversations, {learned.groups} parts left out in turn")
    print(f"precision {_write_share(precision)}, recall {_write_share(recall)}")


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
        str, BEHAVIOUR, "The behaviour to label: a built-in one or your own."
    ] = "flake_reply",
    limit: Annotated[int, LIMIT, "Maximum number of turns to ask about."] = 20,
    out: Annotated[
        Path | None,
        replace(OUT, shown="RUN with .labels.jsonl"),
        "File of the labels.",
    ] = None,
) -> None:
    """Label turns of a run in the terminal, the most uncertain first.

    Answer y (shows it), n (does not), Enter (skip) or q (stop). Each answer is stored at once, and no turn is asked
    about twice. The answers measure the detector; to teach a behaviour, use ``bactrian behaviours queue``.
    """
    if not sys.stdin.isatty():
        raise InputError(
            "Labelling needs a terminal.", where="standard input", next="Run the command in a terminal."
        )
    installed = () if behaviour in DETECTORS else read_behaviours([behaviour])
    path = out or run_file.with_suffix(".labels.jsonl")
    labels = read_labels(path)

    async def find() -> list[Candidate]:
        async with open_store(run_file, read_only=True) as store:
            return await list_candidates(store, behaviour, installed, labels, limit)

    candidates = asyncio.run(find())
    definition = installed[0].description if installed else load_definitions()[behaviour]
    print("\n".join(_wrap(" ".join(part.split())) for part in to_printable(definition.strip()).split("\n\n")))
    for number, candidate in enumerate(candidates, 1):
        print(f"\n── {number} of {len(candidates)} · session {to_line(candidate.session.id)} ──")
        _show_turns(candidate)
        answer = _ask(f"Does turn {candidate.turn} show {behaviour}? [y/n/Enter/q] ")
        if answer == "q":
            break
        if answer in _ANSWERS:
            session, turn = candidate.session.id, candidate.turn
            labels.append(Label(session, turn, behaviour, candidate.confidence, _ANSWERS[answer]))
            append_label(path, labels[-1])
    if not candidates:
        print(f"No turn of this run is in doubt for {behaviour}.")
    _write_figures(behaviour, [label for label in labels if label.behaviour == behaviour], path)


def _show_turns(candidate: Candidate) -> None:
    for turn in candidate.session.turns[max(0, candidate.turn - 2) : candidate.turn]:
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


def _write_figures(behaviour: str, labels: list[Label], path: Path) -> None:
    if not labels:
        print(f"No label on {behaviour} is kept.")
        return
    detected, other = compare_labels(labels)
    print(f"\n{len(labels)} labels on {behaviour} in {to_line(str(path))}. Of these doubtful turns:")
    print(f"  found:     {detected.count} of {detected.total} show it by your labels")
    print(f"  not found: {other.count} of {other.total} show it by your labels")
    print("They are the hardest turns; for the rate of the run, use analyze --judge MODEL --sample N.")
