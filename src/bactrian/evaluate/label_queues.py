"""Queues of conversations that people label, each alone and with a label set of their own, and what labels say.

A queue is a folder beside the run, ``RUN.labels/NAME``: ``queue.json`` says what is asked about which conversations,
``invitations.json`` who was invited, and ``labels.jsonl`` has a line for each answer.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from filelock import FileLock
from pydantic import TypeAdapter

from bactrian.analyze.estimates import label_clusters, write_share
from bactrian.errors import InputError
from bactrian.evaluate.invitations import merge_invitations
from bactrian.evaluate.votes import name_folder, write_agreement
from bactrian.files.atomic import write_atomically
from bactrian.models.model import derive_seed
from bactrian.records.run import BEHAVIOURS
from bactrian.records.session import Session
from bactrian.records.text import clean_text
from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.comparisons import measure_alpha
from bactrian.store import RunStore, open_store

_QUEUE, _GIVEN = "queue.json", "labels.jsonl"
_LONGEST_COMMENT = 4000
MOST_LABELS = 9  # one key each
_WHOLE = 0  # the number of the turn where no turn is named


@dataclass(frozen=True, slots=True)
class LabelQueue:
    """What people are asked about which conversations."""

    labels: Mapping[str, str]
    """What each label means, by its code."""
    sessions: tuple[str, ...]
    """Ids of the conversations."""
    clusters: tuple[int, ...]
    """Which of the conversations share a pair of roles or a task, and so are not independent: the same number."""
    exclusive: bool = False
    """True if exactly one label fits a conversation; otherwise any number of them may."""
    by_behaviour: bool = False
    """True if the conversations were chosen by what detectors found in them."""
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class GivenLabels:
    """The answer of one person about one conversation."""

    session: str
    person: str
    """A pseudonym."""
    labels: Mapping[str, int]
    """The number of the first turn that shows it, by label; 0 if no turn was named."""
    skipped: bool = False
    comment: str = ""
    seconds: float = 0.0
    """From showing the conversation to the answer."""
    created: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class QueueItem:
    """A conversation as it is shown to a person."""

    session: str
    number: int
    """Its place in the person's order, from 1."""
    before: GivenLabels | None
    """What the person said of it before."""


_QUEUE_ADAPTER, _GIVEN_ADAPTER = TypeAdapter(LabelQueue), TypeAdapter(GivenLabels)


def find_queues(run: Path) -> dict[str, Path]:
    """Return the folders of the queues of a run, by their names."""
    folder = name_folder(run, kind="labels")
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{_QUEUE}"))}


def create_queue(run: Path, name: str, queue: LabelQueue) -> Path:
    """Write a queue of a run, and return its folder.

    Raises:
        InputError: there is one of this name, or the name is not one of a folder.
    """
    if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 60:
        raise InputError(
            f"{name!r} cannot be the name of a queue.", next="Use letters, digits, - and _, at most 60."
        )
    folder = name_folder(run, kind="labels") / name
    if folder.exists():
        raise InputError(f"There is a queue {name!r}.", where=str(folder), next="Give another name.")
    folder.mkdir(parents=True)
    _write_queue(folder, queue)
    return folder


def _write_queue(folder: Path, queue: LabelQueue) -> None:
    with write_atomically(folder / _QUEUE, overwrite=True) as stage:
        (stage / _QUEUE).write_bytes(_QUEUE_ADAPTER.dump_json(queue, indent=1) + b"\n")


def make_queue(
    labels: Mapping[str, str], sessions: Sequence[Session], *, exclusive: bool, by_behaviour: bool = False
) -> LabelQueue:
    """Return a queue of ``sessions``.

    Raises:
        InputError: there are too few or too many labels, or no sessions.
    """
    least = 2 if exclusive else 1
    if not least <= len(labels) <= MOST_LABELS:
        next = "Name each with its meaning: CODE=MEANING."
        raise InputError(
            f"A queue has {least} to {MOST_LABELS} labels, one key each.", option="label", next=next
        )
    if not sessions:
        raise InputError("No conversation was chosen.", next="Change what chooses them.")
    _, clusters = label_clusters(
        [(session.assistant.name, session.user.name) for session in sessions],
        [session.task.original for session in sessions],
    )
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    ids = tuple(session.id for session in sessions)
    shared = tuple(numbers[cluster] for cluster in clusters)
    return LabelQueue(labels, ids, shared, exclusive, by_behaviour)


def read_queue(folder: Path) -> LabelQueue:
    """Return the queue in a folder.

    Raises:
        InputError: the file is damaged or gone.
    """
    try:
        return _QUEUE_ADAPTER.validate_json((folder / _QUEUE).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            "The queue cannot be read.",
            where=str(folder / _QUEUE),
            next="Make a new one; the labels are kept in the file beside it.",
        ) from error


