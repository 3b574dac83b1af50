"""``python -m benchmarks.behaviours [--write]``: how right the learned detector is, on authors it has not seen.

Leaves out some authors of the corpus at a time (and, of the real conversations, some ideas), then some languages;
trains the detector without them and measures it on what was left out: with its thresholds, which come from other
authors, and with the rules on top. Then trains it on everything. ``--write`` stores that model
(``src/bactrian/detect/weights.json``) and the tables of ``docs/behaviours-invented.md``. Takes about five minutes of
CPU time, in two processes. Needs the extra ``learn``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from bactrian.analyze.behaviours import LIKELY
from bactrian.analyze.learned import detect_failure, read_session
from bactrian.detect.detector import DetectorModel, write_model
from bactrian.detect.fit import (
    Fold,
    LabelledConversation,
    TrainingSet,
    calibrate_model,
    hash_conversations,
    hold_out,
)
from bactrian.records.session import Session
from benchmarks.behaviours_tables import (
    Found,
    count,
    name_length,
    name_register,
    write_agreement,
    write_endings,
    write_groups,
    write_main,
    write_prevalence,
    write_ratio,
    write_reliability,
)
from benchmarks.corpus import (
    BEHAVIOURS,
    DISGUISED,
    read_corpus,
    read_older_cases,
    read_real,
    read_transcripts,
)
from benchmarks.labelled import read_cases

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "src" / "bactrian" / "detect" / "weights.json"
PAGE = ROOT / "docs" / "behaviours-invented.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
PARTS, LANGUAGE_PARTS = 6, 4
PROCESSES = 2
NOT_BLIND = frozenset(("older", "b01", "b02"))
"""Authors who knew the detectors: they are only trained on."""


def find_failures(session: Session, model: DetectorModel) -> set[tuple[int, str]]:
    """Turn and behaviour of what the product reports with ``model``."""
    reading = replace(read_session(session), model=model, least=LIKELY)
    return {
        (finding.turn, finding.behaviour)
        for behaviour in BEHAVIOURS
        for finding in detect_failure(behaviour)(reading)
        if finding.confidence >= LIKELY
    }


def calibrate_folds(folds: Sequence[Fold]) -> list[Fold]:
    """Give each fold's model the confidences and thresholds of the other folds' scores."""
    return [
        replace(
            fold,
            model=calibrate_model(
                fold.model, [score for other in folds if other is not fold for score in other.scores]
            ),
        )
        for fold in folds
    ]


def find_held_out(folds: Sequence[Fold], sessions: Mapping[str, Session]) -> Found:
    """Findings in every conversation, by the model that has not seen it."""
    return {
        name: find_failures(sessions[name], fold.model)
        for fold in folds
        for name in fold.held_out
        if name in sessions
    }


def write_older(model: DetectorModel) -> Iterator[str]:
    """F1 on the older cases, which the model was trained on."""
    yield "| behaviour | cases | F1 |\n|---|---|---|"
    for behaviour in BEHAVIOURS:
        cases = read_cases(behaviour)
        rows = [
            count([case.label], [(case.turn, behaviour) in find_failures(case.session, model)])
            for case in cases
        ]
        f1 = write_ratio(rows, "twice_right", "found_and_there")
        yield f"| `{behaviour}` | {len(cases)} | {f1} |"


def list_training() -> list[LabelledConversation]:
    """Everything that the detector learns from."""
    measured = [conversation.to_labelled() for conversation in (*read_corpus(), *read_real())]
    return [*measured, *read_transcripts(), *read_older_cases()]


def split_by_author(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return parts that are left out together: authors of each style, and ideas of the real conversations."""
    authors = {conversation.group for conversation in conversations} - NOT_BLIND
    styles = (DISGUISED, {author for author in authors if author.startswith("real")})
    ordered = (sorted(styles[0]), sorted(authors - styles[0] - styles[1]), sorted(styles[1]))
    part_of = {author: place % PARTS for some in ordered for place, author in enumerate(some)}
    return [
        [conversation for conversation in conversations if part_of.get(conversation.group) == part]
        for part in range(PARTS)
    ]


