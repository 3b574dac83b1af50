"""Where the items of a list come from: a model, or a source of the user's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from bactrian.errors import BactrianError, InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.records.text import clean_text
from bactrian.records.usage import Usage

GROUP = "bactrian.list_sources"
"""Entry points of other packages: a source by its name."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A list that is needed before the jobs that use it can begin."""

    id: str
    """The axis and the positions of the items it depends on, for example ``task@001_002``."""
    axis: str
    """Name of the axis."""
    values: Mapping[str, str]
    """The items it depends on, by axis: those that the axis names in ``per``."""
    count: int
    """Items of the whole list."""
    enough: int
    """Number of items that the jobs within the run's limit need; ``count`` without a limit."""


@dataclass(frozen=True, slots=True)
class ListProgress:
    """The state of a list."""

    items: tuple[str, ...]
    finished: bool
    """True if no further question will be asked; the list may still be short."""
    usage: Usage
    """Of all its calls."""
    calls: int
    why: str = ""
    """The reason why the last reply contained no items; empty if it did."""
    in_flight: int = 0
    """Number of answers in flight, which are kept even if the run stops."""


class ListSource(Protocol):
    """Provides the items of lists."""

    def list_items(self, request: ListRequest, begun: ListProgress | None, /) -> AsyncGenerator[ListProgress]:
        """Yield the whole list after each step, so that it is stored before the next step; the last is finished.

        ``begun`` is what an earlier command stored of this list, None if it stored nothing.

        Raises:
            BactrianError: the items are not available.
        """
        ...


ListFunction = Callable[[ListRequest], Awaitable[Iterable[str]] | Iterable[str]]
"""The simplest source: a function from the request to the items, asynchronous or not."""


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A list source made of a function, which is asked once for each list."""

    name: str
    """For messages."""
    function: ListFunction

    async def list_items(
        self, request: ListRequest, _begun: ListProgress | None
    ) -> AsyncGenerator[ListProgress]:
        """Yield what the function returns, without blanks and duplicates, at most as many as the axis counts.

        Raises:
            InputError: the function failed, or returned something other than texts.
        """
        try:
            given = self.function(request)
            given = await given if isinstance(given, Awaitable) else given
            found: list[object] = list(given)
        except BactrianError:
            raise
        except Exception as error:
            raise InputError(
                f"The list source {self.name!r} failed for {request.id!r}: {type(error).__name__}: {error}.",
                where=f"axes.{request.axis}.source",
                next="Correct it and run the same command again.",
            ) from error
        if isinstance(given, str):
            raise InputError(
                f"The list source {self.name!r} returned a text for {request.id!r} and not a list of texts.",
                where=f"axes.{request.axis}.source",
                next="Return a list.",
            )
        if strange := [item for item in found if not isinstance(item, str)]:
            raise InputError(
                f"The list source {self.name!r} returned {strange[0]!r} for {request.id!r}, which is not a text.",
                where=f"axes.{request.axis}.source",
                next="Return texts.",
            )
        texts = (item.strip() for item in cast("list[str]", found))
        items = tuple(dict.fromkeys(clean_text(item) for item in texts if item and "\0" not in item))
        why = "" if len(items) >= request.count else f"The list source {self.name!r} has no more."
        yield ListProgress(items[: request.count], finished=True, usage=Usage(), calls=0, why=why)


def find_list_source(name: str, own: Mapping[str, ListSource | ListFunction]) -> ListSource:
    """Return the source called ``name``: one of ``own``, or one that an installed package registers.

    Raises:
        InputError: there is no such source, or it cannot be loaded.
    """
    found: object = own.get(name)
    if found is None:
        if name not in list_plugins(GROUP):
            raise InputError(
                f"There is no list source {name!r}.",
                where="source",
                next=f"Install the package that registers it under {GROUP}, or pass it to generate().",
            )
        found = load_plugin(GROUP, name)
    if hasattr(found, "list_items"):
        return cast("ListSource", found)
    if not callable(found):
        raise InputError(
            f"The list source {name!r} is neither an object with list_items nor a function.",
            where="source",
            next="Pass a function of a ListRequest.",
        )
    return FunctionSource(name, cast("ListFunction", found))
