"""The tables of ``docs/behaviours-invented.md``: how right the learned detector is, on authors it has not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from bactrian.detect.fit import PREVALENCE, Fold
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, is_loop
from bactrian.stats.clusters import estimate_ratio
from bactrian.stats.comparisons import measure_alpha
from benchmarks.corpus import BEHAVIOURS, Conversation

LEASTS = (0.5, 0.7, 0.8, 0.9)
"""Confidences from which on findings might be taken."""
ENDED = 8
"""Turns of a loop that end a conversation."""
REGISTERS = {
    "weak model": ("135m", "360m", "1.7b", "small", "smol", "tiny", "phi-2", "vicuna", "weak model", "rambl"),
    "GPT-3.5 style": ("gpt-3.5",),
    "GPT-4 style": ("gpt-4",),
    "Llama style": ("llama",),
    "Qwen style": ("qwen",),
    "strong model": ("strong", "starken", "fuerte"),
}
"""Words by which authors told the register; all others are told in words of their own."""
COLUMNS = ("right", "found", "there", "twice_right", "found_and_there")
HEAD = "| behaviour | of | shown | precision | recall | F1 |\n|---|---|---|---|---|---|"
SHORT_HEAD = f"| {{}} | conversations | {' | '.join(BEHAVIOURS)} |\n|---|---|---|---|---|---|"

Found = Mapping[str, set[tuple[int, str]]]
"""Turn and behaviour of the findings, by conversation."""


def count(shown: Sequence[bool], found: Sequence[bool]) -> list[float]:
    """The values of ``COLUMNS`` for the turns of one conversation."""
    right = sum(is_shown and is_found for is_shown, is_found in zip(shown, found, strict=True))
    return [right, sum(found), sum(shown), 2 * right, sum(found) + sum(shown)]


def measure(
    conversations: Sequence[Conversation],
    found: Found,
    behaviour: str,
    *,
    whole: bool = False,
    speaker: str = "",
) -> list[list[float]]:
    """Sums of ``COLUMNS`` over turns, of one speaker if given, or over whole conversations."""
    rows: list[list[float]] = []
    for conversation in conversations:
        turns = [turn for turn in conversation.session.turns if speaker in ("", turn.speaker)]
        there = [behaviour in conversation.labels[turn.number - 1] for turn in turns]
        said = [(turn.number, behaviour) in found[conversation.session.id] for turn in turns]
        rows.append(count([any(there)], [any(said)]) if whole else count(there, said))
    return rows


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
        for unit, counts in rows:
            pairs = (("right", "found"), ("right", "there"), ("twice_right", "found_and_there"))
            cells = " | ".join(write_ratio(counts, *pair) for pair in pairs)
            yield f"| `{behaviour}` | {unit} | {sum(row[COLUMNS.index('there')] for row in counts):.0f} | {cells} |"


def write_groups(
    conversations: Sequence[Conversation], found: Found, name: str, key: Callable[[Conversation], str]
) -> Iterator[str]:
    """F1 of turns for each group."""
    yield SHORT_HEAD.format(name)
    groups: defaultdict[str, list[Conversation]] = defaultdict(list)
    for conversation in conversations:
        groups[key(conversation)].append(conversation)
    for value, group in sorted(groups.items()):
        sums = (measure(group, found, behaviour) for behaviour in BEHAVIOURS)
        cells = " | ".join(write_ratio(part, "twice_right", "found_and_there") for part in sums)
        yield f"| {value} | {len(group)} | {cells} |"


def write_prevalence(folds: Sequence[Fold]) -> Iterator[str]:
    """Precision where one turn in thirty shows the behaviour, from recall and the share of false alarms."""
    said: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for fold in folds:
        heads = {head.name: head for head in fold.model.heads}
        for score in fold.scores:
            if score.is_ordinary:
                said[score.head].append((heads[score.head].calibrate(score.score), score.is_target))
    yield f"| head | {' | '.join(f'from {least}: precision | recall' for least in LEASTS)} |"
    yield f"|---{'|---' * 2 * len(LEASTS)}|"
    for head, pairs in sorted(said.items()):
        shown = sum(target for _, target in pairs)
        cells: list[str] = []
        for least in LEASTS:
            right = sum(target for confidence, target in pairs if confidence >= least) / shown
            wrong = sum(not target for confidence, target in pairs if confidence >= least) / (
                len(pairs) - shown
            )
            part, rest = PREVALENCE * right, (1 - PREVALENCE) * wrong
            cells.append(f"{part / max(part + rest, 1e-9):.2f} | {right:.2f}")
        yield f"| `{head}` | {' | '.join(cells)} |"


def write_reliability(folds: Sequence[Fold]) -> Iterator[str]:
    """How often scores of a confidence are right, on natural conversations."""
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for fold in folds:
        heads = {head.name: head for head in fold.model.heads}
        for score in fold.scores:
            if score.is_ordinary:
                confidence = heads[score.head].calibrate(score.score)
                bins[min(9, int(10 * confidence))].append((confidence, score.is_target))
    yield "| confidence | turns | mean confidence | share right |\n|---|---|---|---|"
    for place, pairs in sorted(bins.items()):
        mean = sum(confidence for confidence, _ in pairs) / len(pairs)
        right = sum(target for _, target in pairs) / len(pairs)
        yield f"| {place / 10:.1f}–{(place + 1) / 10:.1f} | {len(pairs)} | {mean:.2f} | {right:.2f} |"


def write_agreement(conversations: Sequence[Conversation]) -> Iterator[str]:
    """Krippendorff's alpha between author and second reader, turn by turn."""
    yield "| behaviour | turns read twice | alpha |\n|---|---|---|"
    for behaviour in BEHAVIOURS:
        turns = [
            (behaviour in first, behaviour in second)
            for conversation in conversations
            for first, second in zip(conversation.labels, conversation.second or (), strict=False)
        ]
        alpha = measure_alpha(turns)
        ends = "" if alpha.interval is None else " ({:.2f}–{:.2f})".format(*alpha.interval)
        yield f"| `{behaviour}` | {len(turns)} | {alpha.value:.2f}{ends} |"


