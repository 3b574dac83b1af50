"""Prices come from the user or from a table, and what is in this process is free."""

from __future__ import annotations

import sys

import pytest

import bactrian as bt
from bactrian.errors import InputError
from bactrian.models.budget import Price
from bactrian.models.pricing import FREE, choose_prices, find_price, read_price, suggest_priced
from bactrian.records.turn import Usage


def test_the_users_own_price_is_read() -> None:
    assert read_price("0.15/0.6") == Price(0.15, 0.6, None)
    assert read_price("0.15/0.6/0.075") == Price(0.15, 0.6, 0.075)


@pytest.mark.parametrize("text", ["", "1", "1/2/3/4", "a/b", "-1/2", "nan/1", "1e9/1"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="prompt/completion"):
        read_price(text)


def test_models_in_this_process_cost_nothing() -> None:
    assert find_price("local", None) == find_price("scripted:x", None) == FREE


def test_a_well_known_model_has_a_price_and_cached_tokens_cost_less() -> None:
    price = find_price("openai:gpt-4o-mini", None)
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) > price.cost(Usage(1_000_000, 0, 1_000_000)) > 0
    assert price.completion > price.prompt


def test_nobody_knows_the_price_of_a_model_on_ones_own_server_and_the_table_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    for address in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "https://[::1]:8000/v1"):
        assert find_price("openai:my-own", address) is None


def test_a_model_without_a_price_is_told_the_nearest_one() -> None:
    assert suggest_priced("openai:gpt-4o-mni") == "openai:gpt-4o-mini"
    assert suggest_priced("ollama:llama") is None
    with pytest.raises(InputError, match="The table has 'openai:gpt-4o-mini'"):
        choose_prices(["openai:gpt-4o-mni"], None, None, budget=1.0)
    with pytest.raises(InputError, match="at the provider's own address only"):
        choose_prices(["openai:gpt-4o-mini"], None, "http://127.0.0.1:8000/v1", budget=1.0)


def test_a_function_of_ones_own_has_no_price_and_a_budget_is_refused() -> None:
    objects = {"python:answer": bt.load_model(lambda _: "Sencha.")}
    assert choose_prices(objects, None, None, objects=objects) == {}
    with pytest.raises(InputError, match="0/0 if it is free"):
        choose_prices(objects, None, None, budget=1.0, objects=objects)
    assert choose_prices(objects, "0/0", None, budget=1.0, objects=objects) == {"python:answer": Price(0, 0)}


def test_a_script_costs_nothing_unless_a_price_is_given() -> None:
    objects = {"scripted": bt.Scripted(["Sencha."])}
    assert choose_prices(objects, None, None, budget=1.0, objects=objects) == {"scripted": FREE}
    named = ["local", "scripted:tea.json"]
    assert choose_prices(named, None, None, budget=1.0) == dict.fromkeys(named, FREE)
    for models, own in ((objects, objects), (named, {})):
        rehearsed = choose_prices(models, "100/200", None, budget=1.0, objects=own)
        assert rehearsed == dict.fromkeys(models, Price(100, 200)), "a price that is given counts"
    assert choose_prices(["local", "openai:any"], "1/2", None)["local"] == FREE, (
        "it is that of the other model"
    )
