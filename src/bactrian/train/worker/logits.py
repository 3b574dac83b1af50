# pyright: basic, reportMissingImports=false
"""What transformers expects next after some prompts, to compare with llama.cpp's answer from the written GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from bactrian.train.examples import IGNORED

EXPECTED = "expected.json"
_PROMPTS = 12
_LONGEST = 512
"""Tokens of a prompt."""
_TOP = 10
"""Most likely tokens that are compared."""


def write_expected(folder: Path, data: Any) -> None:
    """Write prompts of ``data`` and the log-probabilities that the model in ``folder`` gives to the next token."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    step = max(1, len(data) // _PROMPTS)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for number in range(0, len(data), step):
            prompt = _cut_prompt(data[number], number)
            if prompt:
                scores = torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1].float(), -1)
                top = scores.topk(min(_TOP, len(scores)))
                rows.append(
                    {
                        "prompt": prompt,
                        "top": list(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
                    }
                )
            if len(rows) == _PROMPTS:
                break
    (folder / EXPECTED).write_text(json.dumps(rows), "utf-8")


def _cut_prompt(row: dict[str, Any], number: int) -> list[int]:
    """Return the beginning of an example, up to a learned token: the first, or one further on."""
    learned = [place for place, label in enumerate(row["labels"]) if label != IGNORED and place < _LONGEST]
    return row["input_ids"][: learned[number * 7 % len(learned)]] if learned else []