def split_by_language(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return parts that are left out together: all conversations of some languages other than English."""
    languages = sorted({conversation.language for conversation in conversations} - {"en"})
    part_of = {language: place % LANGUAGE_PARTS for place, language in enumerate(languages)}
    return [
        [conversation for conversation in conversations if part_of.get(conversation.language) == part]
        for part in range(LANGUAGE_PARTS)
    ]


@cache
def load_training() -> TrainingSet:
    """Return everything that the detector learns from, prepared; once, before processes are started."""
    return TrainingSet(list_training())


def train_fold(held_out: frozenset[str]) -> Fold:
    """Train without some conversations, and score them."""
    data = load_training()
    fold = hold_out(
        data, [conversation for conversation in data.conversations if conversation.id in held_out]
    )
    print(f"{len(held_out)} conversations left out", file=sys.stderr, flush=True)
    return fold


def main() -> None:
    """Print the tables; with ``--write``, store them and the model."""
    corpus, real = list(read_corpus()), read_real()
    sessions = {conversation.session.id: conversation.session for conversation in (*corpus, *real)}
    data = load_training()
    conversations = data.conversations
    parts = [
        frozenset(conversation.id for conversation in part)
        for part in (*split_by_author(conversations), *split_by_language(conversations), ())
    ]
    # Forked processes share the training data.
    with ProcessPoolExecutor(PROCESSES, get_context("fork")) as pool:
        folds = list(pool.map(train_fold, parts))
    by_author = calibrate_folds(folds[:PARTS])
    scores = [score for fold in folds[:PARTS] for score in fold.scores]
    by_language: list[Fold] = []
    for fold in folds[PARTS:-1]:
        held_out = set(fold.held_out)
        rest = [score for score in scores if score.conversation not in held_out]
        by_language.append(replace(fold, model=calibrate_model(fold.model, rest)))
    model = calibrate_model(folds[-1].model, scores)
    found, others = find_held_out(by_author, sessions), find_held_out(by_language, sessions)
    natural = [conversation for conversation in corpus if conversation.style == "natural"]
    foreign = [conversation for conversation in corpus if conversation.language != "en"]
    text = "\n".join(
        (
            "Authors left out, conversations as failures look in transcripts:\n",
            *write_main(natural, found),
            "\nAuthors left out, all conversations, most of them disguised on purpose:\n",
            *write_main(corpus, found),
            "\nF1 of turns, authors left out:\n",
            *write_groups(
                corpus, found, "author", lambda conversation: f"{conversation.author} ({conversation.style})"
            ),
            "",
            *write_groups(corpus, found, "language", lambda conversation: conversation.language),
            "",
            *write_groups(corpus, found, "length", name_length),
            "",
            *write_groups(corpus, found, "register", name_register),
            "\nF1 of turns, languages left out: nothing in the language was seen in training:\n",
            *write_groups(foreign, others, "language", lambda conversation: conversation.language),
            "\nSingle turns where one in thirty shows a behaviour, natural conversations, by least confidence:\n",
            *write_prevalence(by_author),
            "\nReliability of the confidence, all behaviours, natural conversations:\n",
            *write_reliability(by_author),
            "\nConversations that the ending `repeat_loop` stops, authors or ideas left out:\n",
            *write_endings((*corpus, *real), by_author),
            "\nAgreement of author and second reader:\n",
            *write_agreement(corpus),
            "\nIdeas left out, conversations of the built-in model:\n",
            *write_main(real, found),
            "\nAgreement of these two readers:\n",
            *write_agreement(real),
            "\nOlder cases, on which the detector was trained:\n",
            *write_older(model),
        )
    )
    print(text)
    if "--write" in sys.argv[1:]:
        about = {
            "data": hash_conversations(conversations),
            "conversations": len(conversations),
            "turns": len(data.turns),
            "made_by": "python -m benchmarks.behaviours --write",
        }
        WEIGHTS.write_text(write_model(replace(model, about=about)) + "\n", "utf-8")
        page = PAGE.read_text("utf-8")
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
