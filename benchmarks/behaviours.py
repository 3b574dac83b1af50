"""``python -m benchmarks.behaviours [--write]``: how right the learned detector is, on authors it has not seen.

Leaves out two or three authors of the corpus at a time (and, of the real conversations, some ideas), then three
languages at a time; trains the detector without them and measures it on what was left out: with its thresholds, which
come from other authors, and with the rules on top. Then trains it on everything. ``--write`` stores that model
(``src/bactrian/detect/weights.json``) and the tables of ``docs/behaviours.md``. Takes about five minutes of one core.
Needs the extra ``learn``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.analyze.behaviours.catalogue import LIKELY
from bactrian.analyze.behaviours.cooperation import detect_failure
from bactrian.analyze.behaviours.reading import read_session
from bactrian.detect.cross_validation import (
    PREVALENCE,
    Fold,
    calibrate_model,
    cross_validate,
)
from bactrian.detect.model import DetectorModel, write_model
from bactrian.detect.training import LabelledConversation, TrainingSet, hash_conversations, train_model
from bactrian.records.session import Session
from bactrian.stats.agreement import measure_alpha
from bactrian.stats.bootstrap import BootstrapSums, resample
from benchmarks.corpus import (
    BEHAVIOURS,
    DISGUISED,
    Conversation,
    read_corpus,
    read_older_cases,
    read_real,
    read_transcripts,
)
from benchmarks.labelled import read_cases

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "src" / "bactrian" / "detect" / "weights.json"
PAGE = ROOT / "docs" / "behaviours.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
PARTS, LANGUAGE_PARTS = 6, 4
NOT_BLIND = frozenset(("older", "b01", "b02"))
"""Authors who knew the detectors: they are only trained on."""
REGISTERS = {
    "weak model": ("135m", "small", "tiny", "weak model", "rambl"),
    "GPT-3.5 style": ("gpt-3.5",),
    "GPT-4 style": ("gpt-4",),
    "Llama style": ("llama",),
    "Qwen style": ("qwen",),
    "strong model": ("strong",),
}
"""Words by which authors told the register; all others are told in words of their own."""
COLUMNS = ("right", "found", "there", "twice_right", "found_and_there")
HEAD = "| behaviour | of | shown | precision | recall | F1 |\n|---|---|---|---|---|---|"
SHORT_HEAD = f"| {{}} | conversations | {' | '.join(BEHAVIOURS)} |\n|---|---|---|---|---|---|"

Found = Mapping[str, set[tuple[int, str]]]
"""Turn and behaviour of the findings, by conversation."""


def find_failures(session: Session, model: DetectorModel) -> set[tuple[int, str]]:
    """Turn and behaviour of what the product reports with ``model``."""
    reading = replace(read_session(session), model=model)
    return {
        (finding.turn, finding.behaviour)
        for behaviour in BEHAVIOURS
        for finding in detect_failure(behaviour)(reading)
        if finding.confidence >= LIKELY
    }


def find_held_out(folds: Sequence[Fold], sessions: Mapping[str, Session]) -> Found:
    """Findings in every conversation, by the model that has not seen it, with thresholds of the other folds."""
    found: dict[str, set[tuple[int, str]]] = {}
    for fold in folds:
        others = [score for other in folds if other is not fold for score in other.scores]
        model = calibrate_model(fold.model, others)
        found |= {one.id: find_failures(sessions[one.id], model) for one in fold.held_out}
    return found


def count(shown: Sequence[bool], found: Sequence[bool]) -> list[float]:
    """The values of ``COLUMNS`` for the turns of one conversation."""
    right = sum(one and other for one, other in zip(shown, found, strict=True))
    return [right, sum(found), sum(shown), 2 * right, sum(found) + sum(shown)]


def measure(
    conversations: Sequence[Conversation],
    found: Found,
    behaviour: str,
    *,
    whole: bool = False,
    speaker: str = "",
) -> BootstrapSums:
    """Sums of ``COLUMNS`` over turns, of one speaker if given, or over whole conversations."""
    rows: list[list[float]] = []
    for one in conversations:
        turns = [turn for turn in one.session.turns if speaker in ("", turn.speaker)]
        there = [behaviour in one.labels[turn.number - 1] for turn in turns]
        said = [(turn.number, behaviour) in found[one.session.id] for turn in turns]
        rows.append(count([any(there)], [any(said)]) if whole else count(there, said))
    return resample(rows, COLUMNS)


def write_main(conversations: Sequence[Conversation], found: Found) -> Iterator[str]:
    """Precision, recall and F1 of each behaviour, by turns, roles and conversations."""
    yield HEAD
    for behaviour in BEHAVIOURS:
        rows = [("turns", measure(conversations, found, behaviour))]
        if behaviour == "role_flip":
            rows += [
                (f"turns of the AI {speaker}", measure(conversations, found, behaviour, speaker=speaker))
                for speaker in ("user", "assistant")
            ]
        rows.append(("conversations", measure(conversations, found, behaviour, whole=True)))
        for unit, sums in rows:
            pairs = (("right", "found"), ("right", "there"), ("twice_right", "found_and_there"))
            cells = " | ".join(_write_ratio(sums, *pair) for pair in pairs)
            yield f"| `{behaviour}` | {unit} | {sums.sums['there']:.0f} | {cells} |"


def write_groups(
    conversations: Sequence[Conversation], found: Found, name: str, key: Callable[[Conversation], str]
) -> Iterator[str]:
    """F1 of turns for each group."""
    yield SHORT_HEAD.format(name)
    groups: defaultdict[str, list[Conversation]] = defaultdict(list)
    for one in conversations:
        groups[key(one)].append(one)
    for value, group in sorted(groups.items()):
        sums = (measure(group, found, behaviour) for behaviour in BEHAVIOURS)
        cells = " | ".join(_write_ratio(one, "twice_right", "found_and_there") for one in sums)
        yield f"| {value} | {len(group)} | {cells} |"


def write_prevalence(conversations: Sequence[Conversation], found: Found) -> Iterator[str]:
    """Precision where one turn in thirty shows the behaviour, from recall and the rate of false alarms."""
    yield "| behaviour | recall | false alarms per 1,000 other turns | precision at 1 in 30 |\n|---|---|---|---|"
    for behaviour in BEHAVIOURS:
        sums = measure(conversations, found, behaviour).sums
        turns = sum(
            len(one.labels) if behaviour in ("role_flip", "infinite_loop") else len(one.labels) // 2
            for one in conversations
        )
        recall = sums["right"] / max(1, sums["there"])
        false = (sums["found"] - sums["right"]) / max(1, turns - sums["there"])
        right, wrong = PREVALENCE * recall, (1 - PREVALENCE) * false
        yield f"| `{behaviour}` | {recall:.2f} | {1000 * false:.1f} | {right / max(right + wrong, 1e-9):.2f} |"


def write_reliability(folds: Sequence[Fold]) -> Iterator[str]:
    """How often scores of a confidence are right, on natural conversations."""
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for fold in folds:
        others = [score for other in folds if other is not fold for score in other.scores]
        heads = {head.name: head for head in calibrate_model(fold.model, others).heads}
        for one in fold.scores:
            if one.conversation.is_ordinary:
                confidence = heads[one.head].calibrate(one.score)
                bins[min(9, int(10 * confidence))].append((confidence, one.is_target))
    yield "| confidence | turns | mean confidence | share right |\n|---|---|---|---|"
    for place, pairs in sorted(bins.items()):
        mean = sum(confidence for confidence, _ in pairs) / len(pairs)
        right = sum(target for _, target in pairs) / len(pairs)
        yield f"| {place / 10:.1f}–{(place + 1) / 10:.1f} | {len(pairs)} | {mean:.2f} | {right:.2f} |"


def write_agreement(conversations: Sequence[Conversation]) -> Iterator[str]:
    """Krippendorff's alpha between author and second reader, turn by turn."""
    yield "| behaviour | turns read twice | alpha |\n|---|---|---|"
    for behaviour in BEHAVIOURS:
        units = [
            (behaviour in first, behaviour in second)
            for one in conversations
            for first, second in zip(one.labels, one.second or (), strict=False)
        ]
        agreement = measure_alpha(units)
        low, high = agreement.interval or (0.0, 1.0)
        yield f"| `{behaviour}` | {agreement.items} | {agreement.value:.2f} ({low:.2f}–{high:.2f}) |"


