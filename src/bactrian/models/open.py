"""The registry of models: opens the model for a name, of a provider, of this computer or of another package."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bactrian.errors import InputError, ModelError, explain_own_errors
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models import model as base
from bactrian.models.budget import UsageMeter
from bactrian.models.faults import MAX_WAIT
from bactrian.models.replicas import Replicas

if TYPE_CHECKING:
    from bactrian.models.openai import OpenAIModel
    from bactrian.models.providers import Provider, ProviderModel


# Models of installed packages: the entry-point group ``bactrian.models``.


# Entry-point group of packages that provide models. An entry point's name is the part before the colon; its
# function receives the part after the colon and the `ModelOptions`.
PLUGINS = "bactrian.models"


@cache
def find_opener(kind: str) -> Callable[[str, ModelOptions], base.Model] | None:
    """Return the function of an installed package that opens models of ``kind``; None if not found.

    Raises:
        InputError: the package cannot be imported.
    """
    if kind not in list_plugins(PLUGINS):
        return None
    return cast("Callable[[str, ModelOptions], base.Model]", load_plugin(PLUGINS, kind))


def open_plugin(
    name: str, opener: Callable[[str, ModelOptions], base.Model], options: ModelOptions
) -> base.Model:
    """Open the model ``name`` by the function ``opener`` of a package.

    Raises:
        InputError: the package refuses the name, or fails.
    """
    with explain_own_errors("The package that opens this model failed", name, _FIX):
        model = opener(name.partition(":")[2], options)
        return _PluginAtEndpoint(model) if isinstance(model, base.RemoteModel) else PluginModel(model)


_FIX = "Fix the package; `bactrian --debug play` shows where it failed."


class PluginModel(base.Wrapper):
    """A model of a package: what it raises by mistake becomes an error of the model, and ends only its session."""

    async def reply(self, request: base.Request) -> base.Reply:
        """Answer ``request``.

        Raises:
            ModelError: as the package raises it, or because its code failed or returned something else.
        """
        with explain_own_errors("The model failed", self.name, _FIX, ModelError):
            reply = cast("object", await self._model.reply(request))
        if not isinstance(reply, base.Reply):
            raise ModelError(
                f"The model returned {type(reply).__name__} and not a Reply.",
                where=self.name,
                next="Fix the package that provides it: `reply` returns a bactrian.models.model.Reply.",
            )
        return reply

    async def close(self) -> None:
        """Close the model. Raises ModelError if its code fails."""
        with explain_own_errors("The model failed when it was closed", self.name, _FIX, ModelError):
            await super().close()


class _PluginAtEndpoint(PluginModel):
    """The same with the attributes of :class:`RemoteModel`."""

    _model: base.RemoteModel  # type: ignore[assignment]

    @property
    def endpoint(self) -> tuple[str, str]:
        """The address and the key of the package's model."""
        return self._model.endpoint

    @property
    def before_again(self) -> Callable[[], Awaitable[object]] | None:
        """The callback of the package's model."""
        return self._model.before_again

    @before_again.setter
    def before_again(self, callback: Callable[[], Awaitable[object]] | None) -> None:
        self._model.before_again = callback


