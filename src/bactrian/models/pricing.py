"""Prices of models, from the user or from the package ``genai-prices``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType

from bactrian.errors import InputError
from bactrian.models.budget import Price
from bactrian.models.http import is_loopback, read_address, split_addresses
from bactrian.models.model import Model, get_traits
from bactrian.models.open import find_address, find_traits
from bactrian.models.providers import find_provider

FREE = Price(0.0, 0.0, 0.0)
NO_MODELS: Mapping[str, Model] = MappingProxyType({})
# Number of tokens used for a price query: more could fall into the higher price tier of a long context.
_THOUSAND = 1000


def read_price(text: str) -> Price:
    """Parse ``PROMPT/COMPLETION`` or ``PROMPT/COMPLETION/CACHED``, in US dollars per million tokens.

    Raises:
        InputError: ``text`` has another form.
    """
    try:
        prompt, completion, *cached = (float(part) for part in text.split("/"))
        if len(cached) > 1 or not all(0 <= value < 1e6 for value in (prompt, completion, *cached)):
            raise ValueError(text)
    except ValueError as error:
        raise InputError(
            f"{text!r} is not a price.",
            option="price",
            next="Give US dollars per million tokens, prompt/completion[/cached]: price=0.15/0.60/0.075",
        ) from error
    return Price(prompt, completion, cached[0] if cached else None)


def find_price(name: str, base_url: str | None) -> Price | None:
    """Return the price of the model ``name``; None if unknown, which does not mean free.

    ``base_url`` is the address of ``openai:NAME``; None for the official endpoint. Models in this process, replayed
    models and models of a server on this computer are free.

    Raises:
        InputError: the user's providers file is invalid.
    """
    if not find_traits(name).priced:
        return FREE
    if (named := find_provider(name)) is None:
        return None
    parts, row = named
    address = parts.address or (base_url if row.name == "openai" else None) or row.address
    address = address and split_addresses(address)[0]  # The others are of the same kind.
    if row.local:
        return FREE if address is not None and row.is_at(address) else None
    official = address == row.address or (address is not None and row.is_at(address))
    if official and row.prices is None:
        return None
    if not official and address is not None and is_loopback(read_address(address).host):
        return None  # the table has no such address
    model = parts.model
    from genai_prices import Usage, calc_price  # 0.2 s, which free models do not pay

    def cost(usage: Usage) -> float:
        calculated = (
            calc_price(usage, model, provider_id=row.prices)
            if official
            else calc_price(usage, model, provider_api_url=address)
        )
        return float(calculated.total_price) * 1_000_000 / _THOUSAND

    with suppress(LookupError):
        return Price(
            cost(Usage(input_tokens=_THOUSAND, output_tokens=0)),
            cost(Usage(input_tokens=0, output_tokens=_THOUSAND)),
            cost(Usage(input_tokens=_THOUSAND, cache_read_tokens=_THOUSAND, output_tokens=0)),
            cost(Usage(input_tokens=_THOUSAND, cache_write_tokens=_THOUSAND, output_tokens=0)),
            row.price_tiers,
        )
    return None


def find_tiers(name: str) -> Mapping[str, float]:
    """Return the tiers of the model ``name``, and how many times its price a call costs there.

    Raises:
        InputError: the user's providers file is invalid.
    """
    named = find_provider(name)
    return named[1].price_tiers if named else {}


def find_offers(name: str, base_url: str | None) -> Mapping[str, float]:
    """Return the tiers of the model ``name`` as :func:`find_tiers` does; none at an address that is not the provider's.

    Raises what :func:`find_tiers` raises.
    """
    if (named := find_provider(name)) is None:
        return {}
    parts, row = named
    if row.address is None:  # its address is that of the customer
        return row.price_tiers
    return row.price_tiers if all(map(row.is_at, split_addresses(find_address(parts, row, base_url)))) else {}


def suggest_priced(name: str) -> str | None:
    """Return the name of the priced model of the same provider that is most like ``name``; None if not found."""
    if (named := find_provider(name)) is None or named[1].prices is None:
        return None
    parts, row = named
    from genai_prices.data import providers

    known = [model.id for provider in providers if provider.id == row.prices for model in provider.models]
    near = get_close_matches(parts.model, known, n=1)
    return f"{parts.provider}:{near[0]}" if near else None


def make_pricing(text: str | None, base_url: str | None) -> Callable[[str], Price | None]:
    """Return a function from a model's name to its price: the user's price ``text``, otherwise from the table.

    Raises:
        InputError: ``text`` is not a price.
    """
    fixed = read_price(text) if text is not None else None

    @cache
    def price(model: str) -> Price | None:
        if fixed is not None:
            return replace(fixed, tiers=find_tiers(model))
        return find_price(model, base_url) if model else None

    return price


def choose_prices(
    models: Iterable[str],
    text: str | None,
    base_url: str | None,
    objects: Mapping[str, Model] = NO_MODELS,
    *,
    budget: float | None = None,
) -> dict[str, Price]:
    """Return the known prices of ``models`` by name; ``objects`` are the user's own objects among them.

    Raises:
        InputError: ``text`` is not a price, or a ``budget`` is set and a price is unknown.
    """
    pricing = make_pricing(text, base_url)
    names = sorted(set(models))
    traits = {name: get_traits(objects[name]) if name in objects else find_traits(name) for name in names}
    # Where all models are free, a price that is given is for them: so a budget can be rehearsed.
    rehearsed = text is not None and not any(each.priced for each in traits.values())
    known: dict[str, Price] = {}
    for name in names:
        price = pricing(name) if rehearsed or traits[name].priced else FREE
        if price is not None:
            known[name] = price
    if budget is not None and (unknown := [name for name in names if name not in known]):
        near = suggest_priced(unknown[0])
        meant = f" The table has {near!r}." if near else ""
        if near == unknown[0]:
            meant = " The table has it at the provider's own address only."
        raise InputError(
            f"A limit in dollars requires the price of {unknown[0]!r}, which is not known.{meant}",
            option="budget",
            next="Set it with price=PROMPT/COMPLETION (0/0 if it is free), or leave the limit out.",
        )
    return known
