"""``python -m benchmarks.natural FOLDER [--write]``: how right the detectors are on transcripts of real models.

The transcripts and answers are not part of the project: ``FOLDER`` holds them as JSON lines, each row with its source.
``camel.jsonl.gz``, ``labelled.jsonl.gz`` and ``transcripts.jsonl.gz`` hold conversations, ``pairs.jsonl.gz``
instructions with their answers. The labels are part of the project: ``natural_labels.jsonl`` has those of each
conversation that was read, by the SHA-256 of its texts. Of a loop it has the first turn and the last.

Trains the model of whole conversations without one source at a time, and measures all detectors on what was left out;
the first detector has seen none of it. ``--write`` stores the model (``context.json``) and the tables of
``docs/behaviours.md``. Needs the extra ``learn``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from bactrian.analyze.learned import OF_INSTRUCTIONS, detect_failure, has_instructor, read_session
from bactrian.detect.detector import (
    AROUND,
    LIKELY,
    POSSIBLE,
    ContextHead,
    Head,
    Surroundings,
    load_model,
)
from bactrian.detect.fit import LabelledConversation, load_learner
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, is_loop
from bactrian.records.session import IMPORTED, Provenance, Session
from benchmarks.behaviours import ROOT
from benchmarks.behaviours_tables import ENDED, count, write_ratio
from benchmarks.corpus import BEHAVIOURS
from benchmarks.labelled import make_session

LABELS = Path(__file__).with_name("natural_labels.jsonl")
CONVERSATIONS = ("camel", "labelled", "transcripts")
WEIGHTS = ROOT / "src" / "bactrian" / "detect" / "context.json"
PAGE = ROOT / "docs" / "behaviours.md"
BEGIN, END = "<!-- natural -->", "<!-- /natural -->"
_FLIP = ("thanks_share", "promise_share", "question_share", "length_ratio")
HEAD = "role_flip_user"
"""The head that has enough real cases for a second model."""
FIFTHS = 5
SURE, MAYBE = 0.93, 0.5
"""Precision of what counts and of all that is at least possible, on sources left out."""

Findings = Mapping[str, Mapping[tuple[int, str], float]]
"""Confidence of the findings by turn and behaviour, by conversation."""

_CODES = {
    "English": "en",
    "Chinese": "zh",
    "Russian": "ru",
    "German": "de",
    "French": "fr",
    "Japanese": "ja",
    "Korean": "ko",
}
_LEAST = 200
"""Turns of a source that is a part of its own in cross-validation; smaller ones are left out together."""


def read_rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def read_natural(folder: Path) -> tuple[list[LabelledConversation], dict[str, Session]]:
    """Read the labelled conversations and the answers, each answer as a conversation of two turns.

    Returns:
        The conversations, then the answers; and the sessions by id.
    """
    with LABELS.open(encoding="utf-8") as file:
        labels = {row.pop("conversation"): row for row in map(json.loads, file)}
    rows = {hash_texts(row): row for name in CONVERSATIONS for row in read_rows(folder, name)}
    labelled = [{**row, "labels": labels[key]} for key, row in rows.items() if key in labels]
    sizes: dict[str, int] = {}
    for row in labelled:
        sizes[row["source"]] = sizes.get(row["source"], 0) + len(row["messages"])
    conversations: list[LabelledConversation] = []
    sessions: dict[str, Session] = {}
    for row in labelled:
        session = sessions[row["id"]] = build_session(row)
        group = (
            row["source"] if sizes[row["source"]] >= _LEAST or "Chat" in row["source"] else "smaller sources"
        )
        conversations.append(_label(session, row, group, list(_list_labels(row))))
    ordinary: dict[str, bool] = dict.fromkeys(BEHAVIOURS, False)
    for row in read_rows(folder, "pairs"):
        said = [
            {"speaker": "user", "text": row["instruction"]},
            {"speaker": "assistant", "text": row["answer"]},
        ]
        session = sessions[row["id"]] = build_session({**row, "messages": said})
        conversations.append(_label(session, row, row["source"], [{}, ordinary]))
    return conversations, sessions


def hash_texts(row: Mapping[str, Any]) -> str:
    """Return the name of a conversation among the labels."""
    texts = "\0".join(message["text"] for message in row["messages"])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def build_session(row: Mapping[str, Any]) -> Session:
    """Return a row as a session, as if it were imported; the built-in model's as if it were played here."""
    own = row["source"] == "built-in model"
    provenance = Provenance(
        prompts="ai-society" if own else f"{IMPORTED}camel-chat",
        prompts_hash="",
        protocol="free",
        models={"user": row["model"], "assistant": row["model"]},
        language=row["language"],
    )
    return make_session(
        [(message["speaker"], message["text"]) for message in row["messages"]],
        row.get("assistant_role", "Assistant"),
        row.get("user_role", "User"),
        provenance=provenance,
        session_id=row["id"],
    )


