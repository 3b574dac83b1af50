# pyright: basic, reportMissingImports=false
"""Writes the prepared conversations of a stage as tokens, in Arrow files that training maps into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Sequence, Value
from datasets.arrow_writer import ArrowWriter

from bactrian.errors import InputError
from bactrian.train.data.conversation import Conversation, read_prepared
from bactrian.train.examples import IGNORED, CutCounts, Cutter, Example, cut_conversation
from bactrian.train.folder import StageFolder
from bactrian.train.recipe import Training
from bactrian.train.worker.models.seq2seq import Seq2SeqCutter

_FEATURES = Features({"input_ids": Sequence(Value("int32")), "labels": Sequence(Value("int32"))})
PARTS = ("train", "held-out")
_PREVIEWED = 50
"""Examples that the preview shows."""


def encode_stage(
    stage: StageFolder, cutter: Cutter | Seq2SeqCutter, tokenizer: Any, training: Training
) -> dict[str, Any]:
    """Write the tokens of a stage's data, and a preview for people. Return the numbers for its manifest.

    Raises:
        InputError: no example is left, too many are lost, or nothing in one is learned.
    """
    found: dict[str, Any] = {}
    for part in PARTS:
        source = stage.data / f"{part}.jsonl"
        counts = CutCounts()
        preview: list[Example] = []
        conversations = read_prepared(source)
        totals = _write(
            stage.data / f"{part}.arrow", _cut(conversations, cutter, training.max_length, counts, preview)
        )
        counts.check(training.lost_at_most, str(source))
        if part == "train":
            if not totals["learned_tokens"]:
                empty = f": {counts.empty:,} of {counts.pairs:,} replies are empty" if counts.empty else ""
                raise InputError(
                    f"The stage {stage.name} has no example in which anything is learned{empty}.",
                    where=str(source),
                    next="Change its data, its filters, its side or max_length, and use another --out.",
                )
            (stage.data / "preview.txt").write_text(_show(preview, tokenizer), "utf-8")
        found[part] = {
            **totals,
            "conversations": counts.conversations,
            "pairs": counts.pairs,
            "split": counts.split,
            "truncated_pairs": counts.truncated,
            "empty_replies": counts.empty,
            "lost_pairs": len(counts.lost),
            "lost": counts.lost[:20],
        }
    return found


def load_part(stage: StageFolder, part: str) -> Dataset:
    """Open the tokens of a part of a stage's data."""
    return Dataset.from_file(str(stage.data / f"{part}.arrow"))


def _cut(
    conversations: Iterable[Conversation],
    cutter: Cutter | Seq2SeqCutter,
    max_length: int,
    counts: CutCounts,
    preview: list[Example],
) -> Iterator[Example]:
    for one in conversations:
        for example in _cut_one(one, cutter, max_length, counts):
            if len(preview) < _PREVIEWED:
                preview.append(example)
            yield example


def _cut_one(
    one: Conversation, cutter: Cutter | Seq2SeqCutter, max_length: int, counts: CutCounts
) -> Iterable[Example]:
    if isinstance(cutter, Cutter):
        return cut_conversation(one.id, one.messages, cutter, max_length, counts)
    examples = cutter.cut_replies(one.messages, max_length)
    counts.conversations += 1
    replies = sum(said["role"] == "assistant" for said in one.messages)
    counts.pairs += replies
    counts.empty += replies - len(examples)
    counts.split += len(examples) > 1
    return examples


def _write(path: Path, examples: Iterable[Example]) -> dict[str, int]:
    totals = {"examples": 0, "tokens": 0, "learned_tokens": 0, "longest": 0}
    with ArrowWriter(features=_FEATURES, path=str(path)) as writer:
        for example in examples:
            writer.write({"input_ids": example.ids, "labels": example.labels})
            totals["examples"] += 1
            totals["tokens"] += len(example.ids)
            totals["learned_tokens"] += example.learned
            totals["longest"] = max(totals["longest"], len(example.ids))
        writer.finalize()
    return totals


def _show(examples: Iterable[Example], tokenizer: Any) -> str:
    """Return examples as text, with ⟦ and ⟧ around what is learned."""
    shown: list[str] = []
    for number, example in enumerate(examples, start=1):
        runs: list[tuple[bool, list[int]]] = []
        if len(example.ids) != len(example.labels):  # a sequence-to-sequence model
            text = f"{tokenizer.decode(example.ids)}⟦{tokenizer.decode(example.labels)}⟧"
            shown.append(f"=== example {number} ===\n{text}\n")
            continue
        for token, label in zip(example.ids, example.labels, strict=True):
            learned = label != IGNORED
            if not runs or runs[-1][0] != learned:
                runs.append((learned, []))
            runs[-1][1].append(token)
        text = "".join(
            f"⟦{tokenizer.decode(ids)}⟧" if learned else tokenizer.decode(ids) for learned, ids in runs
        )
        shown.append(
            f"=== example {number}: {len(example.ids)} tokens, {example.learned} learned ===\n{text}\n"
        )
    return "What is between ⟦ and ⟧ is learned, the stop token included.\n\n" + "\n".join(shown)
