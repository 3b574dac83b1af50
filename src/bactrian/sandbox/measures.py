"""What the processes of a sandbox use: CPU time and memory. Runs around a sandbox, without the package."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import time

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
# PERF_TYPE_SOFTWARE, the size of the structure, PERF_COUNT_SW_TASK_CLOCK, and the flags: inherit, without kernel and
# hypervisor.
_TASK_CLOCK = struct.pack("IIQQQQQ16x", 1, 64, 1, 0, 0, 0, 1 << 1 | 1 << 5 | 1 << 6)
_CLOSE_ON_EXEC = 8


class CpuClock:
    """Counts the CPU time of all descendants of this process, whether they live, were reaped or are lost.

    The kernel adds the time of a process to its parent when the parent reaps it. The time of one whose parent ignores
    its end is lost, unless the kernel lets this process count events: then every descendant is counted to the end.
    Otherwise a process that was seen counts as it was seen last.
    """

    def __init__(self, libc: ctypes.CDLL, *, several: bool) -> None:
        """Begin to count; ``several`` is False for one process that can start no other."""
        self._clock = -1
        if several:
            number = _PERF_EVENT_OPEN.get(os.uname().machine, -1)
            self._clock = libc.syscall(number, _TASK_CLOCK, 0, -1, -1, _CLOSE_ON_EXEC)
        self._begun = time.process_time()
        self._seen: dict[tuple[int, str], tuple[float, float]] = {}
        self._gone = self._reaped = 0.0

    def measure(self) -> float:
        """Return the seconds until now."""
        if self._clock >= 0:
            total = int(struct.unpack("Q", os.read(self._clock, 8))[0]) / 1e9
            return max(0.0, total - (time.process_time() - self._begun))
        seen: dict[tuple[int, str], tuple[float, float]] = {}
        for process in list_descendants():
            # The name, in brackets, may contain anything.
            fields = "".join(_read_lines(f"/proc/{process}/stat")).rpartition(")")[2].split()
            if fields:
                # The start tells apart two processes that have had the same number.
                key, ticks = (process, fields[19]), [int(field) / _TICKS for field in fields[11:15]]
                seen[key] = ticks[0] + ticks[1], ticks[2] + ticks[3]
        self._gone += sum(sum(times) for key, times in self._seen.items() if key not in seen)
        self._reaped += sum(reaped - self._seen.get(key, (0, 0))[1] for key, (_, reaped) in seen.items())
        self._seen = seen
        return sum(map(sum, seen.values())) + max(0.0, self._gone - self._reaped)


def measure_memory(most: int) -> int:
    """Return the bytes of memory of all descendants; shared pages count once if that decides whether it is too much."""
    processes = list_descendants()
    total = sum(_read_resident(process) for process in processes)
    return total if total <= most else sum(_read_share(process) for process in processes)


def measure_deleted(folder: str) -> float:
    """Return the bytes of files without a name that descendants hold; infinity if they are held but not open.

    A process can hold such a file in a socket, or in its memory after it has closed it: what it takes cannot be told.
    A thread may have descriptors of its own.
    """
    sizes: dict[int, int] = {}
    for process in list_descendants():
        for task in list_folder(f"/proc/{process}/task"):
            if not _add_deleted(f"/proc/{process}/task/{task}", sizes):
                return float("inf")
        if _find_mapped(process, folder) - set(sizes):
            return float("inf")
    return sum(sizes.values())


def _add_deleted(task: str, sizes: dict[int, int]) -> bool:
    """Add the sizes of open files without a name by inode. Return False if some are in a socket."""
    for handle in list_folder(f"{task}/fd"):
        try:
            facts = os.stat(f"{task}/fd/{handle}")
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0:
                sizes[facts.st_ino] = facts.st_blocks * 512
            elif stat.S_ISSOCK(facts.st_mode):
                with open(f"{task}/fdinfo/{handle}") as file:
                    if any(line.startswith("scm_fds:") and int(line[8:]) for line in file):
                        return False
        except OSError:
            # The program has closed it.
            continue
    return True


def _find_mapped(process: int, folder: str) -> set[int]:
    """Return the inodes of files without a name, of ``folder``, that are in the memory of a process."""
    inodes: set[int] = set()
    for line in _read_lines(f"/proc/{process}/maps"):
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(f"{folder}/") and fields[5].endswith(" (deleted)"):
            inodes.add(int(fields[4]))
    return inodes


def list_descendants() -> list[int]:
    """Return the processes below this one, those first whose parents are nearest."""
    found = list_children(os.getpid())
    for process in found:
        found += list_children(process)
    return found


def list_children(process: int) -> list[int]:
    """Return the children of all threads of a process."""
    return [
        int(child)
        for task in list_folder(f"/proc/{process}/task")
        for line in _read_lines(f"/proc/{process}/task/{task}/children")
        for child in line.split()
    ]


def list_folder(path: str) -> list[str]:
    """Return the names in a folder; none if it is gone."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read().split("\n")
    except OSError:
        return []


def _read_resident(process: int) -> int:
    fields = " ".join(_read_lines(f"/proc/{process}/statm")).split()
    return int(fields[1]) * _PAGE if fields else 0


def _read_share(process: int) -> int:
    """Return the bytes of a process, with its share of the pages that it shares."""
    for line in _read_lines(f"/proc/{process}/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return _read_resident(process)