def write_older(model: DetectorModel) -> Iterator[str]:
    """F1 on the older cases, which the model was trained on."""
    yield "| behaviour | cases | F1 |\n|---|---|---|"
    for behaviour in BEHAVIOURS:
        cases = read_cases(behaviour)
        rows = [
            count([case.label], [(case.turn, behaviour) in find_failures(case.session, model)])
            for case in cases
        ]
        f1 = _write_ratio(resample(rows, COLUMNS), "twice_right", "found_and_there")
        yield f"| `{behaviour}` | {len(cases)} | {f1} |"


def list_training() -> list[LabelledConversation]:
    """Everything that the detector learns from."""
    measured = [one.to_labelled() for one in (*read_corpus(), *read_real())]
    return [*measured, *read_transcripts(), *read_older_cases()]


def split_by_author(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return parts that are left out together: authors of each style, and ideas of the real conversations."""
    authors = {one.group for one in conversations} - NOT_BLIND
    styles = (DISGUISED, {author for author in authors if author.startswith("real")})
    ordered = (sorted(styles[0]), sorted(authors - styles[0] - styles[1]), sorted(styles[1]))
    part_of = {author: place % PARTS for some in ordered for place, author in enumerate(some)}
    return [[one for one in conversations if part_of.get(one.group) == part] for part in range(PARTS)]


def split_by_language(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return parts that are left out together: all conversations of some languages other than English."""
    languages = sorted({one.language for one in conversations} - {"en"})
    part_of = {language: place % LANGUAGE_PARTS for place, language in enumerate(languages)}
    return [
        [one for one in conversations if part_of.get(one.language) == part] for part in range(LANGUAGE_PARTS)
    ]


def main() -> None:
    """Print the tables; with ``--write``, store them and the model."""
    corpus, real = list(read_corpus()), read_real()
    sessions = {one.session.id: one.session for one in (*corpus, *real)}
    conversations = list_training()
    data = TrainingSet(conversations)
    folds = list(_report(cross_validate(data, split_by_author(conversations)), PARTS))
    found = find_held_out(folds, sessions)
    scores = [score for fold in folds for score in fold.scores]
    others: dict[str, set[tuple[int, str]]] = {}
    for fold in _report(cross_validate(data, split_by_language(conversations)), LANGUAGE_PARTS):
        held = {one.id for one in fold.held_out}
        model = calibrate_model(fold.model, [one for one in scores if one.conversation.id not in held])
        others |= {one: find_failures(sessions[one], model) for one in held & sessions.keys()}
    model = calibrate_model(train_model(data), scores)
    natural = [one for one in corpus if one.style == "natural"]
    foreign = [one for one in corpus if one.language != "en"]
    text = "\n".join(
        (
            "Authors left out, conversations as failures look in transcripts:\n",
            *write_main(natural, found),
            "\nAuthors left out, all conversations, most of them disguised on purpose:\n",
            *write_main(corpus, found),
            "\nF1 of turns, authors left out:\n",
            *write_groups(corpus, found, "author", lambda one: f"{one.author} ({one.style})"),
            "",
            *write_groups(corpus, found, "language", lambda one: one.language),
            "",
            *write_groups(corpus, found, "length", _name_length),
            "",
            *write_groups(corpus, found, "register", _name_register),
            "\nF1 of turns, languages left out: nothing in the language was seen in training:\n",
            *write_groups(foreign, others, "language", lambda one: one.language),
            "\nPrecision where one turn in thirty shows a behaviour, natural conversations:\n",
            *write_prevalence(natural, found),
            "\nReliability of the confidence, all behaviours, natural conversations:\n",
            *write_reliability(folds),
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


def _report(folds: Iterator[Fold], parts: int) -> Iterator[Fold]:
    for number, fold in enumerate(folds, 1):
        print(f"fold {number} of {parts}", file=sys.stderr, flush=True)
        yield fold


def _name_length(one: Conversation) -> str:
    turns = len(one.labels)
    return "2 turns" if turns < 3 else "3–6 turns" if turns < 7 else "7 turns and more"


def _name_register(one: Conversation) -> str:
    told = one.register.lower()
    return next((name for name, words in REGISTERS.items() if any(word in told for word in words)), "other")


def _write_ratio(sums: BootstrapSums, top: str, bottom: str) -> str:
    if not sums.sums[bottom]:
        return "–"
    low, high = sums.interval(top, bottom) or (0.0, 1.0)
    return f"{sums.ratio(top, bottom):.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
