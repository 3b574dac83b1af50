"""What models cost, by the flags of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bactrian.models.wrappers.budget import Price


def read_prices(
    given: str | None, base_url: str | None, *, needed: bool = False
) -> Callable[[str], Price | None]:
    """What tells the price of a model: the user's word ``given``, or else a table where that is installed.

    Raises:
        InputError: ``given`` is no price.
        MissingExtra: from what it gives, if a price is ``needed`` and the table is not installed.
    """
    from functools import cache

    from bactrian.errors import MissingExtra
    from bactrian.models.pricing import FREE, find_price, read_price
    from bactrian.models.registry import find_traits

    own = read_price(given) if given is not None else None

    @cache
    def price(model: str) -> Price | None:
        if own is not None:
            # What nobody named was made elsewhere, and for money.
            return own if not model or find_traits(model).priced else FREE
        try:
            return find_price(model, base_url) if model else None
        except MissingExtra:
            if needed:
                raise
            return None

    return price
