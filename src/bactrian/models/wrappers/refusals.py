"""Finds out whether an endpoint refuses one prompt or every one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import CoroutineType
from typing import Any

from bactrian.errors import Denied, Refused, RefusedPrompt
from bactrian.models.model import Model, Reply, Request
from bactrian.models.wrappers.base import Wrapper
from bactrian.prompts.engine import render_prompt
from bactrian.records.message import Message
from bactrian.records.text import Text

_MOST = 30
"""Prompts that a model refuses in one command before it answers any, from which every one counts as refused."""


class RefusalCheck(Wrapper):
    """Raises :class:`Denied` if ``model`` refuses every prompt, and :class:`RefusedPrompt` if it refuses this one.

    A 403, or a 400 that names no parameter, may be about the prompt or about every request. When the first request
    is refused, a greeting with the same parameters tells which: an endpoint that answers it refused the prompt.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._has_answered = False
        self._answers_others = False
        self._refused = 0
        self._denied: Denied | None = None
        self._checking = asyncio.Lock()

    def reply(self, request: Request) -> CoroutineType[Any, Any, Reply]:
        """Answer ``request``.

        Raises:
            RefusedPrompt: other prompts are answered.
            Denied: no prompt is answered.
            ModelError: as the model raises it.
        """
        # An endpoint that has answered is not examined any more: its refusals are about the prompt.
        return self._model.reply(request) if self._has_answered else self._examine(request)

    async def _examine(self, request: Request) -> Reply:
        """Answer ``request`` while it is not known yet whether the endpoint answers any request."""
        if self._denied is not None:
            raise self._denied
        try:
            reply = await self._model.reply(request)
        except RefusedPrompt as error:
            if not self._has_answered:
                await self._check_others(request, error)
            raise
        self._has_answered = True
        return reply

    async def _check_others(self, request: Request, error: RefusedPrompt) -> None:
        async with self._checking:
            if self._denied is not None:
                raise self._denied from error
            self._refused += 1
            if self._refused >= _MOST:
                self._deny(error, f"The first {_MOST} requests were all refused.")
            if self._answers_others or self._has_answered:
                return
            try:
                await self._model.reply(_make_greeting(request))
            except Refused as refused:
                if isinstance(refused, RefusedPrompt):
                    self._deny(error, "Every request is refused, a simple greeting too.")
                raise
            self._answers_others = True

    def _deny(self, error: RefusedPrompt, why: str) -> None:
        self._denied = Denied(f"{why} {error.what}", where=error.where, next=error.next, sample=error.sample)
        raise self._denied from error


def _make_greeting(request: Request) -> Request:
    """Return a request with the parameters of ``request`` that no endpoint can have an objection to."""
    roles = ("system", "user") if request.messages[0].role == "system" else ("user",)
    greeting = Text(render_prompt("greeting"))
    return replace(
        request,
        messages=tuple(Message(role, greeting) for role in roles),
        n=1,
        on_text=None,
        on_restart=None,
    )
