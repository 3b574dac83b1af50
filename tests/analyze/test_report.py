"""The report on a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.analyze.aggregate import Aggregate, measure
from bactrian.analyze.report import build_report, compare_reports
from bactrian.analyze.report_page import render_report
from bactrian.api.status import describe_usage
from bactrian.errors import InputError
from bactrian.models.budget import Price
from bactrian.records.run import Call, Finding
from bactrian.records.session import Role, Session
from bactrian.records.turn import Usage
from bactrian.runs.spending import Prices, RunPricing
from bactrian.store import open_store
from tests.helpers.runs import ORIGIN, answer, make_run, session

FLAKE = (
    "Instruction: Design the dial of the timer.\nInput: None",
    "Solution: I will get started right away.\nNext request.",
)
FLIP = ("Instruction: Name part 1 of the timer.\nInput: None", "Instruction: Name it yourself.\nInput: None")


async def measured(path: Path, sessions: list[Session]) -> Aggregate:
    async with open_store(await make_run(path, sessions), read_only=True) as store:
        return await measure(store)


async def test_tokens_of_a_conversation_include_calls_that_led_to_no_turn(tmp_path: Path) -> None:
    path = await make_run(tmp_path / "tea.db", [session("1"), session("2")])
    async with open_store(path) as store:
        await store.add_call(Call("2", "user", 9, "m", 0.1, b"", "It broke off.", Usage(100, 20)))
        one, two = [each.usage.total async for each in store.sessions()]
        assert [each.usage.total for each in (await measure(store)).facts] == [one, two + 120]


async def test_a_mean_of_few_solved_instructions_is_no_share(tmp_path: Path) -> None:
    made = [session(str(n), rounds=1 if n < 9 else 0, user=f"Cook {n}") for n in range(12)]
    solved = (await reported(tmp_path / "tea.db", made))["length"]["solved"]
    assert solved["mean"] == 0.75
    assert solved["high"] > 1


async def reported(path: Path, sessions: list[Session], prices: Prices | None = None) -> dict[str, Any]:
    part = await measured(path, sessions)
    async with open_store(path, read_only=True) as store:
        return build_report("tea", part, await describe_usage(store, prices))


async def test_endings_and_behaviours_are_shares_of_sessions_and_four_are_too_few_for_an_interval(
    tmp_path: Path,
) -> None:
    found = await reported(
        tmp_path / "tea.db",
        [
            session("1", rounds=3),
            session("2", rounds=3),
            session("3", texts=FLAKE * 2, code="max_messages"),
            session("4", texts=FLIP, code="assistant_instruct"),
        ],
    )
    assert found["sessions"] == 4
    assert found["messages"] == 7 + 7 + 4 + 2
    assert found["endings"]["task_done"] == {
        "count": 2,
        "rate": 0.5,
        "low": None,
        "high": None,
        "withheld": "only 4 conversations, and an interval needs 10",
    }
    flakes = found["behaviours"]["flake_reply"]
    assert (flakes["sessions"], flakes["rate"]) == (1, 0.25)
    assert flakes["turns"]["assistant"]["count"] == 2
    assert flakes["turns"]["assistant"]["rate"] == pytest.approx(2 / 9)
    assert flakes["turns"]["user"]["count"] == 0
    assert found["behaviours"]["role_flip"]["sessions"] == 1
    assert found["behaviours"]["infinite_loop"] == {
        **found["behaviours"]["infinite_loop"],
        "sessions": 0,  # two rounds of the same words are too short: the first is not a repetition
        "rate": 0.0,
    }
    assert found["cooperation_failed"]["sessions"] == 2


async def test_all_fourteen_behaviours_are_told_of_even_where_none_is_seen(tmp_path: Path) -> None:
    found = await reported(tmp_path / "tea.db", [session(str(number), rounds=2) for number in range(10)])
    assert len(found["behaviours"]) == 14
    assert found["behaviours"]["no_code"]["applies"] == 0
    some = [of for of in found["behaviours"].values() if of["applies"]]
    assert len(some) == 13
    assert all(of["low"] <= of["rate"] <= of["high"] for of in some)


async def test_a_group_chat_counts_for_each_of_its_agents_and_for_no_pair(tmp_path: Path) -> None:
    cast = {name: Role(f"The {name}") for name in ("host", "reader", "teacher")}
    talk = session("talk", texts=["Hello"], provenance=replace(ORIGIN, cast=cast))
    found = await reported(tmp_path / "tea.db", [talk, session("pair", assistant="Poet", user="Nurse")])
    assert {side: list(roles) for side, roles in found["roles"].items()} == {
        "assistant": ["Poet"],
        "user": ["Nurse"],
        "agent": ["The host", "The reader", "The teacher"],
    }
    assert [(pair["assistant"], pair["user"]) for pair in found["pairs"]] == [("Poet", "Nurse")]


async def test_roles_pairs_and_rounds_are_told_apart(tmp_path: Path) -> None:
    found = await reported(
        tmp_path / "tea.db",
        [
            session("1", texts=FLAKE, code="max_messages", assistant="Poet", user="Nurse"),
            session("2", rounds=3, assistant="Poet", user="Cook"),
            session("3", rounds=2, assistant="Pilot", user="Cook"),
        ],
    )
    assert found["roles"]["assistant"]["Poet"]["sessions"] == 2
    assert found["roles"]["assistant"]["Poet"]["cooperation_failed"]["rate"] == 0.5
    assert found["roles"]["user"]["Cook"]["cooperation_failed"]["sessions"] == 0
    pairs = {(pair["assistant"], pair["user"]): pair for pair in found["pairs"]}
    assert pairs["Poet", "Nurse"]["behaviours"]["flake_reply"]["rate"] == 1.0
    first, second, *_ = found["rounds"]
    assert (first["sessions"], first["behaviours"]["flake_reply"]["sessions"]) == (3, 1)
    assert (second["sessions"], list(second["behaviours"])) == (2, ["cooperation_failed"])


async def test_the_worst_and_the_best_are_named(tmp_path: Path) -> None:
    found = await reported(
        tmp_path / "tea.db",
        [
            session("short", rounds=1),
            session("long", rounds=5),
            session("given up", rounds=4, code="max_messages"),
            session("flaky", texts=FLAKE, code="max_messages"),
        ],
    )
    assert [row["session"] for row in found["best"]] == ["long", "short"]
    assert [row["session"] for row in found["worst"]] == ["flaky"]
    assert found["worst"][0]["behaviours"]["flake_reply"] == 1


async def test_money_is_known_only_where_every_price_is(tmp_path: Path) -> None:
    made = [session(rounds=2), session("2", rounds=2)]
    price = Price(prompt=10.0, completion=20.0, cached=1.0)
    used = (await reported(tmp_path / "tea.db", made, lambda _: price))["usage"]
    turns = 2 * 5
    assert used["prompt"] == turns * 10
    assert used["usd"] == pytest.approx(turns * (8 * 10 + 2 * 1 + 5 * 20) / 1_000_000)
    assert used["cached_share"]["rate"] == 0.2
    only_one: Prices = {"openai:one": price}.get
    half = (await reported(tmp_path / "half.db", made, only_one))["usage"]
    assert half["usd"] is None
    assert half["unpriced"] == ["openai:two"]


async def test_prompts_grow_by_the_turn_and_replies_take_their_time(tmp_path: Path) -> None:
    def slow(name: str, times: int) -> Session:
        made = session(name, rounds=2)
        turns = tuple(
            replace(said, usage=Usage(100 * said.number * times, 5), seconds=2.0 * times)
            for said in made.turns
        )
        return replace(made, turns=turns)

    found = await reported(tmp_path / "tea.db", [slow(str(n), 1 if n < 5 else 3) for n in range(10)])
    assert [row["prompt_tokens"] for row in found["growth"]] == [200.0, 400.0, 600.0, 800.0, 1000.0]
    assert [row["agent"] for row in found["growth"]] == ["user", "assistant"] * 2 + ["user"]
    assert found["growth"][0]["low"] < 200 < found["growth"][0]["high"]
    assert found["latency"]["assistant"]["p50"]["seconds"] == pytest.approx(2.0, rel=0.011)
    assert found["latency"]["assistant"]["p99"]["seconds"] == pytest.approx(6.0, rel=0.011)


async def test_a_session_that_has_not_ended_is_counted_apart_from_the_endings(tmp_path: Path) -> None:
    found = await reported(tmp_path / "tea.db", [session("1", rounds=2, code=None), session("2", rounds=2)])
    assert (found["open"], found["sessions"]) == (1, 2)
    assert {code: of["rate"] for code, of in found["endings"].items()} == {"task_done": 1.0}


async def test_questions_and_answers_are_reported_too(tmp_path: Path) -> None:
    found = await reported(tmp_path / "sky.db", [answer("1"), answer("2", problem="Why is grass green?")])
    assert found["kinds"] == {"answer": 2}
    assert found["cooperation_failed"]["sessions"] == 0
    assert found["behaviours"]["missing_marker"]["sessions"] == 0


async def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no session"):
        await measured(tmp_path / "empty.db", [])


@pytest.mark.system
async def test_a_run_read_by_several_processes_gives_what_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bactrian.analyze.aggregate._SLICE", 10)
    texts = {0: FLAKE, 1: FLIP, 2: None, 3: None}
    sessions = [session(f"{number:04}", rounds=2, texts=texts[number % 4]) for number in range(24)]
    path = await make_run(tmp_path / "tea.db", sessions)
    results: list[tuple[dict[str, Any], list[Finding]]] = []
    for processes in (1, 2):
        findings: list[Finding] = []
        seen: list[tuple[int, int | None]] = []
        async with open_store(path, read_only=True) as store:
            part = await measure(
                store,
                findings.extend,
                lambda done, total, seen=seen: seen.append((done, total)),
                processes=processes,
            )
            usage = await describe_usage(store)
        assert seen == [(0, 24), (10, 24), (20, 24), (24, 24)]
        results.append((build_report("tea", part, usage), findings))
    assert results[0] == results[1]
    assert [finding.session for finding in results[0][1]] == sorted(
        finding.session for finding in results[0][1]
    )


async def test_a_difference_between_runs_has_an_interval_that_says_whether_it_is_chance(
    tmp_path: Path,
) -> None:
    good = await measured(tmp_path / "good.db", [session(str(n), rounds=4) for n in range(40)])
    bad = await measured(
        tmp_path / "bad.db",
        [session(str(n), texts=FLAKE * 2, code="max_messages") for n in range(30)]
        + [session(f"ok {n}", rounds=4) for n in range(10)],
    )
    changes = compare_reports(good, bad)
    flakes = changes["behaviours"]["flake_reply"]
    assert (flakes["before"], flakes["after"], flakes["difference"]) == (0.0, 0.75, 0.75)
    assert 0.5 < flakes["low"] < 0.75 < flakes["high"]
    assert changes["endings"]["task_done"]["difference"] == -0.75
    assert changes["endings"]["max_messages"]["before"] == 0.0
    assert changes["means"]["messages"]["high"] < 0
    assert changes["behaviours"]["role_flip"]["low"] < 0 < changes["behaviours"]["role_flip"]["high"]


async def test_the_page_takes_nothing_from_elsewhere_and_names_are_no_markup(tmp_path: Path) -> None:
    found = await reported(
        tmp_path / "tea.db",
        [
            session("1", texts=FLAKE, code="max_messages", assistant="<script>alert(1)</script>"),
            session("2", rounds=3, assistant="Poet & Pilot"),
        ],
    )
    page = render_report([found], [])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Poet &amp; Pilot" in page
    assert not [word for word in ("http:", "https:", "src=", "@import", "url(") if word in page]


async def test_the_page_lets_no_script_run_and_loads_nothing(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=http://evil.example/x>"
    page = render_report([await reported(tmp_path / "tea.db", [session(user=evil, mark=evil)])], [])
    assert "default-src 'none'" in page
    assert page.index("Content-Security-Policy") < page.index("<title>")
    assert "<script" not in page
    assert "<img" not in page


async def test_sessions_of_one_pair_of_roles_are_one_observation(tmp_path: Path) -> None:
    def make(name: str, user: str, *, fails: bool) -> Session:
        texts = FLIP if fails else None
        return session(
            name, texts=texts, rounds=2, code="assistant_instruct" if fails else "task_done", user=user
        )

    # The same 36 sessions: each of twelve pairs fails wholly or not at all; or each session has its own roles.
    roles = [f"Cook {n // 3}" for n in range(36)]
    alike = [make(str(n), user, fails=n // 3 % 3 == 0) for n, user in enumerate(roles)]
    apart = [replace(of, user=replace(of.user, name=of.id)) for of in alike]
    one_pair = [replace(of, user=replace(of.user, name="Cook")) for of in alike]
    runs = {"a": alike, "b": apart, "c": one_pair}
    reports = [await reported(tmp_path / f"{name}.db", sessions) for name, sessions in runs.items()]
    clustered, independent, fixed = reports
    assert clustered["clusters"] == {"of": "role pair", "number": 12}
    assert independent["clusters"] == fixed["clusters"] == {"of": "conversation", "number": 36}
    wide, narrow = clustered["cooperation_failed"], independent["cooperation_failed"]
    assert wide["rate"] == narrow["rate"] == pytest.approx(1 / 3)
    assert wide["high"] - wide["low"] > 1.5 * (narrow["high"] - narrow["low"])
    run = await measured(tmp_path / "a.db", alike)
    of_pairs = compare_reports(run, run)["paired"]
    assert (
        of_pairs["cooperation_failed"]["shares"]
        == [{"count": 12, **{key: wide[key] for key in ("rate", "low", "high")}}] * 2
    )
    alone = [report["diversity"]["tasks"]["near_duplicates"]["low"] is not None for report in reports]
    assert alone == [False, True, True]


def test_before_the_first_reply_a_cost_is_unknown_if_a_price_is() -> None:
    def price(model: str) -> Price | None:
        return Price(1.0, 2.0) if model == "openai:priced" else None

    for model, usd, unpriced in (("openai:priced", 0.0, ()), ("openai:other", None, ("openai:other",))):
        made = RunPricing({"user": model}, {}, {}, {}, (), price, price, by_session=False).add_up(())
        assert (made.usd, made.unpriced) == (usd, unpriced)
