"""Routes of a page that are imported with its first request, so that the first page of all comes soon."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class LazyPages(BaseRoute):
    """The routes ``ROUTES`` of a module in ``bactrian.explore.pages``."""

    def __init__(self, module: str, addresses: Sequence[str]) -> None:
        self._module = module
        self._exact = frozenset(addresses)
        self._below = tuple(one for one in addresses if one.endswith("/") and one != "/")

    @cached_property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes of the module, which is imported."""
        return import_module(f"bactrian.explore.pages.{self._module}").ROUTES

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how well one of the routes fits; the module is not imported for other addresses."""
        path = scope.get("path", "")
        if path not in self._exact and not path.startswith(self._below):
            return Match.NONE, {}
        partial: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            match, more = route.matches(scope)
            if match is Match.FULL:
                return match, {**more, "route": route}
            if match is Match.PARTIAL:
                partial = match, {**more, "route": route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the route that fits."""
        await scope["route"].handle(scope, receive, send)
