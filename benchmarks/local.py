"""``python -m benchmarks.local [RUNS]``: the built-in model in conversations, against its slots kept busy by hand.

A run plays conversations as ``play --run`` does, each turn in SQLite before the next request, and notes what reaches
llama.cpp. By hand, a fresh server gets the very same token ids, slots and settings, with as many calls in flight as
there were conversations and nothing between them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bactrian.models.local.llama_server import Generated, LlamaServer, start_server
from bactrian.models.local.local_model import WINDOW, LocalModel
from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from bactrian.records.session import Role, Session
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import RolePlaySetup, complete_setup, new_session
from bactrian.roleplay.start import persist_events
from bactrian.store import RunStore, open_store

CASES = ((4, 2), (8, 4))
"""Slots, and conversations at once, of two agents each: every slot is in use."""
MESSAGES = 3
IDEAS = ("Plan a garden", "Write a play", "Repair a bicycle", "Cook for ten")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to llama.cpp and when it ran, in seconds."""

    prompt: array[int]
    slot: int
    settings: Mapping[str, object]
    completion: int
    begun: float
    ended: float


@contextmanager
def noted() -> Generator[list[Call]]:
    """Note each call that any server answers meanwhile."""
    calls: list[Call] = []
    generate = LlamaServer.generate

    async def noting(
        self: LlamaServer,
        prompt: array[int],
        slot: int,
        settings: Mapping[str, object],
        on_text: Callable[[str], None] | None,
    ) -> Generated:
        begun = time.perf_counter()
        result = await generate(self, prompt, slot, settings, on_text)
        calls.append(Call(prompt, slot, settings, result.completion, begun, time.perf_counter()))
        return result

    LlamaServer.generate = noting
    try:
        yield calls
    finally:
        LlamaServer.generate = generate


def tokens_per_second(calls: list[Call]) -> float:
    """Tokens generated, from the first call's beginning to the last one's end: loading is not in it."""
    begun, ended = min(call.begun for call in calls), max(call.ended for call in calls)
    return sum(call.completion for call in calls) / (ended - begun)


async def converse(model: LocalModel, idea: str, store: RunStore) -> None:
    """Play one conversation with everything on."""
    agents = ("user", "assistant", "task_specifier", "task_planner")
    setup = RolePlaySetup(
        idea=idea,
        assistant=Role("Expert"),
        user=Role("Beginner"),
        models=dict.fromkeys(agents, "local"),
        max_messages=MESSAGES,
        seed=1,
    )
    setup, pack = complete_setup(setup, specify=False, prompts=None)
    session = await store.begin(new_session(setup, pack))
    models = {"user": model, "assistant": model}
    async for _ in persist_events(
        play_session(build_role_play(session, pack, models, rules=setup.rules())), session.id, store
    ):
        pass


def computed_and_new(session: Session) -> tuple[int, int]:
    """Prompt tokens that llama.cpp computed in a session, and those that were new to the agent that spoke."""
    known: defaultdict[str, int] = defaultdict(int)
    computed = new = 0
    for turn in session.turns:
        computed += turn.usage.prompt - turn.usage.cached
        new += turn.usage.prompt - known[turn.speaker]
        # The token that ends a reply is said, and not known: it comes back as part of the next prompt.
        known[turn.speaker] = turn.usage.prompt + turn.usage.completion - (turn.finish == "stop")
    return computed, new


async def ours(slots: int, conversations: int) -> tuple[list[Call], float]:
    """Our path. Gives its calls, and the computed prompt tokens for each new one."""
    with tempfile.TemporaryDirectory() as folder, noted() as calls:
        run = Path(folder) / "run.db"
        model = LocalModel(slots=slots)
        try:
            async with open_store(run) as store:
                await asyncio.gather(*(converse(model, idea, store) for idea in IDEAS[:conversations]))
        finally:
            await model.close()
        async with open_store(run, read_only=True) as store:
            counts = [computed_and_new(session) async for session in store.sessions()]
    return calls, sum(computed for computed, _ in counts) / sum(new for _, new in counts)


@asynccontextmanager
async def fresh(slots: int) -> AsyncGenerator[LlamaServer]:
    """A server that has computed nothing yet."""
    llama = await start_server(fetch_weights(BUILT_IN, find_cache_folder()), slots=slots, window=WINDOW)
    try:
        yield llama
    finally:
        await llama.close()


async def by_hand(slots: int, conversations: int, calls: list[Call]) -> float:
    """The same calls, in each slot in the same order, with nothing between them. Gives tokens per second."""
    room = asyncio.Semaphore(conversations)

    async def keep_busy(llama: LlamaServer, slot: int) -> None:
        for call in sorted((call for call in calls if call.slot == slot), key=lambda call: call.begun):
            async with room:
                await llama.generate(call.prompt, slot, call.settings, None)

    async with fresh(slots) as llama:
        with noted() as answered:
            await asyncio.gather(*(keep_busy(llama, slot) for slot in range(slots)))
    return tokens_per_second(answered)


async def measure(runs: int) -> Table:
    """Both ways in turn, ``runs`` times for each case."""
    table = Table(
        *("slots", "conversations", "computed / new", "by hand, tokens/s", "bactrian, tokens/s", "ratio"),
        title=f"Medians of {runs} alternating runs",
    )
    for slots, conversations in CASES:
        shares: list[float] = []
        hands: list[float] = []
        speeds: list[float] = []
        for _ in range(runs):
            calls, share = await ours(slots, conversations)
            shares.append(share)
            speeds.append(tokens_per_second(calls))
            hands.append(await by_hand(slots, conversations, calls))
        ratio = median(our / hand for our, hand in zip(speeds, hands, strict=True))
        figures = (median(shares), median(hands), median(speeds), ratio)
        table.add_row(str(slots), str(conversations), *(f"{figure:.2f}" for figure in figures))
    return table


def main() -> None:
    """Measure and print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    Console().print(asyncio.run(measure(runs)))


if __name__ == "__main__":
    main()
