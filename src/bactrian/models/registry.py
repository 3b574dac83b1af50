"""The registry of models: opens the model for a name. Providers are imported on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins
from bactrian.models.model import Model
from bactrian.models.plugins import PLUGINS, find_opener, open_plugin
from bactrian.models.traits import BUILT_IN_MODEL, OWN_WEIGHTS, Traits, get_traits
from bactrian.models.wrappers.budget import UsageMeter
from bactrian.models.wrappers.retry import MAX_WAIT

if TYPE_CHECKING:
    from bactrian.models.providers import Provider

MODEL_NAMES = {
    "local": "the built-in model, SmolLM2-135M-Instruct, in this process",
    "local:PATH": "a GGUF file of your own, in this process",
    "local:OWNER/REPO[:FILE]": "a GGUF file from the Hugging Face hub, in this process",
    "PROVIDER:NAME": "a model of a provider; `bactrian models` lists them",
    "PROVIDER:NAME@ADDRESS": "the same at another address, such as vllm:NAME@http://host:8000/v1",
    "scripted:FILE": "replies from a JSON file",
    "recorded:RUN": "the replies of a stored run",
}
"""Every kind of model name, with its meaning."""
_KINDS = {
    "local": OWN_WEIGHTS,
    "scripted": Traits(priced=False),
    "recorded": Traits(priced=False),
    "human": Traits(priced=False),
}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options for opening models: addresses, keys, limits and callbacks."""

    base_url: str | None = None
    """Address of ``openai:NAME``; None for ``OPENAI_BASE_URL`` or the official one."""
    key: str = ""
    """Key of ``openai:NAME``; empty for ``OPENAI_API_KEY``. Other providers have their own variables."""
    distrusted: frozenset[str] = frozenset()
    """Model names from files of untrusted origin: no key is sent to an address in one of them."""
    window: int | None = None
    """Context window in tokens, if the endpoint does not enforce one."""
    timeout: float = 600.0
    """Maximum time for one request, in seconds."""
    max_wait: float = MAX_WAIT
    """Maximum wait that an endpoint may request, in seconds."""
    slots: int = 4
    """Number of conversations that a model in this process keeps in its cache."""
    progress: Callable[[int, int], None] | None = None
    """Receives the downloaded and the total bytes while weights are downloaded."""
    notice: Callable[[str], None] | None = None
    """Receives a message about each fault that is retried."""
    report: Callable[[str], None] | None = None
    """Receives a message, once, about each deviation from the request."""
    recorded: Callable[[str], Model] | None = None
    """Opens a stored run; passed in because this layer does not depend on the store."""
    objects: Mapping[str, Model] = field(default_factory=dict[str, Model])
    """The user's own model objects, by name."""
    meter: UsageMeter | None = None
    """Counts what a session uses, and limits it; None counts nothing."""
    person: Callable[[], Model] | None = None
    """Opens the model ``human``, a person who takes part; None if not possible."""


def open_model(name: str, access: ModelOptions) -> Model:
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


def find_traits(name: str) -> Traits:
    """Return the traits of the model that ``name`` selects, without opening it; defaults for an unknown name.

    Raises:
        InputError: the user's providers file is invalid.
    """
    kind, _, rest = name.partition(":")
    if name == "local":
        return BUILT_IN_MODEL
    if kind in _KINDS:
        return _KINDS[kind]
    if rest:
        from bactrian.models.providers import load_providers

        if (row := load_providers().get(kind)) is not None:
            return row.traits
        if (opener := find_opener(kind)) is not None:
            found: object = getattr(opener, "traits", None)
            return found if isinstance(found, Traits) else Traits(remote=True)
    return Traits()


async def load_local(model: Model) -> None:
    """Load ``model`` if it is local, to detect errors early.

    Raises:
        InputError: the model's file cannot be used.
        ModelError: the model cannot be downloaded or loaded.
    """
    if get_traits(model).in_process:
        from bactrian.models.local.model import LocalModel

        if isinstance(model, LocalModel):
            await model.load()


def _open_local(rest: str, access: ModelOptions) -> Model:
    from bactrian.models.local.gguf import check_gguf
    from bactrian.models.local.hub import fetch_from_hub, read_hub_name
    from bactrian.models.local.model import LocalModel
    from bactrian.models.local.weights import Progress, find_cache_folder

    if (weights := read_hub_name(rest)) is not None:

        def fetch(progress: Progress) -> Path:
            return fetch_from_hub(weights, find_cache_folder(), progress=progress, report=access.report)

        return LocalModel(slots=access.slots, fetch=fetch, progress=access.progress, name=f"local:{rest}")
    path = Path(rest).expanduser() if rest else None
    if path is not None:
        check_gguf(path)
    return LocalModel(path, slots=access.slots, progress=access.progress)


def _open_other(name: str, access: ModelOptions) -> Model:
    """Open a model of a provider or of another package."""
    from bactrian.models.endpoint import open_endpoint
    from bactrian.models.providers import load_providers, split_name

    providers = load_providers()
    parts = split_name(name)
    if parts is not None and parts.provider in providers:
        return open_endpoint(name, parts, providers[parts.provider], access)
    kind, _, rest = name.partition(":")
    if rest and (opener := find_opener(kind)) is not None:
        return open_plugin(name, opener, access)
    if not rest and kind in providers:
        raise InputError(f"{name!r} is a provider and not a model.", next=f"Name its model: {name}:NAME.")
    raise InputError(
        f"There is no model named {name!r}.{_suggest_model(kind, rest, providers)}",
        next=f"A model is one of: {', '.join(MODEL_NAMES)}. `bactrian models` lists the providers.",
    )


def _suggest_model(kind: str, rest: str, providers: Mapping[str, Provider]) -> str:
    """Return a hint that leads to a model: a whole name, with its provider; empty if nothing is near."""
    own = [row.name for row in providers.values() if row.families and kind.lower().startswith(row.families)]
    if own and not rest:
        return f" Did you mean '{own[0]}:{kind}'?"
    alone = [name for name, traits in _KINDS.items() if not rest and traits is OWN_WEIGHTS]
    known = {*alone, *providers, *list_plugins(PLUGINS), *(("scripted", "recorded") if rest else ())}
    # A bare name is rather that of a model than of a provider, so only a slip of the pen counts.
    near = get_close_matches(kind, known, n=1, cutoff=0.6 if rest else 0.8)
    if not near:
        return ""
    found = near[0] if near[0] in alone else f"{near[0]}:{rest or 'NAME'}"
    return f" Did you mean {found!r}?"
