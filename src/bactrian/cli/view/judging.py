"""Asks a judge about findings, and shows the progress."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.status import Status

from bactrian.analyze.judge import (
    ANSWER_TOKENS,
    QUESTION_TOKENS,
    SAMPLING,
    TURNS_SHOWN,
    Key,
    confirm_findings,
    list_unasked,
)
from bactrian.cli.terminal.console import open_progress
from bactrian.models.budget import Budget, Price, UsageMeter
from bactrian.models.limits import ConcurrencyLimit
from bactrian.models.open import ModelOptions, open_model
from bactrian.models.retry import RefusalCheck, Retry
from bactrian.options import SamplingSpec
from bactrian.records.run import Confirmation, Finding
from bactrian.records.text import write_count, write_dollars
from bactrian.records.turn import Usage
from bactrian.store import open_store


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The judge and its limits."""

    name: str
    access: ModelOptions
    meter: UsageMeter
    concurrency: int
    parameters: SamplingSpec
    """Sampling parameters that the user gives."""

    @property
    def title(self) -> str:
        """The name under which its answers are stored: other parameters make another judge."""
        given = self.parameters.model_dump(mode="json", exclude_none=True)
        return " ".join([self.name, *(f"{name}={json.dumps(value)}" for name, value in given.items())])


async def ask_judge(
    run_file: Path, findings: Sequence[Finding], judge: JudgeOptions, turn_tokens: float
) -> dict[Key, Confirmation]:
    """Ask ``judge`` about the findings that it has not answered before, and return all its answers.

    ``turn_tokens``, the mean length of a turn, serves to estimate the cost in advance.

    Raises:
        BudgetReached: the next answer could exceed the limit. All answers so far are stored.
        ModelError: the judge does not answer.
        StoreError: another process writes the run.
    """

    said = open_progress()
    model = Retry(
        ConcurrencyLimit(
            RefusalCheck(Budget(open_model(judge.name, judge.access), judge.meter)), judge.concurrency
        )
    )
    try:
        async with open_store(run_file) as store:
            before = await store.confirmations(judge.title)
            judge.meter.used = sum((one.usage for one in before), Usage())
            price = judge.meter.prices.get(judge.name)
            judge.meter.usd = price.cost(judge.meter.used) if price else 0.0
            left = list_unasked(findings, before)
            said.say(_forecast(left, len(before), turn_tokens, judge.name, price))
            with Status("Asking", console=said) as shown:
                done = 0

                def tell(_: Confirmation) -> None:
                    nonlocal done
                    done += 1
                    shown.update(f"{done:,} of {left:,} answered, {judge.meter.used.total:,} tokens")

                return await confirm_findings(
                    store,
                    findings,
                    model,
                    judge.title,
                    sampling=judge.parameters.apply(SAMPLING),
                    at_once=judge.concurrency,
                    on_answer=tell,
                )
    finally:
        await model.close()


def _forecast(left: int, there: int, turn_tokens: float, name: str, price: Price | None) -> str:
    used = Usage(round(left * (QUESTION_TOKENS + TURNS_SHOWN * turn_tokens)), left * ANSWER_TOKENS)
    cost = "" if price is None else f", {write_dollars(price.cost(used))}"
    return (
        f"{name} is asked {write_count(left, 'question')} (about {used.total:,} tokens{cost});"
        f" {there:,} answers are stored already."
    )
