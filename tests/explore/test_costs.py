"""The page of a conversation tells what its turns cost as ``bactrian status`` does, and shows proposals as messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bactrian.records.run import Command
from bactrian.runs.spending import read_spending
from bactrian.store import open_store
from tests.helpers.browser import needs_chromium
from tests.helpers.explorer import explore, run_apart
from tests.helpers.runs import make_run, session

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_the_costs_of_turns_add_up_to_that_of_the_conversation_after_another_price(tmp_path: Path) -> None:
    made = session("tea", rounds=2)
    names = made.provenance.models.values()

    async def write() -> float | None:
        async with open_store(tmp_path / "run.db") as store:
            for price, turns in ((2000, made.turns[:2]), (10_000, made.turns[2:])):
                prices = {name: [price, price] for name in names}
                await store.add_command(Command.begin("play", {"prices": prices}, "tea"))
                if price == 2000:
                    await store.begin(replace(made, turns=(), ending=None))
                for turn in turns:
                    await store.add_turn("tea", turn)
            return (await read_spending(store)).usd

    usd = run_apart(write())
    assert usd is not None
    with explore(tmp_path, "run.db") as explorer:
        page = explorer.get("/c/run/tea").text
    head, *turns = re.findall(r"· \$([\d.]+)", page)
    assert len(turns) == len(made.turns)
    assert (float(head), sum(map(float, turns))) == (pytest.approx(usd), pytest.approx(usd))
    assert len(set(turns)) == 2


@needs_chromium
def test_while_it_is_played_the_head_tells_what_the_messages_below_do(
    tmp_path: Path, chromium: Browser
) -> None:
    proposals = [f"Instruction: Name a **{thing}**.\nInput: None" for thing in ("tea", "cup")]
    answers = [{"text": f"Solution: Part {n}.\nNext request.", "delay": 0.1} for n in range(3)]
    script = {
        "user": [proposals, proposals, proposals],
        "assistant": [answers[:1]],
        "critic": ["Choice: 1\nx"],
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    run_apart(make_run(tmp_path / "run.db", [session("first")]))
    model = f"scripted:{tmp_path}/script.json"
    terms = ("--price", "1000/1000")
    with explore(tmp_path, "run.db", "--edit", "--model", model, *terms, sessions=1) as explorer:
        page = chromium.new_context(reduced_motion="reduce").new_page()
        page.goto(explorer.link("/play"))
        form = page.get_by_role("form", name="Two roles")
        form.get_by_label("Task specifier").select_option("no")
        form.get_by_label("Proposals", exact=True).fill("2")
        form.get_by_label("the critic", exact=True).check()
        form.get_by_role("button", name="Begin").click()
        # Proposals are read as messages are.
        expect(page.locator("#proposals strong").nth(1)).to_have_text("cup")
        page.get_by_role("button", name="Choose 2").click()
        turn, told = page.locator("#turn-1"), page.locator("#count")
        expect(turn).to_contain_text("cup")
        expect(told).to_contain_text("1 message ·")
        tokens = re.search(r"· ([\d,]+) tokens", told.inner_text())
        cost = re.search(r"· (\$[\d.]+)", told.inner_text())
        assert tokens is not None
        assert cost is not None
        expect(turn.locator("header")).to_contain_text(cost[1])
        turn.get_by_text("2 proposals, and the critic's decision").click()
        expect(turn.locator("ul.tree strong")).to_have_count(2)
        page.context.close()


@pytest.mark.slow
@needs_chromium
def test_the_facts_of_a_conversation_stand_in_one_line_on_a_usual_screen(
    tmp_path: Path, chromium: Browser
) -> None:
    made = session("tea", rounds=20, code="repeat_loop", user="Stock Trader")
    turns = tuple(replace(turn, seconds=31.0) for turn in made.turns)
    provenance = replace(made.provenance, language="Portuguese")
    run_apart(
        make_run(tmp_path / "society-of-agents.db", [replace(made, turns=turns, provenance=provenance)])
    )
    with explore(tmp_path, "society-of-agents.db", "--edit", sessions=1) as explorer:
        for width in (1280, 1216, 360):
            context = chromium.new_context(viewport={"width": width, "height": 900})
            page = context.new_page()
            page.goto(explorer.link("/c/society-of-agents/tea"))
            chips = page.get_by_label("About this conversation").locator("li").all()
            tops = {round(box["y"] + box["height"]) for chip in chips if (box := chip.bounding_box())}
            assert width == 1216 or max(tops) - min(tops) < 8, tops
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            context.close()
