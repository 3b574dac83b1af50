"""``preference``: pairs of chosen and rejected messages, as JSON lines for preference tuning."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bactrian.export.dialogue import make_alternating, to_plain_text, view_from_side
from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.json_lines import open_json_lines
from bactrian.records.candidate import Preference
from bactrian.records.session import Session
from bactrian.tables.lineage import trace_source


def build_pairs(session: Session, choice: Preference, context: ExportContext) -> Iterator[dict[str, object]]:
    """Yield the chosen candidate paired with each of the others, after the conversation from the speaker's side.

    Candidates equal to the chosen one are left out, and so are choices that do not follow a strictly alternating
    conversation.
    """
    before = make_alternating(session)[: choice.number - 1]
    turn = "assistant" if len(before) % 2 else "user"
    if len(before) != choice.number - 1 or choice.speaker != turn:
        return
    prompt = to_plain_text(view_from_side(session, choice.speaker, before, context.prompts))
    chosen = choice.texts[choice.index]
    for text in dict.fromkeys(choice.texts):
        if text.strip() != chosen.strip():
            yield {
                "prompt": prompt,
                "chosen": [{"role": "assistant", "content": chosen}],
                "rejected": [{"role": "assistant", "content": text}],
                "turn": choice.number,
                "side": choice.speaker,
                "chooser": choice.chooser,
                "reason": choice.reason,
                **trace_source(session, context.run),
            }


@contextmanager
def open_preference(path: Path, context: ExportContext) -> Generator[Add]:
    """Open ``path`` for one pair a line."""
    with open_json_lines(path) as write:

        def add(sample: Sample) -> int:
            session = sample.session
            rows = 0
            for choice in sample.choices:
                for row in build_pairs(session, choice, context):
                    write(row)
                    rows += 1
            return rows

        yield add


FORMAT = Format("preference", open_preference, needs=frozenset(("choices",)))
