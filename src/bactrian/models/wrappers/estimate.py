"""Estimates of the usage of requests before they are sent."""

from __future__ import annotations

from pydantic_core import to_json

from bactrian.models.model import Request
from bactrian.records.usage import Usage


def estimate_request(request: Request) -> Usage:
    """Return the most tokens that ``request`` is likely to use.

    The prompt counts a token for every four bytes of its messages' and tools' JSON; the completion is the longest that
    the request allows, for each of its ``n`` replies, and nothing where it sets no limit.
    """
    size = sum([len(message.text.json) for message in request.messages])
    if request.tools:
        size += len(to_json(request.tools))
        size += sum(len(call.arguments) for message in request.messages for call in message.calls)
    return Usage(size // 4, request.n * (request.sampling.max_tokens or 0), estimated=True)