def read_given(folder: Path) -> list[GivenLabels]:
    """Return the last answer of each person about each conversation, in the order of time.

    A line that was cut by a crash is left out.

    Raises:
        InputError: another line is damaged.
    """
    path = folder / _GIVEN
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    given: dict[tuple[str, str], GivenLabels] = {}
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        try:
            answer = _GIVEN_ADAPTER.validate_json(line)
        except ValueError as error:
            raise InputError(
                "The line is no answer.", where=f"{path}:{number}", next="Remove the line."
            ) from error
        given.pop((answer.person, answer.session), None)
        given[answer.person, answer.session] = answer
    return list(given.values())


def find_item(
    queue: LabelQueue, given: Iterable[GivenLabels], person: str, number: int | None = None
) -> QueueItem | None:
    """Return the conversation with this number in a person's order, or the first one without an answer.

    Each person has an order of its own, so that tiredness spreads evenly. None if there is no such conversation.
    """
    order = Random(derive_seed(0, "labels", person)).sample(queue.sessions, len(queue.sessions))  # noqa: S311
    mine = {answer.session: answer for answer in given if answer.person == person}
    for place, session in enumerate(order, 1):
        if place == number or (number is None and session not in mine):
            return QueueItem(session, place, mine.get(session))
    return None


def store_labels(folder: Path, queue: LabelQueue, answer: GivenLabels, seen: float | None) -> None:
    """Store an answer; it is on disk when this returns.

    Args:
        folder: Of the queue.
        queue: The queue.
        answer: By a person about a conversation of the queue.
        seen: When the answer was given that the page showed; None if it showed none.

    Raises:
        InputError: the answer does not fit the queue, or another one was given since the page was shown.
    """
    if answer.session not in queue.sessions or not answer.labels.keys() <= queue.labels.keys():
        raise InputError("The queue has no such conversation or label.", next="Open its page again.")
    if queue.exclusive and not answer.skipped and len(answer.labels) != 1:
        raise InputError("Choose one label.", next="Choose the one that fits best, or skip the conversation.")
    with FileLock(folder / f".{_GIVEN}.lock"):
        before = next(
            (
                old
                for old in read_given(folder)
                if (old.person, old.session) == (answer.person, answer.session)
            ),
            None,
        )
        if (before.created if before else None) != seen:
            raise InputError(
                "You labelled this conversation in another window meanwhile. That answer stands.",
                next="Look at it, and change it here if you like.",
            )
        _append(folder / _GIVEN, answer)


def _append(path: Path, answer: GivenLabels) -> None:
    content = {**asdict(answer), "comment": clean_text(answer.comment.strip())[:_LONGEST_COMMENT]}
    is_cut = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        if is_cut:  # A line was cut by a crash: it is nobody's answer.
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        file.flush()
        os.fsync(file.fileno())


# Queues of the parts of a run, which the whole has together.


def match_queues(parts: Iterable[Path], whole: Path) -> dict[str, list[Path]]:
    """Return the folders of queues of one name in the ``parts`` of a run and in the ``whole``.

    Raises:
        InputError: two of one name ask for different labels, or a file is damaged.
    """
    folders = defaultdict[str, list[Path]](list)
    for run in (whole, *parts):
        for name, folder in find_queues(run).items():
            folders[name].append(folder)
    for name, some in folders.items():
        asked = {(tuple(queue.labels.items()), queue.exclusive) for queue in map(read_queue, some)}
        if len(asked) > 1:
            raise InputError(
                f"The queues {name!r} ask for different labels.",
                where=", ".join(map(str, some)),
                next="Rename the folder of one of them.",
            )
    return folders


async def merge_queues(folders: Mapping[str, Sequence[Path]], whole: Path) -> None:
    """Write the queues that :func:`match_queues` found into that of ``whole``: all conversations, people and answers.

    Raises:
        StoreError: the whole cannot be read.
    """
    async with open_store(whole, read_only=True) as store:
        for name, some in folders.items():
            queues = [read_queue(folder) for folder in some]
            ids = dict.fromkeys(session for queue in queues for session in queue.sessions)
            sessions = [session for each in ids if (session := await store.session(each))]
            if not sessions:
                continue
            by_behaviour = any(queue.by_behaviour for queue in queues)
            first = queues[0]
            made = make_queue(first.labels, sessions, exclusive=first.exclusive, by_behaviour=by_behaviour)
            target = name_folder(whole, kind="labels") / name
            target.mkdir(parents=True, exist_ok=True)
            with FileLock(target / f".{_GIVEN}.lock"):
                _write_queue(target, made)
                merge_invitations(some, target)
                known = {(answer.person, answer.session): answer.created for answer in read_given(target)}
                given = sorted(chain.from_iterable(map(read_given, some)), key=lambda answer: answer.created)
                for answer in given:
                    if answer.created > known.get((answer.person, answer.session), 0.0):
                        _append(target / _GIVEN, answer)


