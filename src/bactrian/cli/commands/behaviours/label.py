"""``bactrian behaviours label``: a person labels the turns that the detector is least sure about."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
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
        declare_option("--out", "Where the labels are kept.", show_default="RUN with .labels.jsonl"),
    ] = None,
) -> None:
    """Label turns of a run in the terminal, the most uncertain first.

    Answer y (shows it), n (does not), Enter (skip) or q (stop). Each answer is kept at once, and no turn is asked about
    twice.
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
    print(to_printable(definition.strip()))
    for place, candidate in enumerate(candidates, 1):
        print(f"\n── {place} of {len(candidates)} · session {to_line(candidate.session.id)} ──")
        _show_turns(candidate)
        answer = input(f"Does turn {candidate.turn} show {behaviour}? [y/n/Enter/q] ").strip().lower()
        if answer == "q":
            break
        if answer in _ANSWERS:
            one = Label(
                candidate.session.id, candidate.turn, behaviour, candidate.confidence, _ANSWERS[answer]
            )
            append_label(path, one)
            labels.append(one)
    _write_figures(behaviour, [one for one in labels if one.behaviour == behaviour], path)


def _show_turns(candidate: Candidate) -> None:
    for turn in candidate.session.turns[max(0, candidate.turn - 2) : candidate.turn]:
        print(f"[{turn.number}] {to_line(turn.role)} (AI {to_line(turn.speaker)}):")
        print(to_printable(turn.text.strip()) or "(nothing)")


def _write_figures(behaviour: str, labels: list[Label], path: Path) -> None:
    if not labels:
        print(f"No turn of this run is in doubt for {behaviour}, and no label is kept.")
        return
    found, other = compare_labels(labels)
    print(f"\n{len(labels)} labels on {behaviour} in {to_line(str(path))}. Of these doubtful turns:")
    print(f"  found:     {found.count} of {found.total} show it by your labels")
    print(f"  not found: {other.count} of {other.total} show it by your labels")
    print("They are the hardest turns; for the rate of the run, use analyze --judge MODEL --sample N.")
