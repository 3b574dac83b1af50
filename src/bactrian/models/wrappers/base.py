"""What all wrappers have in common."""

from __future__ import annotations

from bactrian.models.model import Model
from bactrian.models.traits import Traits, get_traits


class Wrapper:
    """A model around another: it has the other's name and traits, and closes it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        """The name of the model within."""

    @property
    def traits(self) -> Traits:
        """The traits of the model within."""
        return get_traits(self._model)

    async def close(self) -> None:
        """Close the model within."""
        await self._model.close()
