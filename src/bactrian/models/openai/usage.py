"""Usage that an endpoint reports, and estimates instead of counts that cannot be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bactrian.models.model import ReplyChoice
from bactrian.models.openai.lenient_json import is_object
from bactrian.records.usage import Usage

BYTES_PER_TOKEN = 4.0
"""For estimates, until the endpoint has reported its own count."""
_LONGEST_TOKEN = 8
"""Bytes for each token from which a count is too small to be true: no tokenizer does so well."""
_PROMPT_SLACK = 16_384
_REPLY_SLACK = 2_048
"""Bytes that may be missing beyond that, in all requests to a model together: a response format or a tool may be sent
in more bytes than an endpoint counts."""
_MOST_TOKENS = 10_000_000
"""Larger token counts are errors, because no window is that large."""


@dataclass(slots=True)
class UsageReader:
    """Reads the usage of the replies of one model, and learns how many bytes one of its tokens has."""

    bytes_per_token: float = BYTES_PER_TOKEN
    _prompt_slack: float = _PROMPT_SLACK
    _reply_slack: float = _REPLY_SLACK

    def learn(self, sent: int, tokens: int) -> None:
        """Learn from a request of ``sent`` bytes that has so many tokens."""
        ratio = sent / tokens
        self.bytes_per_token = (
            ratio if 1.0 <= ratio <= _LONGEST_TOKEN else min(_LONGEST_TOKEN, max(1.0, ratio))
        )

    def estimate(self, sent: int, received: int) -> Usage:
        """Estimate the usage from the bytes sent and received."""
        return Usage(round(sent / self.bytes_per_token), round(received / BYTES_PER_TOKEN), estimated=True)

    def find(self, reported: Any, choices: Sequence[ReplyChoice], sent: int) -> Usage:
        """Return the usage of a reply to a request of ``sent`` bytes.

        It is what the endpoint reports; where a part is missing or cannot be right, the larger of report and estimate.
        """
        usage = read_usage(reported)
        received = len(choices[0].text) if len(choices) == 1 else sum(len(choice.text) for choice in choices)
        if usage is not None and usage.prompt and (usage.completion or not received):
            prompt = sent - usage.prompt * _LONGEST_TOKEN
            reply = received - usage.completion * _LONGEST_TOKEN
            if prompt <= self._prompt_slack and reply <= self._reply_slack:
                if prompt > 0:
                    self._prompt_slack -= prompt
                else:
                    self.learn(sent, usage.prompt)
                if reply > 0:
                    self._reply_slack -= reply
                return usage
        estimated = self.estimate(sent, _count_bytes(choices))
        if usage is None:
            return estimated
        prompt, completion = max(usage.prompt, estimated.prompt), max(usage.completion, estimated.completion)
        return Usage(prompt, completion, usage.cached, estimated=True)


def read_usage(usage: Any) -> Usage | None:
    """Return the usage as it is reported, or None if it is not usable."""
    if not is_object(usage):
        return None
    prompt = _read_count(usage.get("prompt_tokens"))
    completion = _read_count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _read_count(details.get("cached_tokens")) if is_object(details) else None
    return Usage(prompt, completion, cached if cached is not None and cached <= prompt else 0)


def _read_count(value: Any) -> int | None:
    # ``type``: True and False are integers, too.
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _count_bytes(choices: Sequence[ReplyChoice]) -> int:
    said = sum(len(choice.text.encode()) + len(choice.thought.encode()) for choice in choices)
    return said + sum(len(call.arguments.encode()) for choice in choices for call in choice.calls)