def _label(
    session: Session, row: Mapping[str, Any], group: str, labels: list[dict[str, bool]]
) -> LabelledConversation:
    texts = tuple((turn.speaker == "user", str(turn.text)) for turn in session.turns)
    language = _CODES.get(row["language"], str(row["language"]))
    return LabelledConversation(session.id, group, language, texts, tuple(labels))


def _list_labels(row: Mapping[str, Any]) -> Iterator[dict[str, bool]]:
    """Yield what each turn shows. What is doubtful is not labelled, and flips only where somebody instructs."""
    shown: set[tuple[int, str]] = set()
    doubtful: set[tuple[int, str]] = set()
    for behaviour, of in row["labels"].items():
        for label in of.get("sure", ()):
            # The first turns of a loop are no finding yet. Where a loop itself is doubtful, all of them are.
            turns = range(label[0] + SHORTEST_LOOP - 1, label[1] + 1) if behaviour == LOOP else (label,)
            shown.update((turn, behaviour) for turn in turns)
        for label in of.get("doubtful", ()):
            turns = range(label[0], label[1] + 1) if behaviour == LOOP else (label,)
            doubtful.update((turn, behaviour) for turn in turns)
    known = [
        behaviour
        for behaviour in BEHAVIOURS
        if not (behaviour == "role_flip" and row.get("style", "").startswith("chatdev"))
    ]
    for turn in range(1, len(row["messages"]) + 1):
        yield {
            behaviour: (turn, behaviour) in shown
            for behaviour in known
            if (turn, behaviour) in shown or (turn, behaviour) not in doubtful
        }


@dataclass(frozen=True, slots=True)
class Rows:
    """What the model of whole conversations learns from: a row a turn, of all sources."""

    sources: list[str]
    rows: list[list[float]]
    shown: list[bool]

    def train(self, without: str = "") -> ContextHead:
        """Train on all sources but one, which count the same; the limits are not set yet."""
        numpy = load_learner("numpy")
        names = [*load_model().list_columns(find_head()), *AROUND]
        columns = [column for column, name in enumerate(names) if name in _FLIP or name in AROUND]
        used = [number for number, source in enumerate(self.sources) if source != without]
        rows = numpy.array([self.rows[number] for number in used], dtype=float)[:, columns]
        shown = [self.shown[number] for number in used]
        sizes = Counter(self.sources[number] for number in used)
        balanced = load_learner("sklearn.utils").compute_sample_weight("balanced", shown)
        weights = balanced / numpy.array([sizes[self.sources[number]] for number in used])
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        spread[spread == 0] = inf
        learner = load_learner("sklearn.linear_model").LogisticRegression(C=0.01, max_iter=500)
        learner.fit((rows - mean) / spread, shown, sample_weight=weights / weights.mean())
        of_columns = learner.coef_[0] / spread
        of_all = numpy.zeros(len(names))
        of_all[columns] = of_columns
        bias = float(learner.intercept_[0] - of_columns @ mean)
        return ContextHead(
            HEAD, round(bias, 5), [round(weight, 5) for weight in of_all.tolist()], (1.0, 0.0), 0.0, 0.0
        )


def find_head() -> Head:
    """Return the head that the model of whole conversations goes with."""
    return next(head for head in load_model().heads if head.name == HEAD)


def collect_rows(conversations: Sequence[LabelledConversation], sessions: Mapping[str, Session]) -> Rows:
    """Collect the turns that the head is about, where somebody instructs."""
    head, collected = find_head(), Rows([], [], [])
    for chat in conversations:
        if not has_instructor(sessions[chat.id]):
            continue
        surroundings = Surroundings(read_session(sessions[chat.id]).detected, head)
        for index, labels in enumerate(chat.labels):
            if head.behaviour in labels and head.applies_to(surroundings.detected.turns[index]):
                collected.sources.append(chat.group)
                collected.rows.append(surroundings.make_row(index))
                collected.shown.append(labels[head.behaviour])
    return collected


