"""Creation of clients from the rows of ``providers.toml``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bactrian.errors import InputError
from bactrian.models.credentials import find_key
from bactrian.models.http.timeouts import Timeouts
from bactrian.models.openai.client import OpenAIModel
from bactrian.models.openai.dialect import Dialect
from bactrian.models.providers import Provider, ProviderModel

if TYPE_CHECKING:
    from bactrian.models.registry import ModelOptions

_OPENAI = "openai"
"""The provider to which ``base_url`` and ``key`` of the options apply."""


def open_endpoint(name: str, parts: ProviderModel, row: Provider, access: ModelOptions) -> OpenAIModel:
    """Return a client for the model ``parts`` of the provider ``row``, named ``name``.

    Raises:
        InputError: the provider has no address, or address and key have different origins.
    """
    address = find_address(parts, row, access.base_url)
    own = row.is_at(address)
    distrusted = parts.address is not None and name in access.distrusted and not own
    key = "" if distrusted else _find_key(row, address, access, own=own)
    return OpenAIModel(
        parts.model,
        base_url=address,
        key=key,
        limits=Timeouts(total=access.timeout, window=access.window or row.window),
        dialect=_make_dialect(row, own=own),
        name=name,
        report=access.report,
    )


def find_address(parts: ProviderModel, row: Provider, base_url: str | None = None) -> str:
    """Return the address of a model: from its name, ``base_url`` (only OpenAI), the environment or the row.

    Raises:
        InputError: none of them gives an address.
    """
    explicit = parts.address or (base_url if row.name == _OPENAI else None)
    address = explicit or os.environ.get(row.address_variable or "") or row.address
    if address is None:
        raise InputError(
            f"{row.title or row.name} has no default address, and none is given.",
            where=f"{row.name}:{parts.model}",
            next=f"Set {row.address_variable}, or name it: {row.name}:{parts.model}@https://HOST.",
        )
    return address


def _find_key(row: Provider, address: str, access: ModelOptions, *, own: bool) -> str:
    if row.name == _OPENAI and access.key:
        return access.key
    return find_key(row.key, address, own=own)


def _make_dialect(row: Provider, *, own: bool) -> Dialect:
    return Dialect(
        path=row.path,
        models_path=row.models_path,
        query=row.query,
        auth=row.auth,
        # For another server under this name, only the older parameter is known to be supported everywhere.
        length=row.length if own or row.address is None else "max_tokens",
        renamed=row.renamed,
        constrained_by=row.constrained_by,
        key_variable=row.key or "the provider's key",
        needs_key=row.key is not None and not row.local and (own or row.address is None),
    )
