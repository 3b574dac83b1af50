"""``bactrian behaviours label``: a person labels the turns that the detector is least sure about."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

from bactrian.analyze.behaviours.catalogue import DETECTORS, load_definitions
from bactrian.analyze.behaviours.own import read_behaviours
from bactrian.analyze.labelling import (
    Candidate,
    Label,
    append_label,
    compare_labels,
    list_candidates,
    read_labels,
)
from bactrian.cli.options import RunArgument, declare_option
from bactrian.errors import InputError
from bactrian.language.escape import to_line, to_printable
from bactrian.store import open_store

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def label(
    run_file: RunArgument,
    behaviour: Annotated[
        str, declare_option("--behaviour", "The behaviour to label: a built-in one or your own.")
    ] = "flake_reply",
    limit: Annotated[
        int, declare_option("--limit", "Maximum number of turns to ask about.", short="-n", min=1)
    ] = 20,
    out: Annotated[
        Path | None,
        declare_option("--out", "File of the labels.", show_default="RUN with .labels.jsonl"),
    ] = None,
) -> None:
    """Label turns of a run in the terminal, the most uncertain first.

    Answer y (shows it), n (does not), Enter (skip) or q (stop). Each answer is stored at once, and no turn is asked
    about twice.
    """
    if not sys.stdin.isatty():
        raise InputError(
            "Labelling needs a terminal.", where="standard input", next="Run the command in a terminal."
        )
    own = () if behaviour in DETECTORS else read_behaviours([behaviour])
    path = out or run_file.with_suffix(".labels.jsonl")
    labels = read_labels(path)

    async def find() -> list[Candidate]:
        async with open_store(run_file, read_only=True) as store:
            return await list_candidates(store, behaviour, own, labels, limit)

    candidates = asyncio.run(find())
    definition = own[0].description if own else load_definitions()[behaviour]
    print("\n".join(_wrap(" ".join(part.split())) for part in to_printable(definition.strip()).split("\n\n")))
    for place, candidate in enumerate(candidates, 1):
        print(f"\n── {place} of {len(candidates)} · session {to_line(candidate.session.id)} ──")
        _show_turns(candidate)
        answer = _ask(f"Does turn {candidate.turn} show {behaviour}? [y/n/Enter/q] ")
        if answer == "q":
            break
        if answer in _ANSWERS:
            one = Label(
                candidate.session.id, candidate.turn, behaviour, candidate.confidence, _ANSWERS[answer]
            )
            append_label(path, one)
            labels.append(one)
    if not candidates:
        print(f"No turn of this run is in doubt for {behaviour}.")
    _write_figures(behaviour, [one for one in labels if one.behaviour == behaviour], path)


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
    found, other = compare_labels(labels)
    print(f"\n{len(labels)} labels on {behaviour} in {to_line(str(path))}. Of these doubtful turns:")
    print(f"  found:     {found.count} of {found.total} show it by your labels")
    print(f"  not found: {other.count} of {other.total} show it by your labels")
    print("They are the hardest turns; for the rate of the run, use analyze --judge MODEL --sample N.")
