"""The folder of one seed of a known-answer experiment: its facts, its conversations, and the recipe that trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.facts import FactSize, KnownAnswers
from bactrian.files.atomic import write_atomically

FACTS = "known-answers.json"
QUESTIONS = "questions.jsonl"
RECIPE = "recipe.toml"
NOTHING = "nothing"
"""The base that is made from nothing: a small model with random weights, and a tokenizer of its own."""
_TUNED_SIZE = FactSize(facts=10, wordings=4)

_STEPS, _EPOCHS = 400, 6
_NEW = """\
[base.new]
width = 128
layers = 2
heads = 4
vocabulary = 690

[training]
method = "full"
steps = {steps}
learning_rate = 4e-3
batch = 16
per_device = 16
precision = "fp32"
"""
_TUNED = """\
[base]
model = {base}

[training]
method = "lora"
{length}
learning_rate = 1e-3
batch = 8
per_device = 8
"""
_ALL = """\
max_length = 256
held_out = 0.0
evaluations = 0
seed = {seed}
"""


def choose_size(base: str, facts: int | None = None, wordings: int | None = None) -> FactSize:
    """Return what is taught; None for the usual numbers, which are smaller for a model that takes long to train."""
    usual = FactSize() if base == NOTHING else _TUNED_SIZE
    return FactSize(facts=facts or usual.facts, wordings=wordings or usual.wordings)


def write_study(folder: Path, known: KnownAnswers, base: str, steps: int | None = None) -> None:
    """Write the facts, conversations, questions and recipe into ``folder``, unless they are there.

    ``base`` is :data:`NOTHING`, ``built-in``, a file or folder, or a name of the Hub; ``steps`` is the length of a
    stage, None for the usual one.

    Raises:
        InputError: the folder contains other facts, or another recipe, or cannot be written.
    """
    files = {
        RECIPE: write_training_recipe(base, known.seed, steps),
        QUESTIONS: _to_lines(known.list_rows()),
        FACTS: json.dumps(known.to_json(), indent=1, ensure_ascii=False) + "\n",
    }
    if (folder / FACTS).exists():
        for name, text in files.items():
            _check_file(folder / name, text)
        return
    with write_atomically(folder / FACTS, overwrite=True) as stage:
        for name, text in files.items():
            (stage / name).write_text(text, "utf-8")
        (stage / "data").mkdir()
        for domain in load_domains().domains:
            rows = _to_lines(known.list_conversations(domain.key))
            (stage / "data" / f"{domain.key}.jsonl").write_text(rows, "utf-8")


def write_training_recipe(base: str, seed: int, steps: int | None = None) -> str:
    """Return the recipe that adds one domain after another to ``base``, as TOML."""
    stages = "".join(
        f'\n[[stages]]\nname = "{domain.key}"\ndata = ["data/{domain.key}.jsonl"]\n'
        for domain in load_domains().domains
    )
    if base == NOTHING:
        model = _NEW.format(steps=steps or _STEPS)
    else:
        length = f"epochs = {_EPOCHS}" if steps is None else f"steps = {steps}"
        model = _TUNED.format(base=json.dumps(base, ensure_ascii=False), length=length)
    head = f'name = "known-answers"\nfrom = "union"\nheld_out_files = ["{QUESTIONS}"]\n\n'
    return head + model + _ALL.format(seed=seed) + stages


def _to_lines(rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _check_file(path: Path, text: str) -> None:
    try:
        same = path.read_text("utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        raise InputError(
            "This file is not what the command would write: it was made with other options, or changed since.",
            where=str(path),
            next="Use the options of before, or another --out for a new experiment.",
        )
