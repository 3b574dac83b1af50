"""Two filters side by side, with differences and their intervals; and conversations side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bactrian.errors import InputError
from bactrian.explore.filters import ListFilter
from bactrian.explore.index.known import read_findings
from bactrian.explore.index.lists import count_total, count_values
from bactrian.explore.pages.conversation import find_named_session, name_roles, show_turns
from bactrian.explore.rendering import get_explorer, has_agreed, render_page
from bactrian.records.candidate import NOTHING_KNOWN
from bactrian.stats.proportion import Proportion

_SECTIONS = (("ending", "Endings"), ("behaviour", "Behaviours"))
_MOST = 4
"""Conversations side by side."""


@dataclass(frozen=True, slots=True)
class ComparedRate:
    """A share in both filters, and the difference with its 95 % interval (Newcombe)."""

    label: str
    before: Proportion
    after: Proportion

    @property
    def difference(self) -> float:
        """The second share minus the first."""
        return self.after.rate - self.before.rate

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the difference."""
        return self.after.difference_interval(self.before)

    @property
    def is_clear(self) -> bool:
        """True if the interval does not contain 0."""
        low, high = self.interval
        return low > 0 or high < 0


def compare_filters(request: Request) -> Response:
    """Compare the rates of two filters, such as two runs."""
    names = list(get_explorer(request).library.sets)
    queries = [request.query_params.get(key, "") for key in ("one", "two")]
    if not any(queries) and len(names) > 1:
        queries = [f"data={name}" for name in names[:2]]
    filters = [ListFilter.read(QueryParams(query)) for query in queries]
    sections: list[tuple[str, list[ComparedRate]]] = []
    totals: list[int] = []
    if all(queries):
        sides = [list(get_explorer(request).library.list_sides(one.data).values()) for one in filters]
        totals = [count_total(*pair) for pair in zip(sides, filters, strict=True)]
        # A conversation that was not searched yet does not tell whether it shows a behaviour.
        searched = [count_total(*pair, searched=True) for pair in zip(sides, filters, strict=True)]
        sections = [
            (title, _compare(sides, filters, searched if name == "behaviour" else totals, name))
            for name, title in _SECTIONS
        ]
    return render_page(
        request,
        "compare.html",
        queries=queries,
        filters=filters,
        names=names,
        totals=totals,
        sections=[(title, rates) for title, rates in sections if rates],
    )


def _compare(
    sides: Sequence[Sequence[Path]], filters: Sequence[ListFilter], totals: Sequence[int], name: str
) -> list[ComparedRate]:
    before, after = (dict(count_values(*pair, name)) for pair in zip(sides, filters, strict=True))
    codes = sorted({*before, *after}, key=lambda code: -(before.get(code, 0) + after.get(code, 0)))
    return [
        ComparedRate(
            code.replace("_", " "),
            Proportion(before.get(code, 0), totals[0]),
            Proportion(after.get(code, 0), totals[1]),
        )
        for code in codes
    ]


async def compare_conversations(request: Request) -> Response:
    """Show two to four conversations in columns, message by message."""
    chosen = list(dict.fromkeys(request.query_params.getlist("pick")))[:_MOST]
    if len(chosen) < 2:
        raise InputError(
            "Two conversations are needed.", next="Go back, tick two to four in the list, and compare them."
        )
    columns: list[dict[str, Any]] = []
    for pick in chosen:
        data, _, session_id = pick.partition("/")
        one, session = await find_named_session(request, data, session_id)
        if session.mark and not has_agreed(request):
            raise HTTPException(403)
        findings = await asyncio.to_thread(read_findings, one.side, session)
        columns.append(
            {
                "data": one.name,
                "session": session,
                "roles": name_roles(session),
                "turns": list(show_turns(session, session.turns[:100], findings, NOTHING_KNOWN)),
                "findings": len(findings),
            }
        )
    return render_page(request, "side_by_side.html", columns=columns)


ROUTES = (Route("/compare", compare_filters), Route("/compare/conversations", compare_conversations))
