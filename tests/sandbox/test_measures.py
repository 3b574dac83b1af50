"""What the processes of a sandbox use is counted wherever it is used."""

from __future__ import annotations

import pytest

from bactrian.sandbox.programs import run
from bactrian.sandbox.tiers import MIB, Limits, Tier, Unsafe
from tests.helpers.command import start_python

pytestmark = pytest.mark.system

# Each program computes for two seconds in all, and then ends well.
BURN = """
import os, signal, threading, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def start(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return child
"""
BURNERS = {
    "a child of another thread": """
def wait(): os.waitpid(start(lambda: burn(2)), 0)
thread = threading.Thread(target=wait)
thread.start(); thread.join()
""",
    "children that are reaped": "for _ in range(8): os.waitpid(start(lambda: burn(0.25)), 0)",
    "children whose end is ignored": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(8):
    try: os.waitpid(start(lambda: burn(0.25)), 0)
    except ChildProcessError: pass
""",
    "an orphan in a session of its own": """
reading, writing = os.pipe()
def leave():
    os.setsid()
    start(lambda: burn(2))
start(leave)
os.close(writing)
os.read(reading, 1)
""",
}


@pytest.mark.parametrize("name", BURNERS)
def test_the_time_of_every_process_counts(name: str, tier: Tier) -> None:
    if not tier.limits_processes:
        pytest.skip("this tier allows one process")
    outcome = run(BURN + BURNERS[name], limits=Limits(cpu=0.25, processes=6), tier=tier)
    assert (outcome.ending, outcome.exit_code) == ("time", None), outcome
    assert 0.25 <= outcome.cpu < 1.25


@pytest.mark.slow
def test_what_leaves_its_parents_counts_where_nothing_contains_it() -> None:
    outcome = run(BURN + BURNERS["an orphan in a session of its own"], limits=Limits(cpu=0.5), tier=Unsafe())
    assert outcome.ending == "time"


# Prints the seconds that a clock without the kernel's counter has seen of a child whose end is ignored.
CLOCK = """
import ctypes
from bactrian.sandbox.measures import CpuClock
clock = CpuClock(ctypes.CDLL(None), several=False)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
thread = threading.Thread(target=lambda: start(lambda: burn(0.3)))
thread.start(); thread.join()
seen = clock.measure()
for _ in range(100):
    time.sleep(0.02)
    seen = clock.measure()
print(seen)
"""


@pytest.mark.slow
def test_a_child_that_was_seen_counts_after_its_end_without_the_kernels_counter() -> None:
    out, _ = start_python(BURN + CLOCK).finish()
    assert 0.2 <= float(out) < 0.4


HOLD = """
import mmap, os, time
pages = {pages}
for start in range(0, len(pages), 4096): pages[start] = 1
for number in range(4):
    if not os.fork():
        {inside}
        os._exit(0)
for number in range(4): os.wait()
print('done')
"""


@pytest.mark.parametrize(
    ("pages", "inside", "ending"),
    [
        ("bytearray(200 << 20)", "sum(pages[::4096])", "ok"),  # Each child shares the pages of its parent
        ("mmap.mmap(-1, 200 << 20)", "sum(pages[::4096])", "ok"),
        # 200 MiB of its own in each
        ("bytearray(1)", "kept = bytearray(200 << 20); time.sleep(30)", "memory"),
        ("bytearray(1)", "kept = mmap.mmap(-1, 200 << 20); kept.write(bytes(200 << 20)); time.sleep(30)", "memory"),
    ],
)  # fmt: skip
def test_the_memory_of_all_processes_counts_together_and_shared_pages_once(
    pages: str, inside: str, ending: str, tier: Tier
) -> None:
    if not tier.limits_processes:
        pytest.skip("this tier allows one process")
    limits = Limits(memory=512 * MIB, processes=6, wall=20)
    assert run(HOLD.format(pages=pages, inside=inside), limits=limits, tier=tier).ending == ending
