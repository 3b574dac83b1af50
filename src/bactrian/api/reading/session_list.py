"""The sessions that a selection returns."""

from __future__ import annotations

from bactrian.api.reading.selection import SelectOptions, iterate_selected, read_selection
from bactrian.records.session import Session
from bactrian.records.text import show
from bactrian.store import RunReader


class SessionList(tuple[Session, ...]):
    """A list of sessions that can be shown.

    Example:
        >>> sessions = run.select(ending="task_done")
        >>> len(sessions), sessions[0].task.text
        (1, 'Choose a tea')
    """

    __slots__ = ()

    def show(self) -> None:
        """Display the sessions in a notebook, or print their transcripts elsewhere.

        Example:
            >>> run.select(ending="task_done").show()
            Expert × Beginner
            idea: Choose a tea
            ...
        """
        show(self)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "<hr>".join(session._repr_html_() for session in self)  # pyright: ignore[reportPrivateUsage]


async def select_sessions(
    opened: RunReader, filters: SelectOptions, sample: int | None, seed: int
) -> SessionList:
    """Return the sessions that fit all ``filters``, or ``sample`` of them at random. Raises InputError."""
    async with opened.snapshot() as store:
        selection = await read_selection(store, filters)
        found = iterate_selected(store, selection, sample=sample, seed=seed)
        return SessionList([one.session async for one in found])