def write_endings(conversations: Sequence[Conversation], folds: Sequence[Fold]) -> Iterator[str]:
    """How many conversations the ending ``repeat_loop`` stops, by models that have not seen them."""
    model_of = {name: fold.model for fold in folds for name in fold.held_out}
    rows: defaultdict[str, list[bool]] = defaultdict(list)
    for conversation in conversations:
        turns = conversation.session.turns
        shown = [
            LOOP in first | second
            for first, second in zip(
                conversation.labels, conversation.second or conversation.labels, strict=True
            )
        ]
        lengths = range(ENDED, len(turns) + 1, 2)
        at = next(
            (end for end in lengths if is_loop(turns[:end], ENDED, model_of[conversation.session.id])), None
        )
        if not any(shown):
            rows["without a loop, eight turns or more: ended"] += [at is not None] if lengths else []
        else:
            first = shown.index(True) + 1
            rows["with a loop, ended before it is labelled"].append(at is not None and at < first)
            if sum(shown) + SHORTEST_LOOP > ENDED:
                rows["with a loop of nine turns or more, ended"].append(at is not None)
    yield "| conversations | of | number |\n|---|---|---|"
    for name, values in sorted(rows.items()):
        yield f"| {name} | {len(values)} | {sum(values)} |"


def name_length(conversation: Conversation) -> str:
    turns = len(conversation.labels)
    return "2 turns" if turns < 3 else "3–6 turns" if turns < 7 else "7 turns and more"


def name_register(conversation: Conversation) -> str:
    told = conversation.register.lower()
    return next((name for name, words in REGISTERS.items() if any(word in told for word in words)), "other")


def write_ratio(rows: Sequence[Sequence[float]], top: str, bottom: str) -> str:
    """The ratio of two of ``COLUMNS``, with its interval over conversations."""
    above, below = COLUMNS.index(top), COLUMNS.index(bottom)
    of = estimate_ratio(((row[above], row[below]) for row in rows), name="conversation")
    if of.value is None:
        return "–"
    ends = "" if of.interval is None else " ({:.2f}–{:.2f})".format(*of.interval)
    return f"{of.value:.2f}{ends}"
