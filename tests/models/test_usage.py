"""Counts of tokens that cannot be right are not taken."""

from __future__ import annotations

from typing import Any

import pytest

from bactrian.models.model import ReplyChoice
from bactrian.models.replies import UsageReader
from bactrian.records.text import Text


def add_up(reported: dict[str, Any], calls: int) -> tuple[int, int]:
    """Tokens that are counted for ``calls`` requests of 2,000 bytes with replies of 400."""
    reader = UsageReader()
    choices = [ReplyChoice(Text("x" * 400))]
    usages = [reader.find(reported, choices, 2000) for _ in range(calls)]
    return sum(usage.prompt for usage in usages), sum(usage.completion for usage in usages)


def test_counts_that_are_too_small_in_each_call_are_found_out_by_their_sum() -> None:
    prompt, completion = add_up({"prompt_tokens": 1, "completion_tokens": 1}, 1000)
    assert prompt >= 0.95 * 1000 * 2000 / 4
    assert completion >= 0.95 * 1000 * 400 / 4


def test_the_most_that_a_tokenizer_can_do_is_believed() -> None:
    assert add_up({"prompt_tokens": 250, "completion_tokens": 50}, 1000) == (250_000, 50_000)


@pytest.mark.parametrize("cached", [251, 10_000, -1, "9"])
def test_more_cached_tokens_than_there_are_make_nothing_cheaper(cached: object) -> None:
    details = {"cached_tokens": cached}
    reported = {"prompt_tokens": 250, "completion_tokens": 50, "prompt_tokens_details": details}
    assert UsageReader().find(reported, [ReplyChoice(Text("x" * 400))], 2000).cached == 0
