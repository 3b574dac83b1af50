"""Where a command that continues or reads runs asks its models: at the runs' own endpoints, or at those named now.

No conversation goes to another host than before without a word, and no key to an address that only a file names.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianWarning, InputError
from bactrian.models.http import is_loopback, read_address, split_addresses, write_addresses
from bactrian.models.open import ModelOptions, find_address, open_endpoints, open_model
from bactrian.models.providers import find_provider, split_name
from bactrian.records.run import Command
from bactrian.store import find_address as find_run_address
from bactrian.store.care import read_making

_RECORDED = "recorded:"
# What an endpoint takes, which holds for all commands that ask it.
_OF_ENDPOINT = ("window", "timeout", "max_wait", "requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True, slots=True)
class RunTerms:
    """On which terms the models of a run were asked."""

    run: Path
    models: frozenset[str]
    addresses: frozenset[str]  # Of all its commands
    base_urls: tuple[str, ...]  # Where openai:NAME was asked, each once; empty if it was not
    options: Mapping[str, Any]  # Of its last command


def read_terms(run: Path) -> RunTerms | None:
    """Return the terms of a run of a recipe, or of all plays in a run; None if it asked no model.

    Raises:
        InputError: the file is not a run.
        StoreError: it cannot be read.
    """
    if address := find_run_address(run):
        from bactrian.shared.reading import read_shared_making

        commands, content = read_shared_making(address)
    else:
        commands, content = read_making(run)
    return find_terms(run, commands, (content or {}).get("models") or {})


def read_play_terms(
    run: Path, idea: str | None, models: Mapping[str, str], name: str | None
) -> RunTerms | None:
    """Return the terms of the session that ``play`` continues: that of ``name``, or those of the same idea and models.

    Raises:
        InputError: the file is not a run.
        StoreError: it cannot be read.
    """
    commands = [command for command in read_making(run)[0] if command.verb == "play"]
    same = [
        command
        for command in commands
        if (command.options.get("idea"), command.options.get("models")) == (idea, dict(models))
    ]
    return find_terms(run, [command for command in same if command.session == name] or same, {})


def find_terms(run: Path, commands: Sequence[Command], models: Mapping[str, str]) -> RunTerms | None:
    """Return the terms of ``commands`` on a run; ``models`` are those of its recipe."""
    names: set[str] = set()
    addresses: set[str] = set()
    of_session: dict[str, list[str]] = {}
    for command in commands:
        at: Mapping[str, str] = command.options.get("addresses") or {}
        names.update((models or command.options.get("models") or {}).values())
        addresses.update(at.values())
        of_session[command.session] = [address for name, address in at.items() if _takes_base_url(name)]
    if not commands:
        return None
    base_urls = tuple(dict.fromkeys(address for listed in of_session.values() for address in listed))
    return RunTerms(run, frozenset(names), frozenset(addresses), base_urls, commands[-1].options)


def find_addresses(names: Iterable[str], base_url: str | None) -> dict[str, str]:
    """Return the address of each model of a provider by its name, without a user and a password."""
    addresses: dict[str, str] = {}
    for name in sorted(set(names)):
        if (named := find_provider(name)) is not None:
            with suppress(InputError):  # It has none, as the opening of the model will say.
                addresses[name] = write_addresses(find_address(*named, base_url))
    return addresses


def use_run_terms(
    options: Mapping[str, Any],
    names: Iterable[str],
    own: RunTerms | None,
    sources: Iterable[RunTerms | None] = (),
    confirmed: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return ``options`` with the endpoint, its limits and the price of the runs that the models ``names`` will read.

    Args:
        options: Of the command; what a person gave stays.
        names: The models that the command asks.
        own: Of the run that the command continues, which precede those of its sources.
        sources: Of the runs that it reads.
        confirmed: To resume, the addresses that a person allows.

    Raises:
        InputError: nobody said that a model may be asked at another host than before, or that an address gets a key.
    """
    chosen, names = dict(options), list(names)
    # A recorded model says what was said in its run.
    recorded = (
        name.removeprefix(_RECORDED).partition("#")[0] for name in names if name.startswith(_RECORDED)
    )
    of_sources = [
        each for each in (*sources, *(read_terms(Path(run).expanduser()) for run in recorded)) if each
    ]
    terms = [own] if own else of_sources
    named = options.get("base_url")
    if named == os.environ.get("BACTRIAN_BASE_URL"):
        named = None
    known = {name for each in terms for name in each.models}
    base_urls = list(dict.fromkeys(address for each in terms for address in each.base_urls))
    if named is None and base_urls and (taking := [name for name in names if _takes_base_url(name)]):
        if len(base_urls) > 1:
            raise InputError(
                f"{taking[0]} was asked at several addresses: {' and '.join(base_urls)}.",
                where=" ".join(str(each.run) for each in terms),
                next=f"Say which: base_url=ADDRESS, or {taking[0]}@ADDRESS.",
            )
        chosen["base_url"] = base_urls[0]
        confirm_addresses(taking, base_urls[0], terms[0].run, confirmed)
        elsewhere = options.get("base_url") or os.environ.get("OPENAI_BASE_URL")
        (usual,) = find_addresses(taking[:1], elsewhere).values()
        # Its own models go on where they were, which nobody has to be told unless the environment says otherwise.
        is_news = bool(elsewhere) or not known.issuperset(taking)
        if is_news and _find_hosts(usual) != _find_hosts(base_urls[0]):
            _tell(
                f"{taking[0]} is asked at {base_urls[0]}, where {terms[0].run} was made, and not at {usual}."
            )
    addresses = find_addresses(names, chosen.get("base_url") or os.environ.get("OPENAI_BASE_URL"))
    allowed = _split(confirmed or ())
    explicit = {name for name in addresses if "@" in name or (named and _takes_base_url(name))}
    explicit |= {name for name, address in addresses.items() if _split([address]) <= allowed}
    for each in terms if own is None else (own, *of_sources):
        _check_hosts(each, addresses, explicit, continues=each is own)
    if terms and known.issuperset(addresses):
        prices = {each.options.get("price") for each in terms}
        usual = {"price": prices.pop() if len(prices) == 1 else None}
        if own is None:
            usual |= {name: terms[0].options.get(name) for name in _OF_ENDPOINT}
        chosen |= {
            name: value for name, value in usual.items() if value is not None and chosen.get(name) is None
        }
    return chosen


