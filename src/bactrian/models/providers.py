"""Providers as data: the rows of ``providers.toml`` and of the user's own file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, Literal, Self

from platformdirs import user_config_dir
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bactrian.errors import InputError
from bactrian.files.toml import LARGEST, FileKind, TomlSource, decode
from bactrian.models.http import is_loopback, read_address, split_addresses
from bactrian.models.model import Traits
from bactrian.models.wire import VARIABLE, Dialect

FILE = "providers.toml"
FLEX = "flex"  # The tier of requests that are served when there is room
BATCH = "batch"  # The tier of requests that are sent in batches
BATCH_PRICE = 0.5  # Times the price of a request that is asked live, at every provider here
_OTHER_KINDS = ("local", "hf", "scripted", "recorded", "human", "python")
_KIND = FileKind("providers file", InputError, "`bactrian help models.md`", "providers")
_NAME = re.compile(
    r"(?P<provider>[\w-]+):(?P<model>.+?)(?:@(?P<address>(?:[\w+.-]+:)?//.*|[^@]*@.*))?", re.DOTALL
)


class Provider(Dialect):
    """An endpoint: its address, its variant of the wire format and its capabilities."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", description="Stands before the colon.")]
    title: str = ""
    address: Annotated[str | None, Field(description="Base URL; None if each user has another.")] = None
    address_variable: Annotated[
        str | None,
        Field(pattern=VARIABLE, description="Environment variable of an address that replaces it."),
    ] = None
    dialect: Literal["chat-completions"] = "chat-completions"
    local: Annotated[bool, Field(strict=True, description="A server of one's own, which needs no key.")] = (
        False
    )
    window: Annotated[int | None, Field(gt=0, strict=True, description="Of all its models, in tokens.")] = (
        None
    )
    prices: Annotated[str | None, Field(description="Its name in the package genai-prices.")] = None
    families: Annotated[tuple[str, ...], Field(description="How names of its own models begin.")] = ()
    batches: Annotated[
        Literal["openai", "together", "openrouter", "mistral", "anthropic", "gemini"] | None,
        Field(description="Its batch interface is like that of this provider."),
    ] = None
    docs: str = ""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in _OTHER_KINDS:
            raise ValueError(f"the name {name!r} stands for another kind of model")
        return name

    @field_validator("path", "models_path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        rest = path.replace("{model}", "")
        if not path.startswith("/") or "{" in rest or "}" in rest:
            raise ValueError("a path begins with /, and its only placeholder is {model}")
        return path

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is not None:
            try:
                read_address(address)
            except InputError as error:
                raise ValueError("this is not an address such as http://127.0.0.1:8000/v1") from error
        return address

    @model_validator(mode="after")
    def _check_has_address(self) -> Self:
        if self.address is None and self.address_variable is None:
            raise ValueError("a provider needs `address`, or an `address_variable`")
        return self

    @property
    def price_tiers(self) -> Mapping[str, float]:
        """How many times the usual price a call costs, by the tier at which it is served."""
        return {**self.tiers, **({BATCH: BATCH_PRICE} if self.batches else {})}

    @property
    def traits(self) -> Traits:
        """The traits of its models."""
        return Traits(self.constrained_by, remote=True)

    def is_at(self, address: str) -> bool:
        """Return True if ``address`` is at the provider's host, or on this computer for a self-hosted server."""
        if self.address is None:
            return False
        asked, home = read_address(address), read_address(self.address)
        if self.local and is_loopback(home.host):
            return is_loopback(asked.host)
        return (asked.scheme, asked.host, asked.port) == (home.scheme, home.host, home.port)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    providers: tuple[Provider, ...] = ()

    @model_validator(mode="after")
    def _check_unique_names(self) -> Self:
        names = [row.name for row in self.providers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice")
        return self


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """The parts of ``PROVIDER:MODEL`` or ``PROVIDER:MODEL@ADDRESS``."""

    provider: str
    model: str
    address: str | None


def split_name(name: str) -> ProviderModel | None:
    """Split a model's name; None if it does not name a provider and a model.

    Raises:
        InputError: the address contains a password, which would be stored with every session.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    address = match["address"]
    if address and any(read_address(each).credentials for each in split_addresses(address)):
        raise InputError(
            "The address in a model's name contains a password, which would be stored with each session.",
            where=f"{match['provider']}:{match['model']}",
            next="Put the key into the provider's environment variable, or add a row to your own providers.toml.",
        )
    return ProviderModel(match["provider"], match["model"], address)


def find_provider(name: str) -> tuple[ProviderModel, Provider] | None:
    """Return the parts of a model's name and the row of its provider; None if it names no known provider.

    Raises:
        InputError: the address contains a password, or the user's providers file is invalid.
    """
    parts = split_name(name)
    row = load_providers().get(parts.provider) if parts else None
    return (parts, row) if parts and row else None


def find_config_folder() -> Path:
    """Return the folder of the user's own rows: ``BACTRIAN_CONFIG``, or the user's configuration folder."""
    return Path(os.environ.get("BACTRIAN_CONFIG") or user_config_dir("bactrian"))


def is_hosted(address: str) -> bool:
    """Return True if ``address`` is at the host of a known provider, not a server of one's own."""
    return any(row.is_at(address) for row in _load_built_in().values() if not row.local)


def load_providers() -> Mapping[str, Provider]:
    """Return all rows by name; the user's own rows replace built-in ones of the same name.

    Raises:
        InputError: the user's file cannot be read or is invalid, with the position of the fault, or
            ``BACTRIAN_CONFIG`` is not a folder.
    """
    path = find_config_folder() / FILE
    try:
        facts = path.stat()
    except NotADirectoryError as error:
        raise InputError(
            "BACTRIAN_CONFIG is the path of a file.",
            where=str(path.parent),
            next=f"Set it to the folder that contains your {FILE}.",
        ) from error
    except (FileNotFoundError, PermissionError):
        return _load_built_in()
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror}") from error
    if not S_ISREG(facts.st_mode):  # A pipe would be waited for without end.
        raise _refuse(path, "is a folder, a pipe or a device, and not a file")
    return _load_built_in() | _load_users_rows(path, facts.st_mtime_ns)


def _refuse(path: Path, why: str) -> InputError:
    return InputError(
        f"The providers file {why}.", where=str(path), next="Replace it by a file, or set BACTRIAN_CONFIG."
    )


@cache
def _load_built_in() -> dict[str, Provider]:
    text = resources.files("bactrian.models").joinpath(FILE).read_text("utf-8")
    return _read_rows(TomlSource(FILE, text, _KIND))


@cache
def _load_users_rows(path: Path, _changed: int) -> dict[str, Provider]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror}") from error
    return _read_rows(decode(str(path), content, _KIND, path.stat().st_size))


def _read_rows(source: TomlSource) -> dict[str, Provider]:
    data: dict[str, Any] = source.table()
    return {row.name: row for row in source.validate(_File, data).providers}
