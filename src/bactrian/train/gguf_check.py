"""Checks that llama.cpp computes from the written files what transformers computed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError
from bactrian.models.local.gguf import read_info
from bactrian.models.local.llama_server import LlamaServer, start_server
from bactrian.records.text import Text
from bactrian.records.turn import Message
from bactrian.train.training_folder import name_gguf

EXPECTED = "expected.json"
PROMPTS = "prompts.json"
# Largest mean difference of log-probabilities. Rounding to 16 bits makes a few hundredths.
MOST_DIFFERENCE = 0.5
_WINDOW = 4096


@asynccontextmanager
async def _serve(path: Path) -> AsyncGenerator[LlamaServer]:
    server = await start_server(path, slots=1, window=min(_WINDOW, read_info(path).window))
    try:
        yield server
    finally:
        await server.close()


async def check_stage_gguf(folder: Path, kind: str = "f16") -> dict[str, Any] | None:
    """Compare the GGUF file of this kind with what transformers computed; None if llama.cpp is missing.

    Raises:
        BactrianError: the file computes something else.
    """
    if find_spec("xllamacpp") is None or not (folder / EXPECTED).exists():
        return None
    rows = json.loads((folder / EXPECTED).read_bytes())
    path = folder / name_gguf(kind)
    async with _serve(path) as server:
        pairs = [(row["top"], await server.rank_next(row["prompt"], len(row["top"]))) for row in rows]
    check = compare_rankings(pairs)
    if check["mean_difference"] > MOST_DIFFERENCE:
        raise BactrianError(
            f"The written GGUF file computes something else than the trained model: log-probabilities differ by "
            f"{check['mean_difference']:.2f} on average.",
            where=str(path),
            next="The folder model/ is whole; convert it with llama.cpp's convert_hf_to_gguf.py, and report this.",
        )
    return check


def compare_rankings(pairs: Sequence[tuple[Sequence[tuple[int, float]], dict[int, float]]]) -> dict[str, Any]:
    """Compare the expected most likely tokens of each prompt with the computed ones, as log-probabilities.

    ``same_choice`` counts the prompts with the same most likely token.
    An expected first choice that is not among the computed ones counts as a large difference.
    """
    differences = [
        abs(score - ranked[token])
        for expected, ranked in pairs
        for token, score in expected
        if token in ranked
    ]
    missing = sum(expected[0][0] not in ranked for expected, ranked in pairs)
    same = sum(
        expected[0][0] == max(ranked, key=lambda token: ranked[token], default=None)
        for expected, ranked in pairs
    )
    differences += [MOST_DIFFERENCE * 10] * missing
    return {
        "prompts": len(pairs),
        "same_choice": same,
        "mean_difference": sum(differences) / len(differences) if differences else 0.0,
        "largest_difference": max(differences, default=0.0),
    }


async def check_template(base: Path, gguf: Path) -> int | None:
    """Check that ``play`` sends byte for byte what is trained on. Return the number of prompts compared.

    Raises:
        BactrianError: llama.cpp renders or tokenises a prompt differently.
    """
    if find_spec("xllamacpp") is None or not (base / PROMPTS).exists():
        return None
    rows = json.loads((base / PROMPTS).read_bytes())
    async with _serve(gguf) as server:
        for row in rows:
            messages = [Message(message["role"], Text(message["content"])) for message in row["messages"]]
            text = await server.chat(messages)
            tokens = (await server.tokens(text, begins=True)).tolist()
            if tokens != row["tokens"]:
                both = enumerate(zip(tokens, row["tokens"], strict=False), start=1)
                number = next((number for number, (sent, trained) in both if sent != trained), None)
                raise BactrianError(
                    "`play` would send another text than the one that is trained on: "
                    + (f"token {number} differs." if number is not None else "their lengths differ."),
                    where="chat template",
                    next="Use another base model, or one whose GGUF carries the same chat template.",
                )
    return len(rows)