def check_askable(names: Iterable[str], base_url: str | None, sources: Iterable[Path]) -> None:
    """Refuse models that could not be asked about the runs ``sources``, before others are paid for.

    Raises:
        InputError: there is no such model, or its address is not clear.
        Denied: it needs a key that is not set.
        StoreError: a run cannot be read.
    """
    terms = [read_terms(path) for path in sources]
    for name in names:
        if (named := find_provider(name)) is None:
            open_model(name, ModelOptions())
            continue
        usual = base_url if _takes_base_url(name) else None
        with warnings.catch_warnings(action="ignore"):  # Its run tells where the conversations go.
            chosen = use_run_terms({"base_url": usual}, [name], None, terms)
        address = chosen["base_url"] or os.environ.get("OPENAI_BASE_URL")
        for client in open_endpoints(name, *named, ModelOptions(base_url=address)):
            client.check_key()


def tell_address(name: str, runs: Iterable[Path]) -> str:
    """Return in words where a model will be asked beside ``runs``; empty for one that has no address.

    Raises:
        InputError: the runs asked it at several.
    """
    terms = [each for run in runs if (each := read_terms(run)) and name in each.models]
    try:
        with warnings.catch_warnings(action="ignore"):
            chosen = use_run_terms({}, [name], None, terms)
    except InputError as error:
        next = f"Start the explorer with the one that you mean: --model {name}@ADDRESS"
        raise InputError(error.what, where=error.where, next=next) from None
    usual = chosen.get("base_url") or os.environ.get("OPENAI_BASE_URL")
    return "".join(f"{name} is asked at {address}." for address in find_addresses([name], usual).values())