# Every kind of model name, with its meaning.
MODEL_NAMES = {
    "local": "the built-in model, SmolLM2-135M-Instruct, in this process",
    "local:PATH": "a GGUF file of your own, in this process",
    "local:OWNER/REPO[:FILE]": "a GGUF file from the Hugging Face hub, in this process",
    "hf:FOLDER": "a folder of transformers weights, in this process (extra `train`)",
    "PROVIDER:NAME": "a model of a provider; `bactrian models` lists them",
    "PROVIDER:NAME@ADDRESS": "the same at another address, such as vllm:NAME@http://host:8000/v1",
    "PROVIDER:NAME@ADDRESS,ADDRESS": "the same at several servers; a conversation stays at one of them",
    "scripted:FILE": "replies from a JSON file",
    "recorded:RUN": "the replies of a stored run",
}
_KINDS = {
    "local": base.LOCAL_WEIGHTS,
    "hf": base.Traits("none", in_process=True, priced=False),
    "scripted": base.Traits(priced=False),
    "recorded": base.Traits(priced=False),
    "human": base.Traits(priced=False),
}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options for opening models: addresses, keys, limits and callbacks."""

    base_url: str | None = None  # Address of `openai:NAME`; None for `OPENAI_BASE_URL` or the official one
    # Key of `openai:NAME`; empty for `OPENAI_API_KEY`. Other providers have their own variables.
    key: str = ""
    # Model names from files of untrusted origin: no key is sent to an address in one of them.
    distrusted: frozenset[str] = frozenset()
    window: int | None = None  # Context window in tokens, if the endpoint does not enforce one
    timeout: float = 600.0  # Maximum time for one request, in seconds
    max_wait: float = MAX_WAIT  # Maximum wait that an endpoint may request, in seconds
    tier: str = ""  # Service tier that endpoints are asked for; empty for the usual one
    slots: int = 4  # Number of conversations that a model in this process keeps in its cache
    # Receives the downloaded and the total bytes while weights are downloaded.
    progress: Callable[[int, int], None] | None = None
    notice: Callable[[str], None] | None = None  # Receives a message about each fault that is retried
    # Receives a message, once, about each deviation from the request.
    report: Callable[[str], None] | None = None
    # Opens a stored run; passed in because this layer does not depend on the store.
    recorded: Callable[[str], base.Model] | None = None
    # The user's own model objects, by name.
    objects: Mapping[str, base.Model] = field(default_factory=dict[str, base.Model])
    # The conversation is named to servers and routers that have a prefix cache; the run is a part of the name.
    session_ids: bool = True
    run: str = ""
    telemetry: base.ObserverTerms | None = None  # Whether calls are reported, and which; None for none
    meter: UsageMeter | None = None  # Counts what a session uses, and limits it; None counts nothing
    # Opens the model `human`, a person who takes part; None if not possible.
    person: Callable[[], base.Model] | None = None
    taken: frozenset[str] = (
        frozenset()
    )  # Agents whose part a person took from the model that the session names


def open_model(name: str, access: ModelOptions) -> base.Model:
    """Open the model that ``name`` selects. Nothing is downloaded, loaded or sent before the first call.

    Raises:
        InputError: the kind of model is unknown, or its file cannot be used.
    """
    if name in access.objects:
        return access.objects[name]
    kind, _, rest = name.partition(":")
    match kind:
        case "local" if rest or name == kind:
            return _open_local(rest, access)
        case "hf" if rest:
            from bactrian.models.local.transformers_model import TransformersModel, check_folder

            folder = Path(rest).expanduser()
            check_folder(folder)
            return TransformersModel(folder, name=name)
        case "scripted" if rest:
            from bactrian.models.scripted import read_script

            return read_script(Path(rest).expanduser())
        case "recorded" if rest and access.recorded is not None:
            return access.recorded(rest)
        case "human" if name == kind:
            if access.person is not None:
                return access.person()
            raise InputError("No person can take part here.", next="A person takes part in `bactrian play`.")
        case _:
            return _open_other(name, access)


def find_traits(name: str) -> base.Traits:
    """Return the traits of the model that ``name`` selects, without opening it; defaults for an unknown name.

    Raises:
        InputError: the user's providers file is invalid.
    """
    kind, _, rest = name.partition(":")
    if name == "local":
        return base.BUILT_IN_MODEL
    if kind in _KINDS:
        return _KINDS[kind]
    if rest:
        from bactrian.models.providers import load_providers

        if (row := load_providers().get(kind)) is not None:
            return row.traits
        if (opener := find_opener(kind)) is not None:
            traits: object = getattr(opener, "traits", None)
            return traits if isinstance(traits, base.Traits) else base.Traits(remote=True)
    return base.Traits()


async def load_local(model: base.Model) -> None:
    """Load ``model`` if it, or what it wraps, is local, to detect errors early.

    Raises:
        InputError: the model's file cannot be used.
        ModelError: the model cannot be downloaded or loaded.
    """
    while isinstance(model, base.Wrapper):
        model = model.inner
    if base.get_traits(model).in_process:
        from bactrian.models.local.local_model import LocalModel
        from bactrian.models.local.transformers_model import TransformersModel

        if isinstance(model, LocalModel | TransformersModel):
            await model.load()


def _open_local(rest: str, access: ModelOptions) -> base.Model:
    from bactrian.models.local.local_model import LocalModel
    from bactrian.models.local.weights import check_gguf, fetch_from_hub, find_cache_folder, read_hub_name

    if (weights := read_hub_name(rest)) is not None:
        fetch = partial(fetch_from_hub, weights, find_cache_folder(), report=access.report)
        return LocalModel(slots=access.slots, fetch=fetch, progress=access.progress, name=f"local:{rest}")
    path = Path(rest).expanduser() if rest else None
    if path is not None:
        check_gguf(path)
    return LocalModel(path, slots=access.slots, progress=access.progress)


def _open_other(name: str, access: ModelOptions) -> base.Model:
    """Open a model of a provider or of another package."""
    from bactrian.models.providers import find_provider, load_providers

    if (named := find_provider(name)) is not None:
        clients = open_endpoints(name, *named, access)
        return clients[0] if len(clients) == 1 else Replicas(name, clients)
    kind, _, rest = name.partition(":")
    if rest and (opener := find_opener(kind)) is not None:
        return open_plugin(name, opener, access)
    providers = load_providers()
    if not rest and kind in providers:
        raise InputError(f"{name!r} is a provider and not a model.", next=f"Name its model: {kind}:NAME.")
    raise InputError(
        f"There is no model named {name!r}.{_suggest_model(kind, rest, providers)}",
        next=f"A model is one of: {', '.join(MODEL_NAMES)}. `bactrian models` lists the providers.",
    )


def _suggest_model(kind: str, rest: str, providers: Mapping[str, Provider]) -> str:
    """Return a hint that leads to a model: a whole name, with its provider; empty if nothing is near."""
    fits = [row.name for row in providers.values() if row.families and kind.lower().startswith(row.families)]
    if fits and not rest:
        return f" Did you mean '{fits[0]}:{kind}'?"
    alone = [name for name, traits in _KINDS.items() if not rest and traits is base.LOCAL_WEIGHTS]
    known = {*alone, *providers, *list_plugins(PLUGINS), *(("scripted", "recorded", "hf") if rest else ())}
    # A bare name is rather that of a model than of a provider, so only a slip of the pen counts.
    near = get_close_matches(kind, known, n=1, cutoff=0.6 if rest else 0.8)
    if not near:
        return ""
    suggestion = near[0] if near[0] in alone else f"{near[0]}:{rest or 'NAME'}"
    return f" Did you mean {suggestion!r}?"


# Clients from the rows of ``providers.toml``.


_OPENAI = "openai"  # The provider to which `base_url` and `key` of the options apply


def open_endpoints(name: str, parts: ProviderModel, row: Provider, access: ModelOptions) -> list[OpenAIModel]:
    """Return a client for the model ``parts`` of the provider ``row``, named ``name``; one for each of its addresses.

    Raises:
        InputError: the provider has no address, or address and key have different origins.
    """
    from bactrian.models.http import split_addresses

    check_tier(name, access.tier)
    addresses = split_addresses(find_address(parts, row, access.base_url))
    return [_open_endpoint(name, parts, row, access, address) for address in dict.fromkeys(addresses)]


def check_tier(name: str, tier: str) -> None:
    """Refuse a model whose provider does not have the service tier ``tier``; a model without a provider has no tiers.

    Raises:
        InputError: it does not.
    """
    from bactrian.models.providers import find_provider, load_providers

    named = find_provider(name)
    if tier and named is not None and tier not in (row := named[1]).tiers:
        having = ", ".join(each.name for each in load_providers().values() if tier in each.tiers)
        raise InputError(
            f"{row.title or row.name} has no tier {tier!r}.",
            where=name,
            next=f"Leave out the tier, or use a provider that has it: {having}.",
        )


def _open_endpoint(
    name: str, parts: ProviderModel, row: Provider, access: ModelOptions, address: str
) -> OpenAIModel:
    from bactrian.models.credentials import find_key
    from bactrian.models.http import Timeouts
    from bactrian.models.openai import OpenAIModel
    from bactrian.models.providers import is_hosted

    official = row.is_at(address)
    is_known = official or row.address is None
    distrusted = parts.address is not None and name in access.distrusted and not official
    if distrusted:
        key = ""
    elif row.name == _OPENAI and access.key:
        key = access.key
    else:
        key = find_key(row.key, address, official=official)
    # For another server under this name, only the older parameter is known to be supported everywhere.
    changes: dict[str, object] = {} if is_known else {"length": "max_tokens"}
    if not is_known or not access.session_ids:
        changes["cache_key"] = None
    own = row.address is not None and not is_hosted(address)
    changes["session_header"] = access.session_ids and (own or (row.session_header and official))
    return OpenAIModel(
        parts.model,
        base_url=address,
        key=key,
        limits=Timeouts(total=access.timeout, window=access.window or row.window),
        dialect=row.model_copy(update=changes),
        needs_key=row.key is not None and not row.local and is_known,
        name=name,
        run=access.run,
        tier=access.tier,
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
