"""From the name a user gives to the model that answers to it. Providers are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from bactrian.errors import InputError
from bactrian.models.model import Model
from bactrian.models.traits import BUILT_IN_MODEL, OWN_WEIGHTS, Traits, get_traits
from bactrian.models.wrappers.retry import MAX_WAIT

MODEL_NAMES = {
    "local": "the built-in model, SmolLM2-135M-Instruct, in this process",
    "local:PATH": "a GGUF file of your own, in this process",
    "openai:NAME": "any chat-completions server",
    "scripted:FILE": "replies from a JSON file",
    "recorded:RUN": "what a stored run said",
}
"""Every kind of model name, and what it stands for."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How to reach models that are not in this process, and what to tell about one that is being fetched."""

    base_url: str | None = None
    """None for the official endpoint."""
    key: str = ""
    window: int | None = None
    """Context window in tokens, where the endpoint does not enforce one itself."""
    timeout: float = 600.0
    """Longest time for one request, in seconds."""
    max_wait: float = MAX_WAIT
    """Longest time that the endpoint may ask to wait, in seconds."""
    slots: int = 4
    """Conversations of one agent that a model in this process keeps in its cache."""
    progress: Callable[[int, int], None] | None = None
    """Told the bytes done and in all while the built-in weights are fetched."""
    notice: Callable[[str], None] | None = None
    """Told of each fault that is waited out."""
    recorded: Callable[[str], Model] | None = None
    """Opens a stored run; it lies above this folder, which knows nothing of stores."""
    person: Callable[[], Model] | None = None
    """The person who takes part under the name ``human``; None where nobody can."""


def open_model(name: str, access: ModelOptions) -> Model:
    """The model that ``name`` stands for. Nothing is fetched, loaded or asked before its first call.

    Raises:
        InputError: there is no such kind of model, or its file cannot be used.
    """
    kind, _, rest = name.partition(":")
    if name == "local" or (kind == "local" and rest):
        from bactrian.models.local.gguf import check_gguf
        from bactrian.models.local.model import LocalModel

        path = Path(rest).expanduser() if rest else None
        if path is not None:
            check_gguf(path)
        return LocalModel(path, slots=access.slots, progress=access.progress)
    if kind == "openai" and rest:
        from bactrian.models.http.timeouts import Timeouts
        from bactrian.models.openai.client import DEFAULT_URL, OpenAIModel

        limits = Timeouts(total=access.timeout, window=access.window)
        return OpenAIModel(rest, base_url=access.base_url or DEFAULT_URL, key=access.key, limits=limits)
    if kind == "scripted" and rest:
        from bactrian.models.scripted import read_script

        return read_script(Path(rest).expanduser())
    if kind == "recorded" and rest and access.recorded is not None:
        return access.recorded(rest)
    if name == "human":
        if access.person is not None:
            return access.person()
        raise InputError("No person can take part here.", next="A person takes part in `bactrian play`.")
    raise InputError(
        f"There is no model named {name!r}.{_did_you_mean(kind)}",
        next=f"A model is one of: {', '.join(MODEL_NAMES)}.",
    )


_TRAITS = {
    "local": OWN_WEIGHTS,
    "openai": Traits("schema", remote=True, priced=True),
}


def find_traits(name: str) -> Traits:
    """The traits of the model that ``name`` stands for, without opening it; the usual ones for an unknown name."""
    if name == "local":
        return BUILT_IN_MODEL
    return _TRAITS.get(name.partition(":")[0], Traits())


async def load_local(model: Model) -> None:
    """Load ``model`` if it is one on this computer, so that what is wrong with it is known before it is needed.

    Raises:
        InputError: its file cannot be used.
        ModelError: it cannot be fetched or loaded.
    """
    if get_traits(model).in_process:
        from bactrian.models.local.model import LocalModel

        if isinstance(model, LocalModel):
            await model.load()


def _did_you_mean(kind: str) -> str:
    kinds = sorted({name.partition(":")[0] for name in MODEL_NAMES})
    close = get_close_matches(kind, kinds, n=1)
    return f" Did you mean {close[0]!r}?" if close and close[0] != kind else ""
