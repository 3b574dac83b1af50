"""``python -m benchmarks.corpus [FIELD]``: how right the detectors are on conversations by strangers to them.

Twelve authors wrote the corpus in ``tests/data/behaviours/corpus``, each from the definitions of the behaviours and
nothing else; four second readers labelled a quarter each without seeing the first labels. ``FIELD`` (``language``,
``author`` or ``register``) divides the figures. Intervals are 95 %, by bootstrap over conversations.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.records.session import Session
from bactrian.stats.agreement import measure_alpha
from bactrian.stats.bootstrap import BootstrapSums, resample
from benchmarks.labelled import make_session

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "behaviours" / "corpus"
BEHAVIOURS = ("role_flip", "repeats_instruction", "flake_reply", "infinite_loop")
COLUMNS = ("right", "found", "there", "twice_right", "found_and_there")
HEAD = """\
| behaviour | of | shown | precision | recall | F1 |
|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with the behaviours of each turn."""

    session: Session
    author: str
    language: str
    register: str
    labels: tuple[frozenset[str], ...]
    """By turn, as its author labelled it."""
    second: tuple[frozenset[str], ...] | None
    """By turn, as the second reader did, from the text alone; None if no second reader read it."""


def read_corpus() -> Iterator[Conversation]:
    """Read every conversation, author by author."""
    for file in sorted(FOLDER.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            second = [turn.get("second") for turn in row["turns"]]
            yield Conversation(
                session=make_session([(turn["speaker"], turn["text"]) for turn in row["turns"]]),
                author=row["author"],
                language=row["language"],
                register=row["register"],
                labels=tuple(frozenset(turn["labels"]) for turn in row["turns"]),
                second=None if None in second else tuple(frozenset(labels) for labels in second),
            )


def count(shown: Sequence[bool], found: Sequence[bool]) -> list[float]:
    """The values of ``COLUMNS`` for the turns of one conversation."""
    right = sum(one and other for one, other in zip(shown, found, strict=True))
    return [right, sum(found), sum(shown), 2 * right, sum(found) + sum(shown)]


def write_rows(conversations: Sequence[Conversation], label: str) -> Iterator[str]:
    """A row of the table for each behaviour, by turns and by whole conversations."""
    found = [
        {(one.turn, one.behaviour) for one in find_behaviours(conversation.session, BEHAVIOURS)}
        for conversation in conversations
    ]
    for behaviour in BEHAVIOURS:
        turns: list[list[float]] = []
        whole: list[list[float]] = []
        for conversation, findings in zip(conversations, found, strict=True):
            there = [behaviour in labels for labels in conversation.labels]
            said = [(number, behaviour) in findings for number in range(1, len(there) + 1)]
            turns.append(count(there, said))
            whole.append(count([any(there)], [any(said)]))
        for unit, rows in (("turns", turns), ("conversations", whole)):
            sums = resample(rows, COLUMNS)
            figures = (("right", "found"), ("right", "there"), ("twice_right", "found_and_there"))
            cells = " | ".join(_write_ratio(sums, *pair) for pair in figures)
            yield f"| `{behaviour}` | {unit}{label} | {sums.sums['there']:.0f} | {cells} |"


def write_agreement(conversations: Sequence[Conversation]) -> Iterator[str]:
    """Krippendorff's alpha between author and second reader, turn by turn."""
    for behaviour in BEHAVIOURS:
        units = [
            (behaviour in first, behaviour in second)
            for conversation in conversations
            for first, second in zip(conversation.labels, conversation.second or (), strict=False)
        ]
        agreement = measure_alpha(units)
        low, high = agreement.interval or (0.0, 1.0)
        yield f"| `{behaviour}` | {agreement.items} | {agreement.value:.2f} ({low:.2f}–{high:.2f}) |"


def main() -> None:
    """Print the tables as Markdown."""
    conversations = list(read_corpus())
    print(HEAD, *write_rows(conversations, ""), sep="\n")
    for field in sys.argv[1:]:
        groups: dict[str, list[Conversation]] = defaultdict(list)
        for conversation in conversations:
            groups[getattr(conversation, field)].append(conversation)
        for name, group in sorted(groups.items()):
            print(*write_rows(group, f", {field} {name}"), sep="\n")
    print(
        "\n| behaviour | turns read twice | alpha |\n|---|---|---|", *write_agreement(conversations), sep="\n"
    )


def _write_ratio(sums: BootstrapSums, top: str, bottom: str) -> str:
    low, high = sums.interval(top, bottom) or (0.0, 1.0)
    return f"{sums.ratio(top, bottom):.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
