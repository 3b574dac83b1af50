"""Statistics of a filter, where every bar is a filter, and the curves of a training."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bactrian.analyze.estimates import COOPERATION, describe_reading, write_precision
from bactrian.analyze.learned import PAPER
from bactrian.explore.facets import FacetIndex
from bactrian.explore.rendering import get_explorer, read_facets, read_listing, render_page, send_csv
from bactrian.explore.session_lists import REPEATED, ListFilter, Listing, make_share
from bactrian.stats.intervals import Proportion, find_wilson_interval
from bactrian.train.training_folder import MEASURES, draw_plots, read_stages

# Most roles on an axis of the heat map, as many as the paper has; those with the most conversations are shown.
LARGEST_MAP = 50
_LENGTHS = ((0, 1), (2, 3), (4, 7), (8, 15), (16, 23), (24, 31), (32, 39), (40, 40), (41, None))
_SECTIONS = (
    ("ending", "Endings"),
    ("behaviour", "Behaviours"),
    ("verdict", "Verdicts on the code"),
    ("axis", "Items of the recipe"),
    ("model", "Models"),
    ("language", "Languages"),
    ("assistant", "AI assistants"),
    ("user", "AI users"),
    ("agent", "Agents of group chats"),
    ("mark", "Marks"),
)
_ROLES_SHOWN = 15
_TOP_PAIRS = 10


# A value, its share of the conversations, and the query of the list behind it.
StatisticsBar = tuple[str, Proportion, str]


# The share of a pair of roles, and the query of the list behind it.
HeatCell = tuple[Proportion, str]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Role pairs: AI assistants down, AI users across."""

    users: Sequence[str]
    rows: Sequence[tuple[str, Sequence[HeatCell | None]]]
    # Roles that have no row or column.
    left_out: int
    # The pairs of all roles that most surely show it often: those with the highest lower ends of intervals.
    top: Sequence[tuple[str, str, HeatCell]]


def show_statistics(request: Request) -> Response:
    """Show the shares of a filter."""
    explorer, listing, facets = get_explorer(request), read_listing(request), read_facets(request)
    among = facets.select(listing.filter)
    total, independent = among.bit_count(), facets.are_independent(among)
    by = request.query_params.get("by", COOPERATION)
    sections = [
        (name, title, bars)
        for name, title in _SECTIONS
        if (bars := list(_list_bars(facets, listing.filter, among, name, independent=independent)))
    ]
    sections.insert(
        2, ("turns", "Messages", list(_list_lengths(facets, listing.filter, among, independent=independent)))
    )
    return render_page(
        request,
        "statistics.html",
        filter=listing.filter,
        total=total,
        open=total - facets.select_ended(among).bit_count(),
        writing=[] if explorer.static else explorer.library.list_writing(listing.filter.data),
        reading=listing.count_stages().describe(listing.filter, behaviours=True),
        sections=sections,
        readings=describe_readings(listing),
        independent=independent,
        sampled=(among & ~facets.searched) > 0,
        by=by,
        measures=[COOPERATION, *sorted(facets.values["behaviour"])],
        map=_build_map(facets, listing.filter, among, by),
    )


def report_statistics(request: Request) -> Response:
    """Return the counts of a filter as JSON."""
    listing, facets = read_listing(request), read_facets(request)
    among = facets.select(listing.filter)
    ended = facets.select_ended(among)
    counts = {name: dict(facets.count(name, ended if name == "ending" else among)) for name, _ in _SECTIONS}
    sizes = {"conversations": among.bit_count(), "open": (among & ~ended).bit_count()}
    return JSONResponse({**sizes, **counts, "read": _list_readings(listing)})


def describe_readings(listing: Listing) -> dict[str, str]:
    """Return in words, by behaviour, how many findings were read and how many of these are right."""
    return {code: describe_reading(of) for code, of in _list_readings(listing).items()}


def _list_readings(listing: Listing) -> dict[str, dict[str, Any]]:
    """Return, by behaviour, how many findings were read and how many of these are right."""
    return {
        code: {"found": sum(read for _, read in readings), "precision": write_precision(readings)}
        for code, readings in listing.count_readings().items()
    }


