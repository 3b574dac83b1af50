"""Opens the models of a session's agents together, and closes them together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from bactrian.models.model import Model
from bactrian.models.registry import ModelOptions, load_local, open_model
from bactrian.models.wrappers.budget import Budget
from bactrian.models.wrappers.recorder import Recorder
from bactrian.models.wrappers.refusals import RefusalCheck
from bactrian.models.wrappers.retry import Retry, RetryPolicy
from bactrian.play.human import Human
from bactrian.records.run import Call


@asynccontextmanager
async def open_models(
    names: Mapping[str, str],
    access: ModelOptions,
    *,
    sink: Callable[[Call], Awaitable[None]] | None = None,
    load: bool = False,
) -> AsyncGenerator[Mapping[str, Model]]:
    """Open the model that ``names`` gives for each agent; agents that share a name share a model.

    Transient faults are retried. ``sink`` receives every call, failed ones too. Humans are neither retried nor
    recorded as calls. With ``load``, models on this computer are loaded immediately.

    Raises:
        InputError: a name stands for no model, or its file cannot be used.
        ModelError: it cannot be loaded.
    """
    models: dict[str, Model] = {}
    try:
        for name in names.values():
            if name not in models:
                model = open_model(name, access)
                if isinstance(model, Human):
                    models[name] = model
                    continue
                if load:
                    await load_local(model)
                retry_policy = RetryPolicy().with_max_wait(access.max_wait)
                inner = Recorder(model, sink) if sink else model
                counted = Budget(inner, access.meter) if access.meter else inner
                models[name] = Retry(RefusalCheck(counted), retry_policy, notice=access.notice)
        yield {agent: models[name] for agent, name in names.items()}
    finally:
        for model in models.values():
            await model.close()
