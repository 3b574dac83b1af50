"""Streamed replies, assembled from the events of a stream."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Iterable
from typing import Any

from bactrian.errors import BadReply
from bactrian.language.think import ThoughtFilter
from bactrian.models.http.response import Response
from bactrian.models.http.sse import EventReader
from bactrian.models.openai import tool_calls
from bactrian.models.openai.errors import explain_body
from bactrian.models.openai.lenient_json import decode_json, is_array, is_object
from bactrian.records.text import clean_text

_DONE = b"[DONE]"


async def read_stream(
    response: Response, on_text: Callable[[str], None], on_restart: Callable[[], None] | None = None
) -> StreamedReply:
    """Read a stream to its end, and forward each piece of the first choice's text as it arrives.

    Thoughts are not forwarded; if forwarded text turns out to be a thought, ``on_restart`` discards it.

    A stream that ends without ``[DONE]`` is complete if one of its choices has a finish reason.

    Raises:
        BadReply: an event of the stream is not a chunk of a reply.
        ModelError: the stream contains an error object or is too long.
    """
    events = EventReader()
    gathering = StreamedReply()
    speech = _Speech(on_text, on_restart)
    while piece := await response.read():
        gathering.raw += piece
        if _take(events.feed(piece), gathering, speech):
            break
    else:
        _take(events.end(), gathering, speech)
    speech.end()
    gathering.first_text = speech.begun
    return gathering


class _Speech:
    """Forwards a streamed reply without its thoughts."""

    def __init__(self, on_text: Callable[[str], None], on_restart: Callable[[], None] | None) -> None:
        self._on_text = on_text
        self._on_restart = on_restart
        self._filter = ThoughtFilter()
        self.begun: float | None = None
        """Arrival of the first piece, by the event loop's clock."""

    def add(self, piece: str) -> None:
        had_taken_back = self._filter.has_taken_back
        said = self._filter.feed(piece)
        if self._filter.has_taken_back and not had_taken_back and self._on_restart is not None:
            self._on_restart()
        self._pass_on(said)

    def end(self) -> None:
        self._pass_on(self._filter.end())

    def _pass_on(self, said: str) -> None:
        if said:
            self.begun = self.begun or get_running_loop().time()
            self._on_text(clean_text(said))


def _take(events: Iterable[bytes], gathering: StreamedReply, speech: _Speech) -> bool:
    """Add ``events`` to ``gathering``; return True at the end of the stream."""
    for data in events:
        if data == _DONE:
            gathering.ended = True
            return True
        if text := gathering.add(data):
            speech.add(text)
    return False


class StreamedReply:
    """Accumulates the chunks of a streamed reply."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.ended = False
        """True once a choice has a finish reason or the stream has sent ``[DONE]``."""
        self.first_text: float | None = None
        """Arrival of the first piece of text, by the event loop's clock."""
        self.lossy = False
        self._model: Any = None
        self._fingerprint: Any = None
        self._usage: Any = None
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, data: bytes) -> str:
        """Add the data of one event; return the text it adds to the first choice.

        Raises:
            BadReply: the event is not a chunk of a reply.
            ModelError: the event is an error object.
        """
        try:
            chunk, lossy = decode_json(data)
        except ValueError:
            raise BadReply("An event in the endpoint's stream is not JSON.", sample=data) from None
        if not is_object(chunk):
            raise BadReply("An event in the endpoint's stream is not a JSON object.", sample=data)
        if chunk.get("error"):
            raise explain_body(chunk, data)
        self.lossy = self.lossy or lossy
        self._model = self._model or chunk.get("model")
        self._fingerprint = self._fingerprint or chunk.get("system_fingerprint")
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        return "".join(self._add_choice(choice) for choice in choices) if is_array(choices) else ""

    def _add_choice(self, part: Any) -> str:
        if not is_object(part):
            return ""
        index = part.get("index", 0)
        whole = self._choices.setdefault(
            index if isinstance(index, int) else 0,
            {"texts": [], "thoughts": [], "refusals": [], "calls": {}, "finish_reason": None},
        )
        if part.get("finish_reason") is not None:
            whole["finish_reason"] = part["finish_reason"]
            self.ended = True
        delta = part.get("delta")
        if not is_object(delta):
            return ""
        if "role" in delta:
            whole["role"] = delta["role"]
        if isinstance(refusal := delta.get("refusal"), str):
            whole["refusals"].append(refusal)
        if isinstance(thought := delta.get("reasoning_content") or delta.get("reasoning"), str):
            whole["thoughts"].append(thought)
        tool_calls.merge_call_deltas(whole["calls"], delta.get("tool_calls"))
        text = delta.get("content")
        if not isinstance(text, str):
            return ""
        whole["texts"].append(text)
        return text if index == 0 else ""

    @property
    def empty(self) -> bool:
        """True if the stream contained no chunk of a reply."""
        return not self._choices

    def value(self) -> dict[str, Any]:
        """Return the reply in the form of an unstreamed one."""
        choices = [
            {
                "message": {
                    "role": whole.get("role") or "assistant",
                    "content": "".join(whole["texts"]),
                    "reasoning_content": "".join(whole["thoughts"]),
                    "refusal": "".join(whole["refusals"]),
                    "tool_calls": list(whole["calls"].values()),
                },
                "finish_reason": whole["finish_reason"],
            }
            for _, whole in sorted(self._choices.items())
        ]
        return {
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
            "usage": self._usage,
        }