# What the answers say: shares, agreement, and data to train on.


def describe_labels(
    queue: LabelQueue,
    given: Sequence[GivenLabels],
    found: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """Return what people say as JSON content.

    A conversation has a label if more than half of those who labelled it say so. Agreement is Krippendorff's alpha,
    of each label alone and, where exactly one fits, of all labels together.

    Args:
        queue: The queue.
        given: The answers.
        found: The behaviours that detectors found, by session. Where a label is the code of a behaviour, the people's
            word then tells the precision of its detector, and its recall unless detectors chose the conversations.
    """
    answers = _group_answers(given)
    clusters = dict(zip(queue.sessions, queue.clusters, strict=True))
    described: dict[str, Any] = {
        "conversations": len(queue.sessions),
        "labelled": len(answers),
        "twice": sum(len(some) > 1 for some in answers.values()),
        "people": dict(Counter(answer.person for answer in given).most_common()),
        "exclusive": queue.exclusive,
        "labels": {},
    }
    for label, meaning in queue.labels.items():
        has = {session: _has_label(some, label) for session, some in answers.items()}

        def share(of: Iterable[str], has: Mapping[str, bool] = has) -> dict[str, Any]:
            counts = defaultdict[int, list[int]](lambda: [0, 0])
            for session in of:
                counts[clusters[session]][0] += has[session]
                counts[clusters[session]][1] += 1
            estimate = estimate_ratio(((right, total) for right, total in counts.values()), "share")
            return write_share(sum(right for right, _ in counts.values()), estimate)

        said = [[label in answer.labels for answer in some] for some in answers.values()]
        described["labels"][label] = {
            "meaning": meaning,
            **share(answers),
            "alpha": write_agreement(measure_alpha(said)),
        }
        if found is not None and (label in BEHAVIOURS or any(label in codes for codes in found.values())):
            detected = {session: label in found.get(session, ()) for session in answers}
            described["labels"][label]["detector"] = {
                "found": sum(detected.values()),
                "precision": share(session for session, is_found in detected.items() if is_found),
                "recall": None
                if queue.by_behaviour
                else share((session for session, holds in has.items() if holds), detected),
            }
    if queue.exclusive:
        chosen = [[next(iter(answer.labels)) for answer in some] for some in answers.values()]
        described["alpha"] = write_agreement(measure_alpha(chosen))
    return described


def _group_answers(given: Iterable[GivenLabels]) -> dict[str, list[GivenLabels]]:
    """Return the answers by session, without those that skip it."""
    answers = defaultdict[str, list[GivenLabels]](list)
    for answer in given:
        if not answer.skipped:
            answers[answer.session].append(answer)
    return answers


def _has_label(answers: Sequence[GivenLabels], label: str) -> bool:
    return 2 * sum(label in answer.labels for answer in answers) > len(answers)


async def list_examples(
    store: RunStore, queue: LabelQueue, given: Sequence[GivenLabels]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the labelled conversations as ``bactrian behaviours train`` reads them.

    Most people decide; a conversation on which they are divided in halves is left out. A person names the first turn
    that shows a label: so the turns before it do not show it, and of those after it nothing is known. A label without a
    turn says nothing of single turns; such a conversation is left out, too.
    """
    for name, some in _group_answers(given).items():
        session = await store.session(name)
        firsts = {label: _choose_turn(some, label) for label in queue.labels if _has_label(some, label)}
        votes = [sum(label in answer.labels for answer in some) for label in queue.labels]
        if session is None or _WHOLE in firsts.values() or len(some) / 2 in votes:
            continue
        last = min(firsts.values(), default=len(session.turns))
        yield {
            "id": name,
            "turns": [
                {
                    "speaker": "user" if turn.speaker == "user" else "assistant",
                    "text": str(turn.text),
                    **(
                        {"labels": [label for label, first in firsts.items() if first == turn.number]}
                        if turn.number <= last
                        else {}
                    ),
                }
                for turn in session.turns
            ],
        }


def _choose_turn(answers: Sequence[GivenLabels], label: str) -> int:
    """Return the turn that most people name, the earliest of several."""
    named = Counter(answer.labels[label] for answer in answers if answer.labels.get(label, _WHOLE) != _WHOLE)
    return max(named, key=lambda turn: (named[turn], -turn), default=_WHOLE)
