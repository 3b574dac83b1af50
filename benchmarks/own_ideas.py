"""``python -m benchmarks.own_ideas [SEEDS] [--save FOLDER]``: does the built-in model stay with an idea of one's own?

Thirty everyday ideas, each with every seed, are played as ``play IDEA --max-messages 8`` plays them: once with the
defaults of version 0.1 and once with today's. No person reads the conversations; the figures are counted from words
and by the detectors of ``analyze``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bactrian.analyze.behaviours import find_behaviours
from bactrian.api.conversation import SessionCollector
from bactrian.models.local.local_model import LocalModel
from bactrian.protocol.pack import load_pack
from bactrian.records.run import Behaviour
from bactrian.records.session import Role, Session
from bactrian.roleplay.role_play import run_role_play
from bactrian.roleplay.setup import ROLES, SMALL_PACK, RolePlaySetup, new_session
from bactrian.roleplay.start import OpenSession
from bactrian.stats.intervals import Proportion

MESSAGES = 8
IDEAS = (
    "Plan a vegetable garden for a small balcony",
    "Write a lullaby about the sea",
    "Organise a birthday party for a five-year-old",
    "Prepare for a half marathon in twelve weeks",
    "Repair a dripping kitchen tap",
    "Teach my grandmother to use video calls",
    "Design a poster for a school concert",
    "Cook a dinner for eight guests, two of them vegan",
    "Learn the first hundred words of Italian",
    "Pack for a week of hiking in the mountains",
    "Choose a dog for a family in a flat",
    "Write a speech for my sister's wedding",
    "Save money on electricity at home",
    "Explain photosynthesis to ten-year-olds",
    "Start a book club in our village",
    "Paint the walls of a nursery",
    "Write a short story about a lighthouse keeper",
    "Plan a weekend in Lisbon",
    "Train a puppy to walk on a lead",
    "Make a costume of a dragon",
    "Bake bread without yeast",
    "Prepare a job interview as a nurse",
    "Build a bird house from old planks",
    "Reduce waste in our school canteen",
    "Write a poem about autumn leaves",
    "Set up an aquarium with goldfish",
    "Plan a neighbourhood clean-up day",
    "Invent a board game about pirates",
    "Sew a simple cotton bag",
    "Grow mushrooms in the cellar",
)
REPETITIONS: tuple[Behaviour, ...] = ("repeats_instruction", "infinite_loop", "near_duplicate")
_FOREIGN = frozenset(
    """algorithm algorithms code database dataset datasets function functions market markets programmer programmers
    python stock stocks trader traders trading user users""".split()
)
"""Words of programs and trade, which no idea above asks for."""
_SMALL_WORDS = frozenset(
    """a about an and as at by first for from in make my of on our plan short simple the to two up use week without
    write""".split()
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """How ``play IDEA`` on the built-in model fills in what was not said."""

    name: str
    assistant: str
    user: str
    pack: str
    specify: bool


BEFORE = Defaults("0.1", "Python Programmer", "Stock Trader", "ai-society-small", True)
NOW = Defaults("now", *ROLES, SMALL_PACK, False)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was counted in one conversation."""

    on_subject: bool
    """Each half of the assistant's turns has at least one turn with a word of the idea."""
    foreign: bool
    """Half of the assistant's turns or more name programs or trade."""
    repeats: bool
    """A detector of repetition found something in a turn, or the ending is ``repeat_loop``."""
    overlap: float
    """Share of the words of a solution that one earlier solution has, too; the mean of all solutions but the first."""


def stem(word: str) -> str:
    """Return the first five letters in lower case: enough to match plurals and tenses."""
    return word.lower()[:5]


def list_stems(text: str) -> set[str]:
    """Return the stems of the words of ``text`` that say what it is about."""
    words = re.findall(r"[^\W\d_]{3,}", text)
    return {stem(word) for word in words if word.lower() not in _SMALL_WORDS}


def measure_session(session: Session) -> Measured:
    """Count what is measured in ``session``."""
    about = list_stems(session.task.original)
    turns = [list_stems(turn.text) for turn in session.turns]
    solutions = [turn for turn in session.turns if turn.speaker == "assistant"]
    foreign = sum(
        any(word in _FOREIGN for word in re.findall(r"\w+", turn.text.lower())) for turn in solutions
    )
    assert session.ending is not None
    return Measured(
        on_subject=sum(bool(turn & about) for turn in turns) >= 0.75 * len(turns),
        foreign=foreign >= 0.5 * len(solutions),
        repeats=session.ending.code == "repeat_loop"
        or bool(find_behaviours(session, REPETITIONS, custom=())),
        overlap=measure_overlap([list_stems(turn.text) for turn in solutions]),
    )


