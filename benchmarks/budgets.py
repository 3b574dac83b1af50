"""``python -m benchmarks.budgets [SESSIONS]``: how much of a budget is spent on conversations that end.

A server of its own plays conversations whose lengths and texts vary as those of large models do: the AI user finishes
after 4 to 40 messages (log-normal, median 18), and replies have 20 to 2,000 tokens (log-normal). Each budget pays for a
number of conversations of mean cost; 64 may be in flight. Printed are the shares of the budget, and of what was spent,
that are in conversations with an ending. The last row of each kind is a sample, as of AI Society, whose conversations
each need a list of tasks: the means of ten seeds, with a budget of $0.02.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from zlib import crc32

from aiohttp import web
from rich.console import Console
from rich.table import Table

from bactrian.errors import BudgetReached
from bactrian.models.budget import Price, UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.recipes.load import load_recipe
from bactrian.runs.plan import Plan
from bactrian.runs.scheduler import IN_ORDER, Spread
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run
from bactrian.store import open_store

AGENTS = ("user", "assistant", "task_specifier", "task_planner", "lister")
PRICE = Price(0.15, 0.6)
JOBS = 2000
SIZES = (5, 20, 50, 200, 1000)
"""Conversations that the budgets pay for."""
RECIPE = """
name = "budgets"
[[axes]]
name = "idea"
count = {count}
given = [{ideas}]
[role_play]
assistant = "Programmer"
user = "Trader"
idea = "{{{{ idea }}}}"
specify = false
"""


SMALL = 0.02
"""US dollars."""
SEEDS = 10
LISTED = """
name = "listed"
[[axes]]
name = "role"
count = 60
given = [{roles}]
[[axes]]
name = "task"
count = 10
per = ["role"]
ask = "List {{{{ count }}}} tasks for a {{{{ role }}}}."
[role_play]
assistant = "Programmer"
user = "{{{{ role }}}}"
idea = "{{{{ task }}}}"
specify = false
"""


@dataclass(frozen=True, slots=True)
class Script:
    """What makes the conversations of one server."""

    median: float = 18
    """Messages."""
    spread: float = 0.5
    """Of the logarithm of the number of messages."""
    instruction: float = 60
    """Tokens."""
    solution: float = 300

    def write(self, idea: str, turn: int) -> str:
        """Return the reply for a turn of the conversation on ``idea``."""
        chance = random.Random(crc32(idea.encode()))
        length = min(40, max(4, round(self.median * chance.lognormvariate(0, self.spread))))
        chance.seed(crc32(f"{idea} {turn}".encode()))
        if turn % 2 and turn >= length:
            return "<CAMEL_TASK_DONE>"
        usual = self.instruction if turn % 2 else self.solution
        tokens = min(2000, max(20, round(usual * chance.lognormvariate(-0.08, 0.4))))
        words = " ".join(f"{chance.randrange(1 << 20):x}" for _ in range(tokens * 4 // 6))
        return f"Instruction: {words}\nInput: None" if turn % 2 else f"Solution: {words}\nNext request."


def answer(body: Mapping[str, object], script: Script) -> dict[str, object]:
    """Return the completion of one request, with its usage at four bytes a token."""
    messages: Sequence[Mapping[str, str]] = body["messages"]  # type: ignore[assignment]
    if "List 10 tasks" in messages[-1]["content"]:
        role = messages[-1]["content"].partition("Trader ")[2].split()[0].strip(".")
        text = "\n".join(
            f"{number}. Build tool {role}-{number} with a plan, a draft and a careful check"
            for number in range(1, 11)
        )
        return write_completion(messages, text)
    idea = messages[0]["content"].partition("Build tool ")[2].split()[0].strip(".")
    said = sum(message["role"] != "system" for message in messages)
    instructs = "you instruct" in messages[0]["content"]
    return write_completion(messages, script.write(idea, said if instructs else said + 1))


def write_completion(messages: Sequence[Mapping[str, str]], text: str) -> dict[str, object]:
    """Return the reply ``text`` with its usage."""
    size = sum(len(json.dumps(message["content"])) for message in messages) // 4
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": size, "completion_tokens": len(text) // 4 + 1}
    return {"id": "b", "model": "m", "choices": [choice], "usage": usage}


async def serve(script: Script) -> tuple[web.AppRunner, str]:
    """Start the server; return it and its address."""

    async def reply(request: web.Request) -> web.Response:
        body = await request.json()
        await asyncio.sleep(0.002)
        return web.json_response(answer(body, script))

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", reply)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a budget."""

    budget: float
    spent: float
    in_ended: float
    ended: int
    left_open: int


async def spend(
    url: str, budget: float | None, limit: int, folder: Path, window: int = 64, seed: int | None = None
) -> Outcome:
    """Generate with a budget, and return what became of it; with a ``seed``, a sample with lists."""
    recipe = folder / "budgets.toml"
    if seed is None:
        ideas = ", ".join(f'"Build tool {number}"' for number in range(JOBS))
        recipe.write_text(RECIPE.format(count=JOBS, ideas=ideas))
    else:
        recipe.write_text(LISTED.format(roles=", ".join(f'"Trader {number}"' for number in range(60))))
    run = folder / f"{budget}.db"
    meter = UsageMeter(None, budget, {"openai:m": PRICE})
    plan = Plan(load_recipe(str(recipe)), dict.fromkeys(AGENTS, "openai:m"))
    spread = IN_ORDER if seed is None else Spread(seed)
    order = RunOrder(plan, run, ModelOptions(url), meter, RunLimits(concurrency=window), limit, spread=spread)
    try:
        async with prepare_run(order) as work:
            await work.run()
    except BudgetReached:
        pass
    in_ended, ended, left_open = 0.0, 0, 0
    async with open_store(run, read_only=True) as store:
        async for session in store.sessions():
            if session.ending is None:
                left_open += 1
            else:
                ended += 1
                in_ended += PRICE.cost(session.usage)
    run.unlink()
    return Outcome(budget or meter.usd, meter.usd, in_ended, ended, left_open)


SCRIPTS = {
    "as assumed": Script(),
    "long, large texts": Script(30, 0.4, 120, 600),
    "short, small texts": Script(8, 0.5, 30, 80),
}


async def main() -> None:
    """Measure and print the table."""
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES)
    table = Table("conversations", "pays for", "budget", "spent", "ended", "open", "of spent", "of budget")
    for name, script in SCRIPTS.items():
        runner, url = await serve(script)
        with tempfile.TemporaryDirectory() as folder:
            whole = await spend(url, None, 100, Path(folder))
            mean = whole.spent / 100
            for size in sizes:
                spending = await spend(url, size * mean, JOBS, Path(folder))
                table.add_row(
                    name,
                    str(size),
                    f"${spending.budget:.3f}",
                    f"${spending.spent:.3f}",
                    str(spending.ended),
                    str(spending.left_open),
                    f"{spending.in_ended / max(spending.spent, 1e-9):.0%}",
                    f"{spending.in_ended / spending.budget:.0%}",
                )
            small = [await spend(url, SMALL, 60, Path(folder), seed=seed) for seed in range(SEEDS)]
            shares = [of.in_ended / SMALL for of in small]
            table.add_row(
                name,
                "with lists",
                f"${SMALL:.3f}",
                f"${fmean(of.spent for of in small):.4f}",
                f"{fmean(of.ended for of in small):.1f}",
                f"{fmean(of.left_open for of in small):.1f}",
                f"{fmean(of.in_ended / max(of.spent, 1e-9) for of in small):.0%}",
                f"{fmean(shares):.0%} ({min(shares):.0%} at least)",
            )
        await runner.cleanup()
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