def train_contexts(rows: Rows, limits: ContextHead | None = None) -> dict[str, ContextHead]:
    """Train a model without each source, by its name, and one on all, under an empty name.

    Limits and confidence are those of ``limits``. Else they come from the scores of the sources that were left out, and
    are the same for all models.
    """
    heads = {source: rows.train(source) for source in (*sorted(set(rows.sources)), "")}
    known = [
        (heads[source].score(row), shown)
        for source, row, shown in zip(rows.sources, rows.rows, rows.shown, strict=True)
    ]
    limits = limits or set_limits(heads[""], known)
    return {source: replace(limits, bias=head.bias, weights=head.weights) for source, head in heads.items()}


def set_limits(head: ContextHead, known: Sequence[tuple[float, bool]]) -> ContextHead:
    """Give a head its limits and its confidence, from scores of turns by models that have not seen them."""
    learner = load_learner("sklearn.linear_model").LogisticRegression(C=100.0)
    fitted = learner.fit([[score] for score, _ in known], [shown for _, shown in known])
    return replace(
        head,
        calibration=(round(float(fitted.coef_[0][0]), 4), round(float(fitted.intercept_[0]), 4)),
        sure=round(find_limit(known, SURE), 4),
        possible=round(find_limit(known, MAYBE), 4),
    )


def find_limit(known: Sequence[tuple[float, bool]], precision: float) -> float:
    """Return the lowest score from which on so many are right; infinity if not found."""
    limit, right = inf, 0
    for number, (score, shown) in enumerate(sorted(known, reverse=True), start=1):
        right += shown
        if right >= precision * number:
            limit = score
    return limit


def find_failures(session: Session, context: ContextHead) -> Mapping[tuple[int, str], float]:
    """Confidence of what the product finds, candidates included, by turn and behaviour."""
    reading = replace(read_session(session), least=POSSIBLE, explains=False, context=context)
    return {
        (finding.turn, finding.behaviour): finding.confidence
        for behaviour in BEHAVIOURS
        for finding in detect_failure(behaviour)(reading)
    }


def find_all(
    conversations: Sequence[LabelledConversation],
    sessions: Mapping[str, Session],
    contexts: Mapping[str, ContextHead],
) -> Findings:
    """What the product finds in each conversation with the model that was trained without its source."""
    return {
        chat.id: find_failures(sessions[chat.id], contexts.get(chat.group, contexts[""]))
        for chat in conversations
    }


def write_sources(
    conversations: Sequence[LabelledConversation], sessions: Mapping[str, Session], found: Findings
) -> Iterator[str]:
    """Precision, recall and F1 of each behaviour by source, where it applies; loops by whole conversations, too."""
    yield "| behaviour | source | shown | found | right | precision | recall | F1 | possible, too | right of these |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    groups: defaultdict[str, list[LabelledConversation]] = defaultdict(list)
    for chat in conversations:
        groups[chat.group].append(chat)
    for behaviour in BEHAVIOURS:
        for whole in (False, True) if behaviour == LOOP else (False,):
            for name, group in [*sorted(groups.items()), ("**all**", conversations)]:
                of = [
                    chat
                    for chat in group
                    if behaviour not in OF_INSTRUCTIONS or has_instructor(sessions[chat.id])
                ]
                sure = [_count_turns(chat, found, behaviour, LIKELY, whole=whole) for chat in of]
                every = [_count_turns(chat, found, behaviour, POSSIBLE, whole=whole) for chat in of]
                if not any(map(any, (*sure, *every))):
                    continue
                pairs = (("right", "found"), ("right", "there"), ("twice_right", "found_and_there"))
                ratios = " | ".join(write_ratio(sure, *pair) for pair in pairs)
                right, said, there = (sum(column) for column in list(zip(*sure, strict=True))[:3])
                all_right, all_said = (sum(column) for column in list(zip(*every, strict=True))[:2])
                counts = f"{there:.0f} | {said:.0f} | {right:.0f}"
                extra = f"{all_said - said:.0f} | {all_right - right:.0f}"
                unit = ", conversations" if whole else ""
                yield f"| `{behaviour}`{unit} | {name} | {counts} | {ratios} | {extra} |"


def write_known_sources(
    conversations: Sequence[LabelledConversation], sessions: Mapping[str, Session], limits: ContextHead
) -> Iterator[str]:
    """The rows of all sources, for models that know other conversations of each source."""
    parts = [replace(chat, group=f"part {number % FIFTHS}") for number, chat in enumerate(conversations)]
    contexts = train_contexts(collect_rows(parts, sessions), limits)
    lines = list(write_sources(parts, sessions, find_all(parts, sessions, contexts)))
    rows = [line for line in lines if "**all**" in line and line.split("`")[1] == find_head().behaviour]
    yield from (*lines[:2], *rows)


