"""The card of a data set: content, origin and purpose, with the run's own numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bactrian.language.escape import to_code_span, to_line, to_markdown
from bactrian.stats.proportion import Proportion

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(made: Mapping[str, Any]) -> str:
    """Return the card of the data that this manifest describes: a YAML header and text."""
    return "\n".join((*_header(made), *_text(made))) + "\n"


def _header(made: Mapping[str, Any]) -> Iterator[str]:
    counts = made["counts"]
    rows = sum(counts["rows"].values())
    size = next((name for limit, name in _SIZES if rows < limit), "n>1M")
    tags = ["synthetic", "role-play", "multi-agent", *map(to_line, made["marks"])]
    codes = [one for one in made["languages"] if re.fullmatch(r"[a-z]{2,3}", one)]
    yield "---"
    yield f"pretty_name: {json.dumps(to_line(made['run']['name']), ensure_ascii=False)}"
    if made["license"]:
        yield f"license: {json.dumps(made['license'])}"
    yield f"language: {json.dumps(codes or ['en'])}"
    yield f"size_categories: {json.dumps([size])}"
    yield 'task_categories: ["text-generation"]'
    yield f"tags: {json.dumps(tags)}"
    yield "configs:"
    yield "  - config_name: default"
    yield "    data_files:"
    for part in sorted(counts["rows"], key=lambda part: (part != "train", part)):
        yield f"      - split: {part}"
        yield f'        path: "data/{part}-*.parquet"'
    yield "---"


def _text(made: Mapping[str, Any]) -> Iterator[str]:
    counts, run = made["counts"], made["run"]
    yield f"\n# {to_markdown(run['name'])}\n"
    for mark in made["marks"]:
        yield f"> **{to_markdown(mark)}**: this data was made to study misuse. Do not train assistants on it.\n"
    yield (
        "Conversations in which two language-model agents solve a task together: an AI user instructs, an AI assistant"
        f" solves. Seen from the side of the AI {made['side']}, whose words are the `assistant` messages. No"
        " humans took part, and the content was not reviewed."
    )
    yield "\n## What is in it\n"
    yield "| | |\n|---|---|"
    for part, rows in counts["rows"].items():
        yield f"| rows, {part} | {rows:,} |"
    for name in ("sessions", "messages", "tokens", "pairs"):
        yield f"| {name} | {counts[name]:,} |"
    for reason, count in counts["left_out"].items():
        yield f"| left out: {to_markdown(reason)} | {count:,} |"
    for kind, count in counts["redacted"].items():
        yield f"| removed: {to_markdown(kind)} | {count:,} |"
    yield "\n## How the conversations ended\n"
    yield "| ending | sessions | share | 95 % interval |\n|---|---|---|---|"
    for code, count in made["endings"].items():
        share = Proportion(count, counts["sessions"])
        low, high = share.interval
        yield f"| {to_code_span(code)} | {count:,} | {share.rate:.1%} | {low:.1%} – {high:.1%} |"
    yield "\nOnly `task_done` means that the AI user considered its task solved. `failed` and `refused` are failures."
    yield "\n## How it was made\n"
    yield f"- Recipe: {to_markdown(run['recipe'] or 'none; single sessions or imported ones')}"
    yield from (
        f"- Model of the {to_markdown(one['agent'])}: {to_markdown(one['model'])}" for one in made["models"]
    )
    if not made["models"]:
        yield "- Models: not known"
    yield from (
        f"- Prompts: {to_markdown(one['name'])} (SHA-256 {one['sha256'] or 'not known'})"
        for one in made["prompts"]
    )
    yield from (
        f"- Sampling: {to_code_span(json.dumps(one, ensure_ascii=False))}" for one in made["sampling"]
    )
    yield f"- Filters: {to_code_span(json.dumps(made['filters'], ensure_ascii=False))}"
    if made["split"]:
        yield f"- Split by pairs of roles, so that none is in two parts: `{json.dumps(made['split'])}`"
    yield f"- Language: {to_markdown(', '.join(made['languages'])) or 'none requested; the prompts are English'}"
    yield f"- Written by bactrian {made['bactrian']}; `manifest.json` has the hash of every file."
    yield "\n## What it is for\n"
    yield (
        "Research on how language models cooperate, and training of models that follow instructions or, from the"
        " AI user's side, give them. Not for advice: the text was written by models and can be wrong. The models' own"
        " terms may limit what may be trained on it."
    )
    yield (
        "\n## Citation\n\nCite the paper whose method made this data: Li, Hammoud, Itani, Khizbullin, Ghanem. CAMEL:"
        " Communicative Agents for “Mind” Exploration of Large Language Model Society. NeurIPS 2023. And the program:"
        f" Bactrian {made['bactrian']}."
    )
    yield (
        "\nConversations that were imported from CAMEL's published data are under CC BY-NC 4.0, whatever is named"
        " below. The data is meant for research."
    )
    yield f"\n## Licence\n\n{to_markdown(made['license'] or 'Not specified; ask the owner.')}"
