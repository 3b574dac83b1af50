"""Which shard of the jobs a process makes: as a command says, or by its place in a SLURM array or in Kubernetes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from bactrian.errors import InputError
from bactrian.runs.scheduler import WHOLE, Shard

AUTO = "auto"
_MOST = 1_000_000


def read_shard(text: str | None, variables: Mapping[str, str] = os.environ) -> Shard:
    """Read ``K/N``, or ``auto`` or ``auto/N`` for the place that SLURM or Kubernetes gives this process.

    ``variables`` are those of the environment. All jobs are one shard without a ``text``.

    Raises:
        InputError: the text is none of these, or the environment does not tell the place.
    """
    if text is None:
        return WHOLE
    match = re.fullmatch(r"\s*(auto|\d{1,9})(?:\s*/\s*(\d{1,9}))?\s*", text, re.ASCII)
    if match is None or (match[1] != AUTO and match[2] is None):
        raise InputError(f"{text!r} is not a shard.", option="shard", next="Write K/N, such as 2/8, or auto.")
    count = None if match[2] is None else int(match[2])
    number, count = _find_place(count, variables) if match[1] == AUTO else (int(match[1]), count)
    if count is None or not 1 <= number <= count <= _MOST:
        raise InputError(
            f"There is no shard {number} of {count}.",
            option="shard",
            next=f"Write K/N with K from 1 to N, and N at most {_MOST:,}.",
        )
    return Shard(number, count)


def _find_place(count: int | None, variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the number and the count of this process among those that its launcher started."""
    if "SLURM_ARRAY_TASK_ID" in variables:
        tasks = _read_number(variables, "SLURM_ARRAY_TASK_COUNT")
        first, step = (
            _read_number({name: "1", **variables}, name)
            for name in ("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP")
        )
        last = first + (tasks - 1) * step
        place, rest = divmod(_read_number(variables, "SLURM_ARRAY_TASK_ID") - first, max(step, 1))
        if rest or not 0 <= place < tasks or variables.get("SLURM_ARRAY_TASK_MAX", str(last)) != str(last):
            raise InputError(
                "The tasks of this SLURM array are not numbered in a row, so they are no shards.",
                option="shard",
                next="Begin a whole array, such as 1-8, or give shard=K/N.",
            )
        if count not in (None, tasks):
            raise InputError(
                f"The SLURM array has {tasks:,} tasks and not {count:,}.",
                option="shard",
                next="Begin the whole array, or give shard=K/N with the number of each task.",
            )
        return place + 1, tasks
    if "JOB_COMPLETION_INDEX" in variables:
        if count is None and "JOB_COMPLETION_COUNT" not in variables:
            raise InputError(
                "Kubernetes tells the number of this shard, and not of how many.",
                option="shard",
                next="Write auto/N, with the completions of the job, or set JOB_COMPLETION_COUNT.",
            )
        count = count or _read_number(variables, "JOB_COMPLETION_COUNT")
        return _read_number(variables, "JOB_COMPLETION_INDEX") + 1, count
    raise InputError(
        "Nothing tells which shard this is: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set.",
        option="shard",
        next="Write K/N, such as 2/8, or begin it from a SLURM array or an Indexed Job of Kubernetes.",
    )


def _read_number(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise InputError(
            f"{name} is {text!r}, and not a number." if text else f"{name} is not set.",
            option="shard",
            next="Write K/N, such as 2/8.",
        )
    return int(text)
