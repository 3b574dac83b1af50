"""The base class of wrappers."""

from __future__ import annotations

from bactrian.models.model import Model
from bactrian.models.traits import Traits, get_traits


class Wrapper:
    """A model that wraps another one: it has the same name and traits, and closes it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        """The name of the wrapped model."""

    @property
    def traits(self) -> Traits:
        """The traits of the wrapped model."""
        return get_traits(self._model)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._model.close()
