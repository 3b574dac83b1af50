"""``python -m benchmarks.natural FOLDER [--write]``: how right the detectors are on transcripts of real models.

The transcripts and answers are not part of the project: ``FOLDER`` holds them as JSON lines. ``camel.jsonl.gz`` and
``labelled.jsonl.gz`` hold conversations with labels (``turn``, ``behaviour``, ``sure`` and, for a loop, ``loop_end``),
``transcripts.jsonl.gz`` others without, ``pairs.jsonl.gz`` instructions with their answers. Each row names its source.

Trains the detector of long turns without some sources at a time, and measures all detectors on what was left out; the
detector of short turns has seen none of it. ``--write`` stores the model (``long_turns.json``) and the tables of
``docs/behaviours.md``. Needs the extra ``learn``.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

from bactrian.analyze.learned import FLAKE, OF_INSTRUCTIONS, detect_failure, has_instructor, read_session
from bactrian.detect.detector import LIKELY, POSSIBLE, DetectorModel, write_model
from bactrian.detect.fit import Fold, HeadPlan, LabelledConversation, TrainingSet, hold_out
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, is_loop
from bactrian.records.session import IMPORTED, Provenance, Session
from benchmarks.behaviours import ROOT
from benchmarks.behaviours_tables import ENDED, count, write_ratio
from benchmarks.corpus import BEHAVIOURS
from benchmarks.labelled import make_session

WEIGHTS = ROOT / "src" / "bactrian" / "detect" / "long_turns.json"
PAGE = ROOT / "docs" / "behaviours.md"
BEGIN, END = "<!-- natural -->", "<!-- /natural -->"
PLANS = (HeadPlan(FLAKE, "assistant"),)
PARTS = (
    ("KatherLab/llm-agent", "yuzu-ai/japanese-llm-ranking"),
    ("camel-ai/camel", "pnu-clink/korean-mt-bench"),
    ("smaller sources", "built-in model"),
    ("altamiranoaxel77/ChatDev_pruebas", "sierra-research/tau-bench"),
    ("OTOYO1020/ChatDev_Intermediate", "shisa-ai/ja-mt-bench-harness"),
    ("Madhav-Kanda/tau-bench",),
)
"""Sources that are left out together."""
CANDIDATE, NEVER = -2.8, 99.0
"""Log odds of a long turn from which seven in ten are flakes, on sources left out; nine in ten are reached nowhere."""

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
        What training needs, and the sessions by id.
    """
    labelled = [*read_rows(folder, "camel"), *read_rows(folder, "labelled")]
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
    for label in row["labels"]:
        first = last = label["turn"]
        if label["behaviour"] == LOOP:
            last = label["loop_end"]
            # The first turns of a loop are no finding yet. Where a loop itself is doubtful, all of them are.
            first += SHORTEST_LOOP - 1 if label["sure"] else 0
        kind = shown if label["sure"] else doubtful
        kind.update((turn, label["behaviour"]) for turn in range(first, last + 1))
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


def set_limits(model: DetectorModel) -> DetectorModel:
    """Return the model of long turns with its confidence: candidates from :data:`CANDIDATE` on, and nothing counts."""
    slope = 0.3
    intercept = log(POSSIBLE / (1 - POSSIBLE)) - slope * CANDIDATE
    head = replace(model.heads[0], calibration=(slope, round(intercept, 4)), threshold=NEVER)
    return replace(model, heads=(head,))


def find_failures(session: Session, long_model: DetectorModel) -> Mapping[tuple[int, str], float]:
    """Confidence of what the product finds, candidates included, by turn and behaviour."""
    reading = replace(read_session(session), least=POSSIBLE, explains=False, long_model=long_model)
    return {
        (finding.turn, finding.behaviour): finding.confidence
        for behaviour in BEHAVIOURS
        for finding in detect_failure(behaviour)(reading)
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
    folds: Sequence[Fold],
) -> str:
    """Return the tables of the page."""
    model_of = {name: set_limits(fold.model) for fold in folds for name in fold.held_out}
    found: Findings = {chat.id: find_failures(sessions[chat.id], model_of[chat.id]) for chat in natural}
    labelled = [chat for chat in natural if chat.labels[0] or len(chat.labels) > 2]
    answers = [chat for chat in natural if chat not in labelled]
    known = {chat.id for chat in labelled}
    others = [build_session(row) for row in read_rows(folder, "transcripts") if row["id"] not in known]
    return "\n".join(
        (
            "Real transcripts. *Found* counts; *possible* does not, unless a reader confirms it:\n",
            *write_sources(labelled, sessions, found),
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
    data = TrainingSet(natural)
    folds = [hold_out(data, [chat for chat in natural if chat.group in part], PLANS) for part in (*PARTS, ())]
    text = write_tables(folder, natural, sessions, folds)
    print(text)
    if "--write" in sys.argv[2:]:
        about = {"conversations": len(natural), "made_by": "python -m benchmarks.natural FOLDER --write"}
        store(replace(set_limits(folds[-1].model), about=about), text)


def store(model: DetectorModel, text: str) -> None:
    """Store the model and the tables."""
    WEIGHTS.write_text(write_model(model) + "\n", "utf-8")
    page = PAGE.read_text("utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