def _list_bars(
    facets: FacetIndex, list_filter: ListFilter, among: int, name: str, *, independent: bool
) -> Iterator[StatisticsBar]:
    """Yield a label, its share, and the query of the list behind it, for each value."""
    limit = _ROLES_SHOWN if name in ("assistant", "user", "agent") else 40
    among = facets.select_ended(among) if name == "ending" else among
    searched = among & facets.searched
    # Of a part, which was drawn at random, a share is an estimate of that of all.
    is_sample = searched.bit_count() < among.bit_count()
    for value, count in facets.count(name, among)[:limit]:
        changed: Any = value
        total, known = among.bit_count(), independent
        if name == "behaviour":
            changed = tuple(dict.fromkeys((*list_filter.behaviour, value)))
            total, known = (searched & facets.select_able(value)).bit_count(), independent or is_sample
        elif name in REPEATED:
            changed = (value,)
        label = value.replace("_", " ") if name in ("ending", "behaviour", "verdict") else value
        yield label, make_share(count, total, independent=known), list_filter.write(**{name: changed})


def _list_lengths(
    facets: FacetIndex, list_filter: ListFilter, among: int, *, independent: bool
) -> Iterator[StatisticsBar]:
    total, counts = among.bit_count(), Counter[tuple[int, int | None]]()
    for turns, count in facets.count_turns(among).items():
        counts[next(span for span in _LENGTHS if span[1] is None or turns <= span[1])] += count
    for first, last in _LENGTHS:
        if count := counts[first, last]:
            query = list_filter.write(least=first, most=last)
            label = str(first) if first == last else f"{first} to {last}" if last else f"{first} or more"
            yield label, make_share(count, total, independent=independent), query


def _build_map(facets: FacetIndex, list_filter: ListFilter, among: int, by: str) -> HeatMap | None:
    """Return the share of conversations that show ``by``, by role pair; None if there is only one pair."""
    codes = PAPER if by == COOPERATION else (by,)
    able = among & facets.searched & reduce(int.__or__, map(facets.select_able, codes))
    shown = facets.count_pairs(able & facets.select(ListFilter(behaviour=codes, need="any")))
    cells = {pair: (shown.get(pair, 0), count) for pair, count in facets.count_pairs(able).items()}
    if len(cells) < 2:
        return None
    sums: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair, (_, count) in cells.items():
        for side, role in zip(sums, pair, strict=True):
            side[role] += count
    axes = [sorted(name for name, _ in side.most_common(LARGEST_MAP)) for side in sums]

    def make_cell(pair: tuple[str, str]) -> HeatCell | None:
        if pair not in cells:
            return None
        more: dict[str, Any] = {} if by == COOPERATION else {"behaviour": (by,)}
        query = list_filter.write(assistant=pair[0], user=pair[1], sort="findings", **more)
        return Proportion(cells[pair][0], cells[pair][1]), query

    rows = [(role, [make_cell((role, user)) for user in axes[1]]) for role in axes[0]]
    ends = {
        pair: -find_wilson_interval(counts[0] / counts[1], counts[1])[0]
        for pair, counts in cells.items()
        if counts[0]
    }
    surest = sorted(ends, key=lambda pair: (ends[pair], pair))[:_TOP_PAIRS]
    top = [(*pair, cell) for pair in surest if (cell := make_cell(pair))]
    return HeatMap(axes[1], rows, sum(map(len, sums)) - sum(map(len, axes)), top)


# A training: the curves of its stages, and the numbers behind them.


_COLUMNS = ("stage", "step", *MEASURES)


async def show_training(request: Request) -> Response:
    """Show the curves of a training, finished or not."""
    name, root = request.path_params["name"], _find_training(request)
    stages = await asyncio.to_thread(read_stages, root)
    plots = draw_plots(stages)
    return render_page(request, "training.html", name=name, root=root, stages=stages, plots=plots)


async def write_csv(request: Request) -> Response:
    """Return every logged step as a table."""
    stages = await asyncio.to_thread(read_stages, _find_training(request))
    rows = ([getattr(row, column) for column in _COLUMNS] for stage in stages for row in stage.rows)
    return send_csv(_COLUMNS, rows)


def _find_training(request: Request) -> Path:
    name = request.path_params["name"]
    trainings = get_explorer(request).library.trainings
    if name not in trainings:
        raise HTTPException(404, f"There is no training {name!r}.")
    return trainings[name]


ROUTES = (
    Route("/statistics", show_statistics),
    Route("/statistics.json", report_statistics),
    Route("/training/{name}", show_training),
    Route("/training/{name}/steps.csv", write_csv),
)
