"""Facets: the values by which a list can be narrowed, each with the number of conversations that it leads to.

A value is one number, in which bit n says whether the n-th conversation has it. So a count follows any filter in some
microseconds. The numbers are read once, and again when the index has changed.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from bactrian.explore.library import Library
from bactrian.explore.library_index import read_index
from bactrian.explore.session_lists import ListFilter, Listing, group_axes
from bactrian.records.session import UNFINISHED
from bactrian.stats.intervals import are_independent

# The parts of a filter that have counts, with their titles; an axis has a title of its own.
TITLES: Mapping[str, str] = {
    "data": "Data",
    "ending": "Ending",
    "behaviour": "Behaviour",
    "verdict": "Verdict on the code",
    "mark": "Mark",
    "model": "Model",
    "language": "Language",
    "axis": "Axis",
    "assistant": "AI assistant",
    "user": "AI user",
    "agent": "Agent of a group chat",
}
# Values whose absence can be asked for.
_DENIABLE = frozenset(("behaviour", "mark"))
_BY_FACTS = ("ending", "language", "assistant", "user")
# Values that are counted, and that are shown, of a facet; the most frequent ones.
_MOST_COUNTED, _MOST_SHOWN = 200, 24
# Counts are read again at the earliest after so many times of what that took: an index that is built always changes.
_RARELY = 20
# Seconds for reading the counts.
_LONGEST = 60.0
RED = "red-team"


class Scope(NamedTuple):
    """What decides which behaviours a conversation can show at all."""

    kind: str
    needs_code: bool
    has_instructor: bool


class FacetChoice(NamedTuple):
    """A value, and where a click on it leads."""

    value: str
    # Conversations that have it.
    number: int
    query: str
    # True if the filter has it; the click then takes it out.
    chosen: bool
    # The list of those without it; None where that cannot be asked for.
    without: str | None
    # True if the filter asks for those; that click then takes it out.
    denied: bool


class Facet(NamedTuple):
    """A part of the filter with its values, the most frequent first."""

    name: str
    title: str
    choices: Sequence[FacetChoice]
    # True if there are more values than these.
    is_cut: bool

    @property
    def is_used(self) -> bool:
        """True if the filter has one of the values."""
        return any(choice.chosen or choice.denied for choice in self.choices)


@dataclass(frozen=True, slots=True)
class FacetIndex:
    """Which conversations of the data sets have which values."""

    path: Path
    # Names of the data sets by the number of the run in the index.
    names: Mapping[int, str]
    # Of the conversations in the index, in the order of the bits.
    rows: Sequence[int]
    # By facet and value.
    values: Mapping[str, Mapping[str, int]]
    # Facets with more values than are counted.
    cut: frozenset[str]
    # Those that were searched for behaviours.
    searched: int
    scopes: Mapping[Scope, int]
    # Of each conversation, in the same order: messages, the number of the task, and that of the pair of roles.
    turns: Sequence[int]
    tasks: Sequence[int]
    pairs: Sequence[int]
    # Both roles of each pair.
    roles: Sequence[tuple[str, str]]

    @property
    def everything(self) -> int:
        """All conversations."""
        return (1 << len(self.rows)) - 1

    def select(self, list_filter: ListFilter) -> int:
        """Return the conversations that fit. Raises TooSlow if a search takes too long."""
        bits, said = (
            self.everything,
            {"need": "", "sort": "", "view": "", "after": "", "least": None, "most": None},
        )
        for name in TITLES:
            given = getattr(list_filter, name)
            words = (given,) if isinstance(given, str) else given
            plain = [word.removeprefix("-") if name in _DENIABLE else word for word in words]
            # Of a facet with too many values, the rare ones are not known here.
            if given and (name not in self.cut or all(word in self.values[name] for word in plain)):
                said[name] = type(given)()
                bits &= self._select_values(name, words, either=bool(list_filter.need))
        if list_filter.least is not None or list_filter.most is not None:
            lengths = range(
                list_filter.least or 0, (sys.maxsize if list_filter.most is None else list_filter.most) + 1
            )
            bits &= _read_bits(map(lengths.__contains__, self.turns))
        rest = replace(list_filter, **said)
        if not rest.is_empty or rest.data:
            # One that came after the counts were read is not among them.
            among = frozenset(Listing(self.path, self.names, rest).list_rows())
            bits &= _read_bits(map(among.__contains__, self.rows))
        return bits

    def _select_values(self, name: str, words: Sequence[str], *, either: bool) -> int:
        """Return the conversations that have what a filter asks of one facet; of behaviours ``either``, or all."""
        if name == "axis":
            return reduce(int.__and__, (self._unite(name, items) for _, items in group_axes(words)))
        if name not in _DENIABLE:
            return self._unite(name, words)
        wanted = [word for word in words if not word.startswith("-")]
        groups = [wanted] if wanted and either else [[word] for word in wanted]
        bits = reduce(int.__and__, (self._unite(name, some) for some in groups), self.everything)
        if name == "behaviour" and len(wanted) < len(words):
            bits &= self.searched
        return bits & ~self._unite(name, (word[1:] for word in words if word.startswith("-")))

    def _unite(self, name: str, values: Iterable[str]) -> int:
        return reduce(int.__or__, (self.values[name].get(value, 0) for value in values), 0)

    def select_able(self, code: str) -> int:
        """Return the conversations that can show a behaviour, as a report counts them."""
        # Imported here: the first page does not need it.
        from bactrian.analyze.estimates import can_show

        return reduce(int.__or__, (bits for scope, bits in self.scopes.items() if can_show(scope, code)), 0)

    def select_ended(self, among: int) -> int:
        """Return those of some conversations that have ended: the others are no result."""
        return among & ~self.values["ending"].get(UNFINISHED, 0)

    def count(self, name: str, among: int) -> list[tuple[str, int]]:
        """Count the values of a facet among some conversations, the most frequent first."""
        counts = ((value, (bits & among).bit_count()) for value, bits in self.values[name].items())
        return sorted(
            ((value, count) for value, count in counts if count), key=lambda pair: (-pair[1], pair[0])
        )

    def count_turns(self, among: int) -> Counter[int]:
        """Count some conversations by their number of messages."""
        return Counter(compress(self.turns, _list_bits(among)))

    def count_pairs(self, among: int) -> dict[tuple[str, str], int]:
        """Count some conversations by their pair of roles; a group chat has none."""
        return {
            self.roles[pair]: count
            for pair, count in Counter(compress(self.pairs, _list_bits(among))).items()
            if self.roles[pair][1]
        }

    def are_independent(self, among: int) -> bool:
        """Return whether no two of some conversations share a pair of roles or a task."""
        distinct = (len(set(compress(column, _list_bits(among)))) for column in (self.pairs, self.tasks))
        return are_independent(among.bit_count(), *distinct)

    def list_facets(self, list_filter: ListFilter) -> Iterator[Facet]:
        """Yield the facets that can narrow or widen a list. A number is that of the conversations behind the click."""
        whole = self.select(list_filter)
        for name in TITLES:
            if name == "axis":
                for axis in sorted({item.partition(": ")[0] for item in self.values["axis"]}):
                    yield from self._make_facet(list_filter, whole, "axis", axis)
            else:
                yield from self._make_facet(list_filter, whole, name, TITLES[name])

    def _make_facet(self, list_filter: ListFilter, whole: int, name: str, title: str) -> Iterator[Facet]:
        begin = f"{title}: " if name == "axis" else ""
        given: Any = getattr(list_filter, name)
        words: tuple[str, ...] = (given,) * bool(given) if isinstance(given, str) else given
        chosen = [word for word in words if word.startswith(begin)]
        among = whole
        if chosen and (name != "behaviour" or list_filter.need):
            # A click on another value replaces or widens it: so what is chosen here does not count.
            others = "" if isinstance(given, str) else tuple(word for word in words if word not in chosen)
            among = self.select(replace(list_filter, **{name: others}))
        if len(self.values[name]) < 2 and name not in _DENIABLE and not chosen:
            return
        counts = dict(self.count(name, among))
        asked = [word.removeprefix("-") if name in _DENIABLE else word for word in chosen]
        shown = dict.fromkeys((*asked, *(value for value in counts if value.startswith(begin))))
        choices = [
            self._make_choice(list_filter, name, value, counts.get(value, 0), value in chosen)
            for value in list(shown)[:_MOST_SHOWN]
        ]
        if choices:
            yield Facet(name, title, choices, len(shown) > len(choices) or name in self.cut)

    def _make_choice(
        self, list_filter: ListFilter, name: str, value: str, count: int, chosen: bool
    ) -> FacetChoice:
        given: Any = getattr(list_filter, name)
        denied = f"-{value}" in ((given,) if isinstance(given, str) else given)

        def lead(new: str) -> str:
            if isinstance(given, str):
                return list_filter.write(**{name: new})
            rest = tuple(other for other in given if other.removeprefix("-") != value)
            return list_filter.write(**{name: (*rest, new) if new else rest})

        return FacetChoice(
            value,
            count,
            lead("" if chosen else value),
            chosen,
            None if name not in _DENIABLE else lead("" if denied else f"-{value}"),
            denied,
        )


_AS_NUMBERS, _AS_DIGITS = bytes.maketrans(b"01", b"\0\1"), bytes.maketrans(b"\0\1", b"01")


def _list_bits(bits: int) -> bytes:
    """Return the bits as bytes of 0 and 1, the lowest first."""
    return bin(bits)[:1:-1].encode().translate(_AS_NUMBERS)


def _read_bits(answers: Iterable[bool]) -> int:
    """Return a bit for each answer, the lowest first."""
    return int(bytes(answers).translate(_AS_DIGITS)[::-1] or b"0", 2)


def _set_bits(places: Iterable[int], size: int) -> int:
    octets = bytearray(size // 8 + 1)
    for place in places:
        octets[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(octets, "little")


def read_facets(path: Path, names: Mapping[int, str]) -> FacetIndex:
    """Read the values of all conversations of some data sets. Raises TooSlow if that takes too long."""
    found: dict[str, defaultdict[str, list[int]]] = {name: defaultdict(list) for name in TITLES}
    scopes = defaultdict[Scope, list[int]](list)
    searched: list[int] = []
    rows, tasks, turns, pairs = array("q"), array("q"), array("q"), array("q")
    roles: dict[tuple[str, str], int] = {}
    with read_index(path, names, seconds=_LONGEST) as index:
        query = (
            "SELECT row, task, turns, mark, kind, needs_code, has_instructor, seen_turns,"  # noqa: S608
            f" {', '.join(_BY_FACTS)} FROM facts"
        )
        lists = [found[name] for name in _BY_FACTS]
        for place, (row, task, count, mark, kind, needs_code, instructs, seen, *facts) in enumerate(
            index.execute(f"{query} ORDER BY row")
        ):
            rows.append(row)
            tasks.append(task)
            turns.append(count)
            pairs.append(roles.setdefault((facts[-2], facts[-1]), len(roles)))
            found["data"][names[row >> 32]].append(place)
            if kind == "talk":
                facts[-2:] = None, None
            scopes[Scope(kind, bool(needs_code), bool(instructs))].append(place)
            for values, value in zip(lists, facts, strict=True):
                if value is not None:
                    values[value].append(place)
            if seen >= 0:
                searched.append(place)
            if mark is not None:
                found["mark"][RED].append(place)
        places = {row: place for place, row in enumerate(rows)}
        others = "SELECT 'mark', mark, row FROM marks UNION ALL SELECT facet, value, row FROM traits"
        for name, value, row in index.execute(others):
            if (place := places.get(row)) is not None:
                found[name][value].append(place)
    size = len(rows)
    # What an earlier state of a conversation showed does not count while it is searched again.
    known = _set_bits(searched, size)
    values = {
        name: {
            value: _set_bits(some, size) & (known if name == "behaviour" else -1)
            for value, some in sorted(of.items(), key=lambda pair: -len(pair[1]))[:_MOST_COUNTED]
        }
        for name, of in found.items()
    }
    cut = frozenset(name for name, of in found.items() if len(of) > _MOST_COUNTED)
    return FacetIndex(
        path,
        names,
        rows,
        values,
        cut,
        known,
        {scope: _set_bits(some, size) for scope, some in scopes.items()},
        turns,
        tasks,
        pairs,
        list(roles),
    )


@dataclass(slots=True)
class FacetCache:
    """The facets of a library, which are read again when its index has changed."""

    _facets: FacetIndex | None = None
    _version: tuple[Any, ...] = ()
    # When they may be read again.
    _from: float = 0.0
    _work: Future[None] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, library: Library) -> FacetIndex:
        """Return the facets of all data sets. Raises TooSlow if a query takes too long."""
        while (facets := self.peek(library, None)) is None:
            pass  # A data set was added meanwhile.
        return facets

    def peek(self, library: Library, patience: float | None) -> FacetIndex | None:
        """Return the facets of all data sets; those of before, or None, if that takes longer than ``patience`` seconds.

        Raises:
            TooSlow: a query takes too long.
        """
        names = {data_set.number: name for name, data_set in library.sets.items()}
        with self._lock:
            version = (names, *_read_version(library.index))
            is_due = version != self._version and time.monotonic() >= self._from
            if self._work is None and (is_due or self._version[:1] != (names,)):
                self._work = self._thread.submit(self._read, library.index, names, version)
            work = self._work
        if work is not None and work in wait([work], patience).done:
            with self._lock:
                self._work = None if self._work is work else self._work
            work.result()
        return self._facets if self._facets is not None and self._facets.names == names else None

    def _read(self, index: Path, names: Mapping[int, str], version: tuple[Any, ...]) -> None:
        began = time.monotonic()
        self._facets, self._version = read_facets(index, names), version
        now = time.monotonic()
        self._from = now + _RARELY * (now - began)


def _read_version(path: Path) -> tuple[int, ...]:
    """Return something that differs when the index was written."""
    status = [file.stat() for file in (path, path.with_name(path.name + "-wal")) if file.exists()]
    return tuple(part for stat in status for part in (stat.st_size, stat.st_mtime_ns))
