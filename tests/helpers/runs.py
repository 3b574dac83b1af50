"""Runs for the tests: real files, made of sessions that are written down here."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bactrian.protocol.markers import DONE, read_instruction, read_solution
from bactrian.protocol.pack import load_pack
from bactrian.records.session import Ending, EndingCode, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Sampling, Turn, Usage
from bactrian.store import open_store

ROUND = (
    "Instruction: Name part {n} of the timer.\nInput: None",
    "Solution: Part {n} is the dial “{n}”.\nNext request.",
)
PACK = load_pack("ai-society")
ORIGIN = Provenance(
    prompts=PACK.name,
    prompts_hash=PACK.hash,
    protocol="free",
    models={"user": "openai:one", "assistant": "openai:two"},
    sampling={"user": Sampling(0.2, seed=3), "assistant": Sampling(0.2, max_tokens=99)},
)


def turn(number: int, text: str, role: str = "") -> Turn:
    """A turn as the loop would have kept it."""
    user = number % 2 == 1
    return Turn(
        number=number,
        speaker="user" if user else "assistant",
        role=role or ("Cook" if user else "Programmer"),
        text=Text(text),
        said=(read_instruction if user else read_solution)(text),
        usage=Usage(10, 5, 2),
        seconds=0.5,
        first_token=None,
        model="one" if user else "two",
        finish="stop",
    )


def session(
    name: str = "001_001_001",
    *,
    rounds: int = 2,
    texts: Sequence[str] | None = None,
    code: EndingCode | None = "task_done",
    assistant: str = "Programmer",
    user: str = "Cook",
    task: str = "Build a tea timer",
    **more: object,
) -> Session:
    """A role-play of ``rounds`` rounds, or one that says ``texts``; one that is done says so."""
    if texts is None:
        texts = [text.format(n=n) for n in range(1, rounds + 1) for text in ROUND]
        texts += [DONE] if code == "task_done" else []
    turns = tuple(
        turn(number, text, user if number % 2 else assistant) for number, text in enumerate(texts, start=1)
    )
    speaker = turns[-1].speaker if turns else "user"
    made = Session(
        id=name,
        assistant=Role(assistant),
        user=Role(user),
        task=Task(task, f"{task} for green tea."),
        provenance=ORIGIN,
        turns=turns,
        ending=None if code is None else Ending(code, len(turns), speaker, turns[-1].text if turns else "x"),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def answer(
    name: str = "001_001_001", *, topic: str = "Optics", problem: str = "Why is the sky blue?"
) -> Session:
    """A question and its answer."""
    return replace(
        session(name, texts=[problem, "Because of scattering."], code="answered"),
        assistant=Role("Physicist"),
        user=Role("User"),
        task=Task(problem),
        provenance=replace(ORIGIN, models={"assistant": "openai:two"}, prompts_hash="ab" * 32),
        values={"topic": topic, "sub_topic": f"{topic} of the sky", "problem": problem},
    )


async def make_run(path: Path, sessions: Iterable[Session], *, recipe: str | None = None) -> Path:
    """Write ``sessions`` to a run, as a generation from a recipe of this name would have."""
    async with open_store(path) as store:
        made = list(sessions)
        if recipe is not None:
            await store.freeze({"recipe": {"name": recipe}, "models": {}})
        await gather(*(store.begin(replace(session, turns=(), ending=None)) for session in made))
        await gather(*(store.save_task(session) for session in made))
        await gather(*(store.add_turn(session.id, said) for session in made for said in session.turns))
        await gather(
            *(store.end(session.id, session.ending, session.usage) for session in made if session.ending)
        )
    return path
