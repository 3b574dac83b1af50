"""Models of installed packages: the entry-point group ``bactrian.models``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from bactrian.errors import BactrianError, InputError, ModelError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models.model import Model, RemoteModel, Reply, Request
from bactrian.models.wrappers.base import Wrapper

if TYPE_CHECKING:
    from bactrian.models.registry import ModelOptions

PLUGINS = "bactrian.models"
"""Entry-point group of packages that provide models. An entry point's name is the part before the colon; its function
receives the part after the colon and the :class:`ModelOptions`."""


@cache
def find_opener(kind: str) -> Callable[[str, ModelOptions], Model] | None:
    """Return the function of an installed package that opens models of ``kind``; None if not found.

    Raises:
        InputError: the package cannot be imported.
    """
    if kind not in list_plugins(PLUGINS):
        return None
    return cast("Callable[[str, ModelOptions], Model]", load_plugin(PLUGINS, kind))


def open_plugin(name: str, opener: Callable[[str, ModelOptions], Model], options: ModelOptions) -> Model:
    """Open the model ``name`` by the function ``opener`` of a package.

    Raises:
        InputError: the package refuses the name, or fails.
    """
    try:
        model = opener(name.partition(":")[2], options)
        return _PluginAtEndpoint(model) if isinstance(model, RemoteModel) else PluginModel(model)
    except BactrianError:
        raise
    except Exception as error:
        raise InputError(
            f"The package that opens this model failed: {type(error).__name__}: {error}",
            where=name,
            next="Fix the package; `bactrian --debug play` shows where it failed.",
        ) from error


class PluginModel(Wrapper):
    """A model of a package: what it raises by mistake becomes an error of the model, and ends only its session."""

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            ModelError: as the package raises it, or because its code failed or returned something else.
        """
        try:
            reply = cast("object", await self._model.reply(request))
        except BactrianError:
            raise
        except Exception as error:
            raise ModelError(
                f"The model failed: {type(error).__name__}: {error}",
                where=self.name,
                next="Fix the package that provides it; `bactrian --debug play` shows where it failed.",
            ) from error
        if not isinstance(reply, Reply):
            raise ModelError(
                f"The model returned {type(reply).__name__} and not a Reply.",
                where=self.name,
                next="Fix the package that provides it: `reply` returns a bactrian.models.model.Reply.",
            )
        return reply


class _PluginAtEndpoint(PluginModel):
    """The same with the attributes of :class:`RemoteModel`."""

    _model: RemoteModel  # type: ignore[assignment]

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
