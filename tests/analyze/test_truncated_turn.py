from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

ASKED = "Instruction: Explain the market.\nInput: None"
PROSE = "Solution: The market opens at nine. Prices move fast in the first hour. After that"
EXAMPLES = {
    "a word that needs another": "Solution: You can lower the risk of the portfolio by selling part of the",
    "a comma": "Solution: The three measures are the volatility of the returns, the drawdown,",
    "an open bracket": "Solution: The most common measure of the risk is the volatility (",
    "an open block of code": (
        "Solution: Use this function to read the file of prices:\n```python\ndef read(path):\n    return"
    ),
    "a sentence without an end": f"{PROSE} the volume falls until noon",
    "a number without its item": (
        "Solution: Follow these steps to begin with the bot:\n1. Open an account.\n2. Fund it.\n3."
    ),
    "in French": "Solution: Vous pouvez réduire le risque du portefeuille en vendant une partie de la",
}
NEAR_MISSES = {
    "a full stop": f"{PROSE} the volume falls.",
    "the next request": "Solution: Sell a part of the position, then wait, and\nNext request.",
    "a list without full stops": (
        "Solution: Pack these for the trip to the trading floor:\n- badge\n- notebook\n- comfortable shoes"
    ),
    "a title": "Solution: A Night on the Trading Floor: How Twelve Brokers Kept the Exchange Alive",
    "a signature": (
        "Solution: Dear Ms Lind, thank you for the order. It is on "
        "its way to you.\n\nKind regards,\nThe Bakery"
    ),
    "a verse": (
        "Solution: The gutter hums a silver tune,\nand puddles hold "
        "a broken moon,\nwhile all the town is listening in"
    ),
    "a block of code": (
        "Solution: Use this function to read the file of prices:\n```python\nprices = read(path)\n```"
    ),
    "a short answer": "Solution: the",
    "a link": "Solution: The documentation is long. You will find all of it at https://example.org/docs/orders",
    "a question mark in Chinese": "Solution: " + "市场在九点开盘，价格变动很快，" * 5 + "你还想知道什么？",
}


@pytest.mark.parametrize("answer", EXAMPLES.values(), ids=EXAMPLES)
def test_a_turn_that_breaks_off_is_found(answer: str) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(ASKED, answer), ["truncated_turn"])] == [
        2
    ]


@pytest.mark.parametrize("answer", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_a_turn_that_is_finished_is_not(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer), ["truncated_turn"]) == ()


def test_the_endpoints_word_is_certain() -> None:
    (first, second) = find_behaviours(
        conversation("Go.", "A whole sentence.", finish="length"), ["truncated_turn"]
    )
    assert first.confidence == second.confidence == 1.0
