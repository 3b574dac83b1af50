"""Assigns sessions and values to jobs. An imported session is never a job, even if its id is that of a job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from bactrian.generate.jobs.base import Grid, JobPlayer
from bactrian.generate.scheduler import Job
from bactrian.recipes.job_table import AXIS, expand_row
from bactrian.records.events import Event
from bactrian.records.run import Progress
from bactrian.store import RunReader, Store

_SUFFIX = "-made"
"""Appended to the id of a job's session as long as an imported session has that id."""


@dataclass(frozen=True, slots=True)
class JobIds:
    """The ids of a run's jobs."""

    grid: Grid
    imported: frozenset[str]
    """Ids of the sessions that were imported into the run."""

    def name_session(self, job: Job) -> Job:
        """Return ``job`` with the id of its session in the run."""
        name = self._name(job.id)
        return job if name == job.id else replace(job, id=name)

    def _name(self, job_id: str) -> str:
        while job_id in self.imported:
            job_id += _SUFFIX
        return job_id

    async def list_jobs(self, store: RunReader) -> AsyncIterator[tuple[int, Progress]]:
        """Yield every session that belongs to a job, with the number of the job."""
        async for one in store.progress():
            if one.id in self.imported:
                continue
            job_id = one.id
            while job_id.endswith(_SUFFIX):
                job_id = job_id.removesuffix(_SUFFIX)
            if self._name(job_id) != one.id:
                continue
            number = self.grid.find_number(job_id)
            if number is not None:
                yield number, one


@dataclass(frozen=True, slots=True)
class NamedPlayer:
    """Plays each job under an id that differs from those of imported sessions."""

    player: JobPlayer
    ids: JobIds

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Play the session of ``job``."""
        async with aclosing(self.player.play(self.ids.name_session(job), store)) as events:
            async for event in events:
                yield event


@dataclass(frozen=True, slots=True)
class RowPlayer:
    """Plays each job with the values of its row in a table of jobs."""

    player: JobPlayer
    columns: tuple[str, ...]

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Play the session of ``job``."""
        if set(job.values) == {AXIS}:  # A resumed job has the values of its session.
            job = replace(job, values=expand_row(job.values[AXIS], self.columns))
        async with aclosing(self.player.play(job, store)) as events:
            async for event in events:
                yield event