def _takes_base_url(name: str) -> bool:
    parts = split_name(name)
    return parts is not None and parts.provider == "openai" and parts.address is None


def _check_hosts(
    terms: RunTerms, addresses: Mapping[str, str], explicit: Collection[str], *, continues: bool
) -> None:
    """Say which models read a run at another host than its own.

    Raises:
        InputError: the run asked the provider of such a model elsewhere, and nobody named the new address.
    """
    hosts = _find_hosts(*terms.addresses)
    providers = {name.partition(":")[0] for name in terms.models}
    before = " and ".join(sorted(terms.addresses))
    elsewhere: dict[str, list[str]] = {}
    for name, address in addresses.items():
        if _find_hosts(address) <= hosts:
            continue
        if name.partition(":")[0] in providers and name not in explicit:
            moved = f"bactrian resume {shlex.quote(str(terms.run))} --send-keys-to {shlex.quote(address)}"
            places = [f"{name}@{each}" for each in (*sorted(terms.addresses), address)]
            raise InputError(
                f"The models of this run were asked at {before}, and {name} would be asked at {address}.",
                where=str(terms.run),
                next=f"If that is right: {moved}" if continues else f"Say which: {' or '.join(places)}.",
            )
        elsewhere.setdefault(address, []).append(name)
    kept = f"they went to {before}" if before else "they stayed on this computer"
    for address, names in elsewhere.items():
        _tell(f"The conversations of {terms.run} go to {address} ({', '.join(names)}); until now {kept}.")


def _tell(text: str) -> None:
    warnings.warn(text, BactrianWarning, stacklevel=3)


def _find_hosts(*urls: str) -> set[tuple[str, str, int]]:
    """Return the hosts of texts with one or several addresses."""
    addresses = [read_address(url) for each in urls for url in split_addresses(each)]
    return {(address.scheme, address.host, address.port) for address in addresses}


def _split(urls: Iterable[str]) -> set[str]:
    """Return all addresses of texts with one or several, in one way of writing, without users and passwords."""
    return {str(read_address(url)) for each in urls for url in split_addresses(each)}


def confirm_addresses(
    names: Iterable[str], base_url: str | None, run: Path, confirmed: Collection[str] | None
) -> frozenset[str]:
    """Return those of the stored ``names`` whose addresses a person confirmed; None if the command has no way to.

    Raises:
        InputError: a key would go to an address that nobody confirmed.
    """
    names = tuple(names)
    allowed = _split(filter(None, (*(confirmed or ()), os.environ.get("OPENAI_BASE_URL"))))
    foreign = (address for address in find_foreign(names, base_url) if not _split([address]) <= allowed)
    if (address := next(foreign, None)) is not None:
        option = "base_url" if confirmed is None else "send_keys_to"
        raise InputError(
            f"The run names the address {address}, and your key goes there only if you say so.",
            where=str(run),
            next=f"If you trust it: {option}={shlex.quote(address)}",
        )
    parts = ((name, split_name(name)) for name in names)
    return frozenset(
        name for name, part in parts if part and part.address and _split([part.address]) <= allowed
    )


def find_foreign(names: Iterable[str], base_url: str | None) -> list[str]:
    """Return the addresses of the models ``names`` that are not of their provider, and that a key would go to."""
    foreign: list[str] = []
    for name in dict.fromkeys(names):
        if (named := find_provider(name)) is None:
            continue
        parts, row = named
        address = parts.address or (base_url if row.name == "openai" else None)
        key = os.environ.get(row.key or "", "")
        asked = split_addresses(address) if address and key else ()
        foreign += [url for url in asked if not (row.is_at(url) or is_loopback(read_address(url).host))]
    return list(dict.fromkeys(foreign))
