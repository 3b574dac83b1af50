"""The fields of a request other than model and messages: sampling parameters, constraints and tools."""

from __future__ import annotations

from collections.abc import Collection

from pydantic_core import to_json

from bactrian.models.model import Request, ResponseFormat
from bactrian.models.openai import tool_calls
from bactrian.models.openai.dialect import USUAL, Dialect
from bactrian.models.seeds import fit_seed
from bactrian.records.sampling import Sampling

_KEPT = 64


class OptionEncoder:
    """Encodes the options of an endpoint's requests; a session without a seed repeats the same ones at each turn."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[object, ...], bytes] = {}

    def encode(self, request: Request, *, stream: bool, dialect: Dialect, without: frozenset[str]) -> bytes:
        """Return what :func:`encode_options` returns, from memory if possible."""
        sampling = request.sampling
        if (
            sampling.seed is not None
            or sampling.extra
            or request.tools
            or request.n != 1
            or request.response_format is not None
        ):
            return encode_options(request, stream=stream, dialect=dialect, without=without)
        key = (
            sampling.temperature,
            sampling.top_p,
            sampling.max_tokens,
            sampling.stop,
            sampling.reasoning_effort,
            stream,
            dialect.length,
            without,
        )
        if (found := self._encoded.get(key)) is None:
            if len(self._encoded) >= _KEPT:
                self._encoded.clear()
            found = encode_options(request, stream=stream, dialect=dialect, without=without)
            self._encoded[key] = found
        return found


def encode_options(
    request: Request, *, stream: bool = False, dialect: Dialect = USUAL, without: Collection[str] = ()
) -> bytes:
    """Return the JSON of a request's fields other than model and messages, and the end of its body.

    Parameters in ``without`` are left out.
    """
    options = build_options(request, stream=stream, dialect=dialect, without=without)
    return b"," + to_json(options)[1:] if options else b"}"


def build_options(
    request: Request, *, stream: bool, dialect: Dialect = USUAL, without: Collection[str] = ()
) -> dict[str, object]:
    """Return the fields of a request's body other than model and messages."""
    options = build_parameters(request.sampling, dialect, without)
    if request.n != 1:
        options["n"] = request.n
    if request.response_format is not None:
        options |= _build_constraint(request.response_format, dialect)
    if request.tools:
        options["tools"] = tool_calls.to_wire_tools(request.tools)
        if not request.allow_tool_calls:
            options["tool_choice"] = "none"
    if stream:
        options["stream"] = True
        if "stream_options" not in without:
            options["stream_options"] = {"include_usage": True}
    return options


def build_parameters(
    sampling: Sampling, dialect: Dialect, without: Collection[str] = ()
) -> dict[str, object]:
    """Return the sampling fields, which a server may refuse and can do without."""
    values: dict[str, object | None] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        dialect.length: sampling.max_tokens,
        "seed": None if sampling.seed is None else fit_seed(sampling.seed),
        "stop": sampling.stop or None,
        "reasoning_effort": sampling.reasoning_effort,
    }
    if sampling.extra:
        values |= sampling.extra
    if not (dialect.renamed or without):
        return {name: value for name, value in values.items() if value is not None}
    pairs = ((dialect.renamed.get(name, name), value) for name, value in values.items())
    return {name: value for name, value in pairs if value is not None and name not in without}


def has_grammar(form: ResponseFormat | None, dialect: Dialect) -> bool:
    """Return True if a grammar constrains the reply to the protocol's text."""
    return form is not None and bool(form.grammar) and dialect.constrained_by == "grammar"


def _build_constraint(form: ResponseFormat, dialect: Dialect) -> dict[str, object]:
    if has_grammar(form, dialect):
        return {"grammar": form.grammar}
    if dialect.constrained_by == "none":
        return {}
    shape = {"name": form.name, "strict": True, "schema": form.schema}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}
