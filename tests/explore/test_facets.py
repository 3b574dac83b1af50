"""Facets: what is counted beside the filters of a list, and the list that a click gives."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bactrian.explore.facets import FacetIndex, read_facets
from bactrian.explore.library_index import prepare_index, register_run
from bactrian.explore.session_findings import search_sessions
from bactrian.explore.session_lists import ListFilter, Listing
from bactrian.records.session import Role, Session
from bactrian.store import open_store
from bactrian.store.locations import name_verdicts
from tests.explore.test_index import FLIP, build, fill
from tests.helpers.explorer import RunningExplorer
from tests.helpers.runs import ORIGIN, make_run, session

pytestmark = pytest.mark.system
OTHER = replace(ORIGIN, models={"user": "openai:one", "assistant": "local"}, needs_code=True)
JUDGED = (("passed", "0a"), ("wrong", "1a"), ("passed", "2b"))


def list_sessions() -> list[Session]:
    """Conversations that differ in ending, behaviour, models, roles and axes."""
    return [
        session(
            f"{number}{letter}",
            texts=FLIP if number % 2 else None,
            code="max_messages" if number < 3 else "task_done",
            assistant=role,
            provenance=OTHER if number % 3 else ORIGIN,
            values={"style": "short" if number < 4 else "long", "text": "x" * 99, "role": role},
        )
        for number, (letter, role) in product(range(6), (("a", "Poet"), ("b", "Nurse")))
    ]


@asynccontextmanager
async def index_run(folder: Path, sessions: Sequence[Session] = ()) -> AsyncGenerator[FacetIndex]:
    """The facets of a run whose code was judged."""
    run = await make_run(folder / "run.db", sessions or list_sessions())
    lines = [
        {"kind": kind, "detail": "", "calls": 1, "cpu": 0.1, "key": name, "id": name} for kind, name in JUDGED
    ]
    name_verdicts(run).write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"kind": "pas')
    number = register_run(prepare_index(), run, "")
    async with open_store(run, read_only=True) as store:
        with build(store, number) as builder:
            await fill(builder)
            some = builder.list_unsearched(99)
            builder.add_behaviours(await asyncio.to_thread(search_sessions, run, [*some]), some)
            yield read_facets(prepare_index(), {number: "run"})


async def test_facets_count_models_verdicts_and_axes_beside_the_facts(tmp_path: Path) -> None:
    async with index_run(tmp_path) as facets:
        counts = {
            facet.title: {choice.value: choice.number for choice in facet.choices}
            for facet in facets.list_facets(ListFilter())
        }
    assert counts["Ending"] == {"max_messages": 6, "task_done": 6}
    assert counts["Behaviour"]["role_flip"] == 6
    assert counts["Model"] == {"openai:one": 12, "local": 8, "openai:two": 4}
    assert counts["Verdict on the code"] == {"passed": 2, "wrong": 1}
    assert counts["style"] == {"style: short": 8, "style: long": 4}
    assert counts["AI assistant"] == {"Poet": 6, "Nurse": 6}
    assert "text" not in counts  # Long items are texts; those of roles and tasks are told already.
    assert "role" not in counts


@pytest.mark.parametrize(
    ("list_filter", "count"),
    [
        (ListFilter(behaviour=("-role_flip",)), 6),
        (ListFilter(behaviour=("role_flip", "-no_code")), 2),
        (ListFilter(behaviour=("role_flip", "no_code")), 4),
        (ListFilter(behaviour=("role_flip", "no_code"), need="any"), 10),
        (ListFilter(model=("local", "openai:two")), 12),
        (ListFilter(verdict=("passed",), axis=("style: short",)), 2),
        (ListFilter(axis=("style: short", "style: long")), 12),
        (ListFilter(axis=("style: no",)), 0),
        (ListFilter(assistant="Poet", ending=("task_done",), q="dial"), 1),
        (ListFilter(least=5, mark="-good"), 2),
        (ListFilter(pick=("run/1a", "run/2b", "other/3a")), 2),
    ],
)
async def test_a_filter_means_the_same_to_the_counts_and_to_the_list(
    tmp_path: Path, list_filter: ListFilter, count: int
) -> None:
    async with index_run(tmp_path) as facets:
        listing = Listing(prepare_index(), facets.names, list_filter)
        assert facets.select(list_filter).bit_count() == listing.count() == count


async def test_a_group_chat_is_listed_and_counted_with_all_its_agents(tmp_path: Path) -> None:
    names = ["Host", "Reader", "Teacher"]
    cast = {name.lower(): Role(name) for name in names}
    talk = session("talk", texts=["Hello"], provenance=replace(ORIGIN, cast=cast))
    list_filter = ListFilter(agent=("Teacher",))
    async with index_run(tmp_path, [talk, session("pair", assistant="Poet")]) as facets:
        shown = {
            facet.name: [choice.value for choice in facet.choices]
            for facet in facets.list_facets(list_filter)
        }
        (row,) = Listing(prepare_index(), facets.names, list_filter).read_page().sessions
        assert facets.count("assistant", facets.everything) == [("Poet", 1)]
        assert list(facets.count_pairs(facets.everything)) == [("Poet", "Cook")]
    assert sorted(shown["agent"]) == names
    assert (row["roles"], row["assistant"], row["user"]) == (names, None, None)


async def test_only_conversations_that_ask_for_code_can_lack_it(tmp_path: Path) -> None:
    async with index_run(tmp_path) as facets:
        assert facets.select_able("no_code").bit_count() == 8
        assert facets.select_able("role_flip").bit_count() == 12


@pytest.mark.parametrize(
    "query", ["", "?view=table", "?behaviour=role_flip&mark=-good", "?q=dial", "?user=Nurse&least=3"]
)
def test_a_number_beside_a_value_is_that_of_the_list_behind_it(explored: RunningExplorer, query: str) -> None:
    page = explored.list(query)
    place = page[page.index('id="facets"') : page.index("<form", page.index('id="facets"'))]
    links = re.findall(
        r'href="/conversations([^"]*)" dir="auto"([^>]*)>.*?<span class="soft">([\d,]+)', place
    )
    assert links
    for link, chosen, count in links:
        if not chosen:
            listed = json.loads(explored.get(f"/conversations.json{unescape(link)}").text)
            assert listed["count"] == int(count.replace(",", "")), link


def test_a_form_without_scripts_gives_a_short_address(explored: RunningExplorer, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(explored.link("/conversations?user=Nurse&ending=task_done"))
    page.get_by_label("Messages from").fill("4")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("link", name="Remove the filter Messages from 4")).to_be_visible()
    assert page.url == f"{explored.address}/conversations?user=Nurse&ending=task_done&least=4"
    context.close()


@pytest.mark.parametrize("sort", ["longest", "findings", "tokens", "cost", "assistant", "ending"])
def test_a_table_is_sorted_by_its_columns_both_ways(explored: RunningExplorer, sort: str) -> None:
    column = {"longest": "turns"}.get(sort, sort)
    orders: list[list[str]] = []
    for order in (sort, f"-{sort}"):
        rows: list[dict[str, str]] = []
        after = ""
        while after is not None:
            page = json.loads(explored.get(f"/conversations.json?sort={order}&after={after}").text)
            rows, after = rows + page["sessions"], page["next"]
        falls = (column in ("assistant", "ending")) == order.startswith("-")
        values = [row[column] for row in rows if row[column] is not None]
        assert values == sorted(values, reverse=falls)
        orders.append([row["id"] for row in rows])
    assert orders[0] == orders[1][::-1]
    assert len(orders[0]) == 68


def test_ticked_rows_of_the_table_are_exported(explored: RunningExplorer, page: Page) -> None:
    page.goto(explored.link("/conversations?view=table"))
    page.get_by_role("link", name="Messages", exact=True).click()
    expect(page.get_by_role("columnheader", name="Messages")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Choose Programmer × Cook, many").check()
    page.get_by_label("Choose Python Programmer × Stock Trader, loop").check()
    page.get_by_role("button", name="Export").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Export 2 conversations")