def measure_overlap(solutions: Sequence[set[str]]) -> float:
    """Return how much of a solution the nearest earlier one says, too, on average; 0 for a single solution."""
    shares = [
        max(len(own & earlier) / max(1, len(own)) for earlier in solutions[:number])
        for number, own in enumerate(solutions)
        if number
    ]
    return sum(shares) / max(1, len(shares))


async def converse(model: LocalModel, idea: str, seed: int, defaults: Defaults) -> Session:
    """Play one conversation with the defaults."""
    agents = ("user", "assistant", "task_specifier", "task_planner")
    setup = RolePlaySetup(
        idea=idea,
        assistant=Role(defaults.assistant),
        user=Role(defaults.user),
        models=dict.fromkeys(agents, "local"),
        specify=defaults.specify,
        max_messages=MESSAGES,
        seed=seed,
    )
    pack = load_pack(defaults.pack)
    session = new_session(setup, pack)
    session = replace(session, id=f"{session.id}-{seed}")
    events = await run_role_play(
        OpenSession(session, dict.fromkeys(agents, model), {}), pack, rules=setup.rules()
    )
    return await SessionCollector().collect(events)


async def converse_all(
    defaults: Defaults, ideas: Sequence[str], seeds: int, folder: Path | None
) -> list[Session]:
    """Play every idea with every seed, six conversations at a time."""
    model = LocalModel(slots=14)
    room = asyncio.Semaphore(6)

    async def play(idea: str, seed: int) -> Session:
        async with room:
            session = await converse(model, idea, seed, defaults)
        if folder is not None:
            save(session, folder / f"{defaults.name}.jsonl", seed)
        return session

    try:
        wanted = (play(idea, seed) for seed in range(1, seeds + 1) for idea in ideas)
        return await asyncio.gather(*wanted)
    finally:
        await model.close()


def save(session: Session, path: Path, seed: int) -> None:
    """Append the conversation to ``path`` as one line of JSON."""
    turns = [{"speaker": turn.speaker, "text": str(turn.text)} for turn in session.turns]
    told = {
        "id": session.id,
        "idea": session.task.original,
        "task": session.task.text,
        "seed": seed,
        "turns": turns,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told, ensure_ascii=False) + "\n")


def make_table(measured: Sequence[tuple[Defaults, Sequence[Measured]]]) -> Table:
    """Return shares of the conversations with their 95 % intervals."""
    table = Table(
        *(
            "defaults",
            "conversations",
            "on their subject",
            "of programs or trade",
            "with repetitions",
            "words said before",
        )
    )
    for defaults, all_measured in measured:
        shares = [
            Proportion(sum(getattr(conversation, name) for conversation in all_measured), len(all_measured))
            for name in ("on_subject", "foreign", "repeats")
        ]
        ends = ("" if of.interval is None else " ({:.0%} to {:.0%})".format(*of.interval) for of in shares)
        cells = (f"{share.rate:.0%}{end}" for share, end in zip(shares, ends, strict=True))
        overlap = sum(conversation.overlap for conversation in all_measured) / max(1, len(all_measured))
        table.add_row(defaults.name, str(len(all_measured)), *cells, f"{overlap:.0%}")
    return table


def main() -> None:
    """Measure both defaults and print the table."""
    parser = argparse.ArgumentParser(description="The built-in model with ideas of one's own.")
    parser.add_argument("seeds", type=int, nargs="?", default=3)
    parser.add_argument("--ideas", type=int, default=len(IDEAS), help="Use only the first ideas.")
    parser.add_argument("--save", type=Path, help="Folder for the conversations, as JSON lines.")
    parser.add_argument("--only", choices=("0.1", "now"), help="Measure one of the two.")
    given = parser.parse_args()
    measured: list[tuple[Defaults, list[Measured]]] = []
    for defaults in (BEFORE, NOW):
        if given.only in (None, defaults.name):
            sessions = asyncio.run(converse_all(defaults, IDEAS[: given.ideas], given.seeds, given.save))
            measured.append((defaults, [measure_session(session) for session in sessions]))
    Console().print(make_table(measured))


if __name__ == "__main__":
    main()
