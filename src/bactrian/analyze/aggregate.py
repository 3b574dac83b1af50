"""Analyzes a run in parts: a session's summary, the sums over many sessions, samples of texts, their diversity."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import multiprocessing
import os
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from bactrian.analyze.behaviours import OwnBehaviour, find_behaviours, find_installed
from bactrian.analyze.learned import has_instructor
from bactrian.detect.detector import LIKELY, POSSIBLE
from bactrian.detect.turn_text import compute_jaccard
from bactrian.errors import BactrianError, InputError, MissingExtra
from bactrian.records.run import BEHAVIOURS, Behaviour, Finding, FindingKey
from bactrian.records.session import UNFINISHED, Kind, Session, find_kind, name_agents
from bactrian.records.turn import Instruction, Solution, Speaker, Usage
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles
from bactrian.store import RunStore, open_store
from bactrian.store.store import Rows

# Texts in a block for distinct-n, which decreases with their number, so that only equal blocks are
# comparable.
BLOCK = 100
ALIKE = 0.7  # Jaccard similarity of shingles from which two texts are near-duplicates
_SHINGLE = 3  # words in a shingle
_PERMUTATIONS = 128
_BANDS = 32  # Bands of four rows: two texts with similarity 0.7 are missed once in 6,000 cases
# Scripts without spaces are split into characters.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Diversity:
    """Diversity of a sample of texts."""

    texts: int  # number of texts in the sample
    # By n, distinct n-grams as a share of all, over blocks of a hundred texts (over all if there are
    # fewer).
    distinct: dict[int, StreamingMean]
    near_duplicates: int  # number of texts with at least one near-duplicate


def measure_diversity(texts: Sequence[str]) -> Diversity:
    """Measure ``texts``, given in random order.

    Raises:
        MissingExtra: ``rensa`` is not installed.
    """
    words = [_WORD.findall(text.lower()) for text in texts]
    distinct = {n: StreamingMean() for n in (1, 2, 3)}
    for start in range(0, max(len(words) - BLOCK, 0) + 1, BLOCK):
        for n, mean in distinct.items():
            grams = [gram for text in words[start : start + BLOCK] for gram in _grams(text, n)]
            if grams:
                mean.add(len(set(grams)) / len(grams))
    return Diversity(len(texts), distinct, _near_duplicates(words))


def _grams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


def _near_duplicates(texts: Sequence[Sequence[str]]) -> int:
    """Return the number of texts with a near-duplicate."""
    try:
        rensa: Any = import_module("rensa")  # one small wheel, without SciPy
    except ModuleNotFoundError as error:
        raise MissingExtra("analysis", "The search for near-duplicates") from error
    times = Counter(frozenset(map(" ".join, _grams(text, _SHINGLE))) or frozenset(text) for text in texts)
    different = list(times)
    hashes: list[Any] = []
    index = rensa.RMinHashLSH(ALIKE, _PERMUTATIONS, _BANDS)
    for number, shingles in enumerate(different):
        minhash = rensa.RMinHash(_PERMUTATIONS, 1)
        minhash.update(sorted(shingles))
        hashes.append(minhash)
        index.insert(number, minhash)
    alike = {number for number, shingles in enumerate(different) if times[shingles] > 1}
    for number, minhash in enumerate(hashes):
        if number not in alike:
            for other in map(int, index.query(minhash)):
                if other != number and compute_jaccard(different[number], different[other]) >= ALIKE:
                    alike |= {number, other}
                    break
    return sum(times[different[number]] for number in alike)


# A reproducible sample of texts, independent of the order of reading.


LARGEST = 10_000  # most texts in a sample


@dataclass(slots=True)
class HashSample:
    """The texts whose keys have the smallest hashes: pseudo-random and reproducible."""

    seen: int = 0
    # Texts, each with the hash of its key.
    texts: list[tuple[bytes, str]] = field(default_factory=list[tuple[bytes, str]])

    def add(self, key: str, text: str) -> None:
        """Add ``text`` if its key is in the sample; ``key`` is its position."""
        self.seen += 1
        self.texts.append((blake2b(key.encode(), digest_size=8).digest(), text))
        self._trim(2 * LARGEST)

    def merge(self, other: HashSample) -> None:
        """Add the texts of ``other``."""
        self.seen += other.seen
        self.texts += other.texts
        self._trim(2 * LARGEST)

    def list_chosen(self) -> list[str]:
        """Return the sample in pseudo-random order."""
        return [text for _, text in nsmallest(LARGEST, self.texts)]

    def _trim(self, above: int) -> None:
        if len(self.texts) > above:
            self.texts = nsmallest(LARGEST, self.texts)


# Aggregated numbers of a part of a run.


# The summary of a session: all numbers that the report needs, without texts.


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with a finding."""

    behaviour: Behaviour
    speaker: Speaker
    turn: int

    @property
    def round(self) -> int:
        """Number of the round (instruction and solution), from 1."""
        return (self.turn + 1) // 2


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The numbers of a session."""

    id: str
    kind: Kind
    assistant: str
    user: str
    roles: tuple[str, ...]  # Names of all roles; of a group chat, all its agents'
    ending: str
    user_turns: int
    assistant_turns: int
    solved: int  # turns that are solutions by the inception protocol
    usage: Usage
    found: tuple[ShownTurn, ...]
    # Candidates: they count if a reader confirms them.
    possible: tuple[ShownTurn, ...] = ()
    # What counts: what was found, without what readers rejected, and the candidates that they confirmed.
    seen: tuple[ShownTurn, ...] = ()
    needs_code: bool = False  # True if its recipe asks for code in every solution
    has_usage: bool = True  # False if another program made it, and its tokens are not known
    has_instructor: bool = True  # False if nobody's part is to instruct, so that no role can flip
    # Hash of id, roles and original task: sessions of two runs with the same one are on the same job.
    job: bytes = b""
    task: bytes = b""  # Hash of the task as both agents saw it
    idea: bytes = b""  # Hash of the task as it was before a specifier changed it

    @property
    def rounds(self) -> int:
        """Rounds (instruction and solution) that were begun. One that consists of the done token is none."""
        return (self.messages + (self.ending != "task_done")) // 2

    @property
    def messages(self) -> int:
        """Turns of all agents."""
        return self.user_turns + self.assistant_turns

    @property
    def behaviours(self) -> frozenset[Behaviour]:
        """The behaviours found in it."""
        return frozenset(shown.behaviour for shown in self.seen)


def _hash_texts(*texts: str) -> bytes:
    """Return 8 bytes that differ for different texts: one pair in 10¹⁹ would not."""
    return hashlib.blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8).digest()


def summarize(
    session: Session, custom: Sequence[OwnBehaviour] = (), *, explain: bool = True
) -> tuple[SessionSummary, tuple[Finding, ...]]:
    """Return the summary of ``session``, with built-in behaviours and those of ``custom``, and its findings.

    Without ``explain``, some findings have no quote and no reason.
    """
    findings = find_behaviours(session, least=POSSIBLE, custom=custom, explain=explain)
    # In a group chat, all agents count as not instructing.
    speakers: dict[int, Speaker] = {
        turn.number: "user" if turn.speaker == "user" else "assistant" for turn in session.turns
    }
    user_turns = sum(speaker == "user" for speaker in speakers.values())
    found, possible = (
        tuple(
            ShownTurn(finding.behaviour, speakers[finding.turn], finding.turn)
            for finding in findings
            if (finding.confidence >= LIKELY) == counts
        )
        for counts in (True, False)
    )
    facts = SessionSummary(
        id=session.id,
        kind=find_kind(session),
        assistant=session.assistant.name,
        user=session.user.name,
        roles=tuple(name_agents(session)),
        ending=session.ending.code if session.ending else UNFINISHED,
        user_turns=user_turns,
        assistant_turns=len(speakers) - user_turns,
        solved=sum(isinstance(turn.said, Solution) for turn in session.turns),
        usage=session.usage,
        found=found,
        possible=possible,
        seen=found,
        needs_code=session.provenance.needs_code,
        has_usage=bool(session.usage.total) or not session.provenance.is_imported,
        has_instructor=has_instructor(session),
        job=_hash_texts(session.id, session.assistant.name, session.user.name, session.task.original),
        task=_hash_texts(session.task.text),
        idea=_hash_texts(session.task.original),
    )
    return facts, findings


def _settle(session: SessionSummary, answers: Mapping[FindingKey, bool]) -> SessionSummary:
    turns = (
        (shown, counts) for of, counts in ((session.found, True), (session.possible, False)) for shown in of
    )
    seen = (
        shown for shown, counts in turns if answers.get((session.id, shown.turn, shown.behaviour), counts)
    )
    return replace(session, seen=tuple(seen))


@dataclass(slots=True)
class Aggregate:
    """The numbers of some sessions of a run."""

    facts: list[SessionSummary] = field(default_factory=list[SessionSummary])
    findings: list[Finding] = field(default_factory=list[Finding])  # only if requested
    # Durations of replies, by agent. Turns without a duration are left out.
    seconds: defaultdict[str, StreamingQuantiles] = field(
        default_factory=lambda: defaultdict(StreamingQuantiles)
    )
    # Prompt tokens by number of the turn and agent.
    growth: defaultdict[tuple[int, Speaker], StreamingMean] = field(
        default_factory=lambda: defaultdict(StreamingMean)
    )
    tasks: HashSample = field(default_factory=HashSample)
    instructions: HashSample = field(default_factory=HashSample)
    prompts: Counter[str] = field(default_factory=Counter[str])  # sessions by prompt pack
    # Calls by name of the tool and by kind of failure; empty for success.
    tools: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    marks: set[str] = field(default_factory=set[str])
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS  # the behaviours that were detected
    # What readers say of findings
    answers: Mapping[FindingKey, bool] = field(default_factory=dict[FindingKey, bool])

    def settle(self, answers: Mapping[FindingKey, bool]) -> None:
        """Count what readers confirm, and do not count what they reject."""
        self.answers = answers
        if answers:
            self.facts = [_settle(session, answers) for session in self.facts]

    def add(self, session: Session, custom: Sequence[OwnBehaviour] = (), *, keep_findings: bool) -> None:
        """Add ``session``, with findings of the built-in behaviours and of ``custom``."""
        facts, findings = summarize(session, custom, explain=keep_findings)
        self.facts.append(facts)
        if keep_findings:
            self.findings += findings
        for turn in session.turns:
            if turn.seconds > 0:
                self.seconds[turn.speaker].add(turn.seconds)
            self.tools.update(
                (use.call.wanted.name, (use.result.problem if use.result else None) or "")
                for use in turn.uses
            )
            if turn.usage.prompt:
                self.growth[turn.number, turn.speaker].add(turn.usage.prompt)
            if isinstance(turn.said, Instruction):
                self.instructions.add(f"{session.id} {turn.number}", turn.said.instruction)
        self.tasks.add(session.id, session.task.specified or session.task.original)
        self.prompts[session.provenance.prompts] += 1
        if session.mark:
            self.marks.add(session.mark)

    def merge(self, other: Aggregate) -> None:
        """Add the numbers of ``other``."""
        self.facts += other.facts
        self.findings += other.findings
        for agent, spread in other.seconds.items():
            self.seconds[agent].merge(spread)
        for turn, mean in other.growth.items():
            self.growth[turn].merge(mean)
        self.tasks.merge(other.tasks)
        self.instructions.merge(other.instructions)
        self.prompts += other.prompts
        self.tools += other.tools
        self.marks |= other.marks
        self.behaviours = other.behaviours


async def aggregate_slice(
    sessions: AsyncIterator[Session], custom: Sequence[OwnBehaviour] = (), *, keep_findings: bool
) -> Aggregate:
    """Aggregate ``sessions``, with findings of the built-in behaviours and of ``custom``."""
    part = Aggregate(behaviours=(*BEHAVIOURS, *(behaviour.code for behaviour in custom)))
    async for session in sessions:
        part.add(session, custom, keep_findings=keep_findings)
    return part


# Analyzes a whole run: a small one in a thread, a large one with one process per core.


S = TypeVar("S")
T = TypeVar("T")
_START = 1.2  # seconds of CPU time that a process takes until it reads: measured, nearly all of it imports


async def map_parts(
    read: Callable[[S], T], parts: Sequence[S], processes: int | None = None
) -> AsyncIterator[T]:
    """Yield what ``read`` returns for each part, in order; only a few parts are read ahead.

    Args:
        read: Is sent to the processes, so a function of a module, or a ``partial`` of one.
        parts: What to read, such as ranges of rows, each about as much work.
        processes: Their number at most; 1 for a thread of this process. None for one per core, once the parts that a
            thread has read show that these would save more time than they take to start.

    Raises:
        BactrianError: one of the processes was killed.
    """
    workers = min(len(parts), processes or os.cpu_count() or 1)
    apart = workers > 1 and processes is not None
    done = 0
    while done < len(parts) and not apart:
        began = time.process_time()
        yield await asyncio.to_thread(read, parts[done])
        done += 1
        seconds, left = time.process_time() - began, len(parts) - done
        # Processes must save more than their start takes.
        apart = seconds * left * (1 - 1 / max(1, min(workers, left))) > _START
    if apart:
        async for result in _read_apart(read, parts[done:], workers):
            yield result


async def _read_apart(read: Callable[[S], T], parts: Sequence[S], workers: int) -> AsyncIterator[T]:
    """Yield what ``read`` returns for each part, in order; ``workers`` processes read."""
    # Spawned, because a fork would share the open database and the locks of threads.
    with _without_working_folder():
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin)
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[T]] = []
    try:
        for part in parts:
            with _without_working_folder():
                waiting.append(loop.run_in_executor(pool, read, part))
            if len(waiting) > 2 * workers:
                yield await waiting.pop(0)
        while waiting:
            yield await waiting.pop(0)
    except BrokenProcessPool as error:
        raise BactrianError(
            "A process that read the run was killed, probably for lack of memory. Nothing was written.",
            next="Free some memory, and run the same command.",
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for future in waiting:
            # asyncio would report the failure of each that nobody asks for. None is cancelled: the thread of a broken
            # pool sets the failure of each, and would itself fail at one that is.
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


@contextmanager
def _without_working_folder() -> Generator[None]:
    """Start processes that do not import modules from the working folder, as ``python -c`` does by default."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _begin() -> None:
    """Ignore Ctrl-C, which the main process handles, and end with it even if it is killed.

    What is imported by now stays, and detecting makes few cycles: the garbage collector need not look so often.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_SLICE = 250  # sessions in a slice


async def measure(
    store: RunStore,
    on_findings: Callable[[list[Finding]], None] | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    custom: Sequence[OwnBehaviour] | None = None,
    *,
    only: frozenset[str] | None = None,
    processes: int | None = None,
) -> Aggregate:
    """Read every session of ``store`` once, whether the run is finished or not.

    Args:
        store: May be written by another process at the same time.
        on_findings: Called with the findings in the order of the sessions; they are not kept.
        on_progress: Called with the number of sessions read, and with their number in the run.
        custom: User-defined behaviours; those of installed packages if None.
        only: Ids of the sessions that count; None for all.
        processes: Number of processes, to which ``custom`` is sent; 1 for this process only. None for one per core if
            the run is so large that they save time.

    Raises:
        InputError: the run has no session, or a behaviour of the user's own fails.
        StoreError: it cannot be read.
    """
    custom = find_installed() if custom is None else tuple(custom)
    keep_findings = on_findings is not None
    whole = Aggregate()
    async with store.snapshot() as run:
        slices = await run.slices(_SLICE)
        size = 0 if on_progress is None else len([None async for _ in run.progress()])
        if on_progress is not None:
            on_progress(0, size)
        # Each process opens its own snapshot; these are equal only if no process writes.
        alone = processes == 1 or await run.is_open()
        read = partial(_read, run if alone else store.source, custom, only, keep_findings=keep_findings)
        async for part in map_parts(read, slices, 1 if alone else processes):
            if on_findings is not None:
                on_findings(part.findings)
                part.findings = []
            whole.merge(part)
            if on_progress is not None:
                on_progress(len(whole.facts), size)
        whole.settle(await run.answers())
        paid = defaultdict[str, Usage](Usage)
        for spent in await run.list_spent():
            paid[spent.session] += spent.usage
    # A session also cost the calls that led to no turn.
    whole.facts = [
        replace(each, usage=paid[each.id]) if paid[each.id].total > each.usage.total else each
        for each in whole.facts
    ]
    if not whole.facts:
        raise InputError(
            "The run has no session.", where=str(store.path), next="Generate or import some first."
        )
    return whole


def _read(
    source: RunStore | Path,
    custom: Sequence[OwnBehaviour],
    only: frozenset[str] | None,
    rows: Rows,
    *,
    keep_findings: bool,
) -> Aggregate:
    async def read() -> Aggregate:
        opened = nullcontext(source) if isinstance(source, RunStore) else open_store(source, read_only=True)
        async with opened as store:
            counted = (each async for each in store.sessions(rows) if only is None or each.id in only)
            return await aggregate_slice(counted, custom, keep_findings=keep_findings)

    return asyncio.run(read())
