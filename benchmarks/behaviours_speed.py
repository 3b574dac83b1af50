"""``python -m benchmarks.behaviours_speed [SESSIONS]``: CPU time of all detectors together, for each message."""

from __future__ import annotations

import gc
import sys
import time
from random import Random

from bactrian.analyze.behaviours import DETECTORS, find_behaviours
from bactrian.records.session import Provenance, Session
from benchmarks.labelled import conversation

_ROUNDS = 20
_SENTENCES = (
    "The first step is to collect the prices of the last ten years and to store them in one table.",
    (
        "You can reduce the risk by spreading the capital over "
        "several sectors and by limiting each position to two percent."
    ),
    "A moving average smooths the series, but it reacts late when the trend turns.",
    "If the short average crosses above the long one, the bot buys; if it crosses below, the bot sells.",
    "We should also consider the cost of every trade, since small gains are eaten up by fees.",
    "To test the strategy, split the data into two parts and never look at the second before you are finished.",
    "I will use the adjusted closing price because it already takes dividends into account.",
    "The results show a yearly return of 7.4 % with a largest loss of 12 % between March and June.",
    "This approach works well for liquid shares, while thinly traded ones need wider limits.",
    "For example, the order may be split into five pieces that are sent one minute apart.",
    "Please note that past performance says little about the future, so keep some money aside.",
    "The function reads the file, removes the rows without a price and returns the rest as a list.",
    "Another option is to let the volatility decide how large each position may become.",
    "That makes the portfolio calmer in bad weeks, at the price of some profit in good ones.",
    "It is important to write down every decision, since memory is kind to its owner.",
    "Your portfolio will thank you for a plan that you can follow on a rainy Monday, too.",
)
_CODE = """```python
import pandas as pd

def signal(prices, short=20, long=50):
    fast = prices.rolling(short).mean()
    return fast > prices.rolling(long).mean()
```"""


def sessions(count: int) -> list[Session]:
    """Role plays of 40 messages of 300 to 900 characters, one solution in four with code."""
    draw = Random(7)
    origin = Provenance(prompts="code", prompts_hash="", protocol="free", needs_code=True)
    made: list[Session] = []
    for _ in range(count):
        texts: list[str] = []
        for _ in range(_ROUNDS):
            texts.append(f"Instruction: {_text(draw, 3)}\nInput: {draw.choice(('None', _text(draw, 2)))}")
            code = f"\n\n{_CODE}" if draw.random() < 0.25 else ""
            texts.append(f"Solution: {_text(draw, 8)}{code}\n\nNext request.")
        made.append(conversation(*texts, provenance=origin))
    return made


def _text(draw: Random, sentences: int) -> str:
    # A number of its own in each sentence, so that no turn is a copy of another.
    return " ".join(
        draw.choice(_SENTENCES).replace(" the ", f" the {draw.choice('ABCDEFGH')}{draw.randrange(100)} ", 1)
        for _ in range(draw.randint(max(2, sentences - 3), sentences + 2))
    )


def main() -> None:
    """Print milliseconds for each message: all together, then each detector with the reading that it causes."""
    made = sessions(int(sys.argv[1]) if len(sys.argv) > 1 else 250)
    messages = sum(len(session.turns) for session in made)
    length = sum(len(turn.text) for session in made for turn in session.turns) / messages
    # As in the processes of an analysis, which hold no sessions but the one that they read.
    gc.freeze()
    gc.set_threshold(50_000)
    begun = time.process_time()
    for session in made:
        find_behaviours(session, custom=())
    taken = time.process_time() - begun
    print(
        f"{messages:,} messages of {length:.0f} characters on average: {1000 * taken / messages:.3f} ms each"
    )
    for behaviour in DETECTORS:
        begun = time.process_time()
        for session in made:
            find_behaviours(session, [behaviour], custom=())
        print(f"  {behaviour:20} {1000 * (time.process_time() - begun) / messages:.3f} ms")


if __name__ == "__main__":
    main()
