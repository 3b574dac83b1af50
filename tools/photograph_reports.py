"""Makes two runs with scripted models and photographs their reports: ``python tools/photograph_reports.py``.

It needs the extras ``analysis`` and ``dev`` (Playwright) and a Chromium. With ``--all FOLDER`` it writes the pages and
pictures of every width and theme to a folder, to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import bactrian as bt

IMAGES = Path(__file__).parent.parent / "docs/images"
ASSISTANTS = ["Python Programmer", "Gardener", "Nurse", "Chemist"]
USERS = ["Stock Trader", "School Teacher", "Event Manager", "Head Chef", "Novelist"]
TASKS = [
    "Plan a small herb garden for a sunny balcony",
    "Write a guide for new colleagues",
    "Sort the recipes of a year",
]
STEPS = (
    "Draw up a list of what is needed",
    "Write the first part",
    "Check the order of the steps",
    "Shorten the text",
)
WORK = (
    "Start with basil, thyme and rosemary: they like the same dry, sunny soil. Water them every second day.",
    "1. Read the old version.\n2. Ask two colleagues what they missed in their first week.\n3. Put both into one list.",
    "Here it is:\n```python\ndef sort_by_month(recipes):\n    return sorted(recipes, key=lambda one: one.month)\n```",
    "The second step needs the result of the third, so they change places. Nothing else depends on the fifth.",
)


def write_script(number: int, trouble: float) -> dict[str, list[str]]:
    """Return what both agents say in a conversation; ``trouble`` is the share of conversations that fail somehow."""
    dice = random.Random(number)
    rounds = dice.randint(2, 6)
    user = [f"Instruction: {STEPS[n % 4]} (part {n + 1}).\nInput: None" for n in range(rounds)]
    assistant = [
        f"Solution: {WORK[(number + n) % 4]}\nPart {n + 1} is done.\nNext request." for n in range(rounds)
    ]
    kind = dice.choice(("flip", "flake", "repeat", "loop", "refusal")) if dice.random() < trouble else "good"
    if kind == "flip":
        assistant[-1] = "Instruction: Write the second part yourself and show it to me.\nInput: None"
    elif kind == "flake":
        assistant[-1] = (
            "Solution: Sure, I will get started on that right away and let you know.\nNext request."
        )
    elif kind == "repeat":
        assistant[-1] = f"Solution: {STEPS[(rounds - 1) % 4]} (part {rounds}).\nNext request."
    elif kind == "refusal":
        assistant[-1] = (
            "Solution: I'm sorry, but as an AI language model I cannot help with that.\nNext request."
        )
    if kind == "loop":
        user += ["Thank you so much!", "Thanks again, goodbye!", "Goodbye!", "Bye!"]
        assistant += ["You are welcome!", "Goodbye, take care!", "Goodbye!", "Bye!"]
    return {"user": [*user, "<CAMEL_TASK_DONE>"], "assistant": [*assistant, "Goodbye."]}


def find_number(text: str) -> int:
    """Return the number that the specified task ends with."""
    return int(re.findall(r"plan (\d+)", text)[0])


def make_run(
    path: Path,
    trouble: float,
    tasks: Sequence[str] = TASKS,
    *,
    delay: float = 0.0,
    budget: float | None = None,
    on_progress: Callable[[Any], object] | None = None,
) -> bt.Run:
    """Play twenty conversations on each task into the run at ``path``: each assistant with each user.

    A reply takes ``delay`` seconds; ``on_progress`` receives each snapshot of the progress.
    """

    def specify(messages: Sequence[dict[str, str]]) -> str:
        idea = next(task for task in tasks if task in messages[-1]["content"])
        return f"{idea}, step by step, as plan {zlib.crc32(messages[-1]['content'].encode()) % 1000}."

    def speak(agent: str) -> Callable[[Sequence[dict[str, str]]], Awaitable[str]]:
        async def reply(messages: Sequence[dict[str, str]]) -> str:
            await asyncio.sleep(delay)
            lines = write_script(find_number(messages[0]["content"]), trouble)[agent]
            said = sum(message["role"] == "assistant" for message in messages)
            return lines[min(said, len(lines) - 1)]

        reply.__name__ = f"scripted-{agent}"  # the name of the model in reports
        return reply

    specify.__name__ = "scripted-task"
    recipe = bt.recipe("ai-society", assistant_role=ASSISTANTS, user_role=USERS, task=list(tasks))
    models = {"task": specify, "user": speak("user"), "assistant": speak("assistant")}
    return bt.generate(
        recipe,
        run=path,
        models=models,
        seed=1,
        concurrency=8,
        price="0.15/0.60",
        budget=budget,
        on_progress=on_progress,
    )


def photograph(
    browser: Browser, page: Path, to: Path, *, width: int = 1280, whole: bool = True, **options: Any
) -> None:
    """Write a picture of a page."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    view = context.new_page()
    view.goto(page.as_uri())
    view.screenshot(path=to, full_page=whole)
    context.close()


def main() -> None:
    """Make the pictures of docs/analyze.md and docs/gallery.md, or all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write all pages and pictures there")
    folder: Path | None = parser.parse_args().all
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as tool:
        work = folder or Path(scratch)
        work.mkdir(exist_ok=True)
        runs = [make_run(work / f"{name}.db", trouble) for name, trouble in (("small", 0.6), ("large", 0.25))]
        runs[0].report().save(work / "report.html", overwrite=True)
        runs[0].compare(runs[1]).save(work / "comparison.html", overwrite=True)
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph(browser, work / "report.html", IMAGES / "report-head.png", whole=False)
        photograph(browser, work / "comparison.html", IMAGES / "comparison.png", whole=False)
        if folder is not None:
            for name in ("report", "comparison"):
                page = folder / f"{name}.html"
                photograph(browser, page, folder / f"{name}-desk.png")
                photograph(browser, page, folder / f"{name}-dark.png", color_scheme="dark")
                photograph(browser, page, folder / f"{name}-phone.png", width=390, device_scale_factor=2)
                view = browser.new_page()
                view.goto(page.as_uri())
                view.pdf(path=folder / f"{name}.pdf", format="A4")
        browser.close()


if __name__ == "__main__":
    main()