def _count_turns(
    chat: LabelledConversation, found: Findings, behaviour: str, least: float, *, whole: bool
) -> list[float]:
    pairs = [
        (labels[behaviour], found[chat.id].get((number, behaviour), 0.0) >= least)
        for number, labels in enumerate(chat.labels, start=1)
        if behaviour in labels
    ]
    shown, said = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return count([any(shown)], [any(said)]) if whole else count(shown, said)


def write_answers(answers: Sequence[LabelledConversation], found: Findings) -> Iterator[str]:
    """Shares of single answers that are found, by language: nearly all are false alarms."""
    yield f"| language | answers | {' | '.join(BEHAVIOURS[:3])} | any |\n|---|---|---|---|---|---|"
    groups: defaultdict[str, list[set[str]]] = defaultdict(list)
    for chat in answers:
        sure = {behaviour for (_, behaviour), confidence in found[chat.id].items() if confidence >= LIKELY}
        groups[chat.language].append(sure)
    for language, group in sorted(groups.items()):
        cells = [sum(behaviour in sure for sure in group) for behaviour in BEHAVIOURS[:3]]
        shares = " | ".join(f"{number / len(group):.1%}" for number in (*cells, sum(map(bool, group))))
        yield f"| {language} | {len(group)} | {shares} |"


def write_endings(
    labelled: Sequence[LabelledConversation], sessions: Mapping[str, Session], others: Sequence[Session]
) -> Iterator[str]:
    """How many conversations the ending ``repeat_loop`` stops."""
    rows: defaultdict[str, list[bool]] = defaultdict(list)
    for chat in labelled:
        name = "without a loop"
        if any(labels.get(LOOP) for labels in chat.labels):
            name = "with a loop"
        elif not all(LOOP in labels for labels in chat.labels):
            name = "with a doubtful loop"
        rows[name].append(_is_ended(sessions[chat.id]))
    rows["not labelled"] = [_is_ended(session) for session in others]
    yield "| conversations | of | ended |\n|---|---|---|"
    for name, values in sorted(rows.items()):
        yield f"| {name} | {len(values)} | {sum(values)} |"


def _is_ended(session: Session) -> bool:
    turns = session.turns
    ends = [end for end in range(ENDED, len(turns) + 1) if turns[end - 1].speaker == "assistant"]
    return any(is_loop(turns[:end], ENDED) for end in ends)


def write_tables(
    folder: Path,
    natural: Sequence[LabelledConversation],
    sessions: Mapping[str, Session],
    contexts: Mapping[str, ContextHead],
) -> str:
    """Return the tables of the page."""
    found = find_all(natural, sessions, contexts)
    single = {row["id"] for row in read_rows(folder, "pairs")}
    labelled = [chat for chat in natural if chat.id not in single]
    answers = [chat for chat in natural if chat.id in single]
    known = {chat.id for chat in labelled}
    others = [build_session(row) for row in read_rows(folder, "transcripts") if row["id"] not in known]
    return "\n".join(
        (
            "Real transcripts. *Found* counts; *possible* does not, unless a reader confirms it:\n",
            *write_sources(labelled, sessions, found),
            "\nThe same where a fifth of the conversations is left out, whatever their source:\n",
            *write_known_sources(labelled, sessions, contexts[""]),
            "\nReal single answers, nearly all of them ordinary: share found\n",
            *write_answers(answers, found),
            "\nReal conversations that the ending `repeat_loop` stops:\n",
            *write_endings(labelled, sessions, others),
        )
    )


def main() -> None:
    """Print the tables; with ``--write``, store them and the model."""
    folder = Path(sys.argv[1])
    natural, sessions = read_natural(folder)
    contexts = train_contexts(collect_rows(natural, sessions))
    text = write_tables(folder, natural, sessions, contexts)
    print(text)
    if "--write" in sys.argv[2:]:
        about = {"conversations": len(natural), "made_by": "python -m benchmarks.natural FOLDER --write"}
        store(replace(contexts[""], about=about), text)


def store(model: ContextHead, text: str) -> None:
    """Store the model and the tables."""
    WEIGHTS.write_text(json.dumps(asdict(model), separators=(",", ":")) + "\n", "utf-8")
    page = PAGE.read_text("utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
