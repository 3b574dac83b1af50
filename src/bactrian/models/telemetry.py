"""Telemetry: metrics of each call and spans of whole sessions, for the user's OpenTelemetry SDK.

Nothing is reported unless the user asks for it, and never what an agent was told or said: no attribute comes from a
message. The names are those of OpenTelemetry's conventions for generative AI.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bactrian._version import __version__
from bactrian.errors import BatchesOut, Halted, InputError, import_optional
from bactrian.models.model import Model, RemoteModel, Reply, Request, Wrapper
from bactrian.models.open import ModelOptions, open_model

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
_INSTALL = "pip install 'bactrian[otel]' opentelemetry-sdk opentelemetry-exporter-otlp"
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
# At most so long a command waits for a collector at its end.
_FLUSH_SECONDS = 5.0
# Kinds of models whose names are paths.
_IN_FILES = ("local", "hf", "scripted", "recorded")
# Where the conventions give a provider another name than we do.
PROVIDERS = {"azure": "azure.ai.openai", "gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
# The bounds that the conventions recommend for the two histograms.
_SECONDS = [0.01 * 2**step for step in range(14)]
_COUNTS = [float(4**step) for step in range(14)]


@dataclass(frozen=True, slots=True)
class TelemetryTerms:
    """Whether calls are reported, and how."""

    asked: bool | None = None
    """None: if one of OpenTelemetry's variables asks for it."""
    share: float = 1.0
    """Share of the sessions of which each call is reported as a span; metrics are of all calls."""
    workflow: str = "play"
    """The name of the recipe."""

    def is_asked(self) -> bool:
        """Return True if the user wants telemetry."""
        off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        by_variable = not off and any(map(os.environ.get, _ENDPOINTS))
        return by_variable if self.asked is None else self.asked

    @asynccontextmanager
    async def open(self, run: str, report: Callable[[str], None] | None) -> AsyncGenerator[Telemetry | None]:
        """Yield what calls are reported to, and flush it at the end; None if nobody asked for it.

        ``report`` receives a message where a variable asks for it in vain, and of the first fault of the exporters.

        Raises:
            MissingExtra: the option asks for it, and the API of OpenTelemetry is not installed.
            InputError: the option asks for it, and its SDK or an exporter is missing.
        """
        if not self.is_asked():
            yield None
            return
        logger = logging.getLogger("opentelemetry")
        say = report or logger.debug
        # Exporters work in threads of their own.
        fault = _FirstFault(partial(asyncio.get_running_loop().call_soon_threadsafe, say))
        logger.addHandler(fault)
        telemetry = None
        try:
            try:
                telemetry = Telemetry(*_find_providers(), self, run.rpartition("/")[2])
            except InputError as error:
                if self.asked:
                    raise
                say(f"{error.what} So there is no telemetry. {error.next}")
            yield telemetry
        finally:
            if telemetry and not await telemetry.flush():
                say(
                    f"OpenTelemetry: the last metrics and spans were not taken within {_FLUSH_SECONDS:.0f} seconds."
                )
            logger.removeHandler(fault)


@asynccontextmanager
async def open_observed(
    name: str, access: ModelOptions, workflow: str, share: float = 0.0
) -> AsyncGenerator[Model]:
    """Open the model ``name``, with its calls reported if a variable asks for it, and close it.

    Raises:
        InputError: the name is unknown, or its file cannot be used.
    """
    async with TelemetryTerms(None, share, workflow).open(access.run, access.report) as telemetry:
        model = open_model(name, access)
        try:
            yield telemetry.trace(model) if telemetry else model
        finally:
            await model.close()


class Telemetry:
    """Reports metrics of all calls, and spans of the sessions that a hash of their ids chooses."""

    def __init__(
        self, tracers: TracerProvider, meters: MeterProvider, terms: TelemetryTerms, run: str = ""
    ) -> None:
        self._providers = tracers, meters
        self._tracer = tracers.get_tracer("bactrian", __version__)
        meter = meters.get_meter("bactrian", __version__)

        def make(name: str, unit: str, words: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, words, explicit_bucket_boundaries_advisory=bounds)

        self.seconds = make("gen_ai.client.operation.duration", "s", "Time of a call", _SECONDS)
        self.tokens = make("gen_ai.client.token.usage", "{token}", "Tokens of a call", _COUNTS)
        self._terms = terms
        self._run = run
        self._sessions: dict[str, Span] = {}

    def trace(self, model: Model) -> Model:
        """Return ``model`` with its calls reported."""
        return Traced(model, self)

    def begin_call(self, request: Request, attributes: Mapping[str, AttributeValue]) -> Span | None:
        """Return the span of a call, in that of its session; None if the session is not chosen."""
        if request.session not in self._sessions and not self._choose(request):
            return None
        from opentelemetry.trace import SpanKind, set_span_in_context

        session = self._sessions.get(request.session) or self._begin_session(request.session)
        sampling = request.sampling
        given: dict[str, AttributeValue | None] = {
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.choice.count": request.n if request.n > 1 else None,
        }
        return self._tracer.start_span(
            f"chat {attributes['gen_ai.request.model']}",
            set_span_in_context(session),
            SpanKind.CLIENT,
            {
                **attributes,
                "gen_ai.conversation.id": request.session,
                "gen_ai.agent.name": request.agent,
                "gen_ai.request.stream": request.on_text is not None,
                **{name: value for name, value in given.items() if value is not None},
            },
        )

    def end_session(self, session: str, turns: int, ending: str) -> None:
        """End the span of a session, if it has one. The code of its ``ending`` is empty if it is left open."""
        if (span := self._sessions.pop(session, None)) is not None:
            span.set_attribute("bactrian.turns", turns)
            if ending:
                span.set_attribute("bactrian.ending", ending)
            span.end()

    async def flush(self) -> bool:
        """End the spans of sessions that were left open, and send what is not sent yet.

        Returns False if that takes longer than a command may wait for it.
        """
        while self._sessions:
            self._sessions.popitem()[1].end()
        # The API has nothing to flush.
        flushes = [getattr(each, "force_flush", None) for each in self._providers]
        sending = [asyncio.create_task(asyncio.to_thread(flush)) for flush in flushes if flush is not None]
        return not sending or not (await asyncio.wait(sending, timeout=_FLUSH_SECONDS))[1]

    def _choose(self, request: Request) -> bool:
        """Return True for a session of which each call is reported. Lists are no sessions: their ids name items."""
        if request.agent == "lister" or not request.session:
            return False
        digest = blake2b(request.session.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) < self._terms.share * 2**64

    def _begin_session(self, session: str) -> Span:
        attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": self._terms.workflow,
            "gen_ai.conversation.id": session,
        }
        if self._run:
            attributes["bactrian.run"] = self._run
        span = self._tracer.start_span(f"invoke_workflow {self._terms.workflow}", attributes=attributes)
        self._sessions[session] = span
        return span


class Traced(Wrapper):
    """Reports each call of ``model``, failed ones too, to ``telemetry``."""

    def __init__(self, model: Model, telemetry: Telemetry) -> None:
        super().__init__(model)
        self._telemetry = telemetry
        self._attributes = describe_model(model)

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``; raises the errors of the wrapped model."""
        span = self._telemetry.begin_call(request, self._attributes)
        begun = time.perf_counter()
        try:
            reply = await self._model.reply(request)
        except (BatchesOut, Halted):  # Its reply is still to come: another command reports it.
            raise
        except BaseException as error:
            self._fail(span, begun, type(error).__name__)  # its text could quote the reply
            raise
        seconds, usage = time.perf_counter() - begun, reply.usage
        outcome = {"gen_ai.response.model": reply.model}
        if usage.tier:
            outcome["openai.response.service_tier"] = usage.tier
        attributes = {**self._attributes, **outcome}
        self._telemetry.seconds.record(seconds, attributes)
        for kind, count in (("input", usage.prompt), ("output", usage.completion)):
            self._telemetry.tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if span is not None:
            span.set_attributes(
                {
                    **outcome,
                    "gen_ai.response.finish_reasons": [choice.finish for choice in reply.choices],
                    "gen_ai.usage.input_tokens": usage.prompt,
                    "gen_ai.usage.output_tokens": usage.completion,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached,
                }
            )
            if reply.first_token is not None:
                span.set_attribute("gen_ai.response.time_to_first_chunk", reply.first_token)
            span.end()
        return reply

    def _fail(self, span: Span | None, begun: float, error: str) -> None:
        outcome = {"error.type": error}
        self._telemetry.seconds.record(time.perf_counter() - begun, {**self._attributes, **outcome})
        if span is not None:
            from opentelemetry.trace import StatusCode

            span.set_attributes(outcome)
            span.set_status(StatusCode.ERROR)
            span.end()


def describe_model(model: Model) -> dict[str, AttributeValue]:
    """Return the attributes that all calls of a model have: provider, model, and the server's host and port."""
    while isinstance(model, Wrapper):
        model = model.inner
    kind, _, name = model.name.partition(":")
    name = name.partition("@")[0]
    if kind in _IN_FILES:
        name = name.rpartition("/")[2]
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(kind, kind),
        "gen_ai.request.model": name or kind,
    }
    if isinstance(model, RemoteModel):
        server = urlsplit(model.endpoint[0])
        attributes["server.address"] = server.hostname or ""
        if server.port is not None:
            attributes["server.port"] = server.port
    return attributes


# The SDK, which the user installs and configures.


def _find_providers() -> tuple[TracerProvider, MeterProvider]:
    """Return what the program was started with (``opentelemetry-instrument``, or Python), or set it up.

    Raises:
        MissingExtra: the API is not installed.
        InputError: the SDK or an exporter is not installed, or a variable cannot be used.
    """
    trace = import_optional("opentelemetry.trace", "otel", "Telemetry")
    metrics = import_optional("opentelemetry.metrics", "otel", "Telemetry")
    if not any(
        hasattr(each, "force_flush") for each in (trace.get_tracer_provider(), metrics.get_meter_provider())
    ):
        logging.getLogger("opentelemetry").propagate = False  # Each attempt would write several lines.
        tracers, meters = set_up_sdk()
        trace.set_tracer_provider(tracers)
        metrics.set_meter_provider(meters)
    return trace.get_tracer_provider(), metrics.get_meter_provider()


def set_up_sdk() -> tuple[TracerProvider, MeterProvider]:
    """Return providers of the SDK as its variables describe them."""
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        own = {"service.name": "bactrian", "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"}
        resource = Resource.create({**own, **OTELResourceDetector().detect().attributes})
        # Runs flush what they report; a second attempt at the exit would double the wait for a collector that is away.
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in _load_exporters("traces"):
            tracers.add_span_processor(BatchSpanProcessor(exporter()))
        made = [exporter() for exporter in _load_exporters("metrics")]
        readers = [
            each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in made
        ]
        return tracers, MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    except ModuleNotFoundError as error:
        raise InputError(
            f"Telemetry needs {error.name}, and it is not installed.", next=f"Install it: {_INSTALL}"
        ) from error
    except (ImportError, TypeError, ValueError) as error:  # The SDK reads some variables when it is imported.
        raise InputError(
            f"OpenTelemetry cannot be set up: {' '.join(str(error).split())}.",
            next="Check the variables whose names begin with OTEL_.",
        ) from error


class _FirstFault(logging.Handler):
    """Reports the SDK's first warning and first error: a collector that is away would be one every few seconds."""

    def __init__(self, report: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report ``record``."""
        # A header may be a key.
        text = str(record.msg).partition(": %s")[0] if "Header" in str(record.msg) else record.getMessage()
        self._report(
            f"OpenTelemetry: {text.rstrip('. ')}. The conversations go on; later faults are not shown."
        )
        self.setLevel(record.levelno + 1)


def _load_exporters(signal: str) -> Iterator[Callable[[], Any]]:
    """Yield the exporters of a signal, ``traces`` or ``metrics``.

    Raises:
        InputError: one is not installed.
    """
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    group = entry_points(group=f"opentelemetry_{signal}_exporter")
    protocols = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in map(str.strip, (os.environ.get(variable) or "otlp").split(",")):
        if name in ("", "none"):
            continue
        where = next(filter(os.environ.get, protocols if name == "otlp" else ()), variable)
        wanted = name if where == variable else os.environ[where]
        # Without a protocol, it is the one that OpenTelemetry's own launcher uses, if it is installed.
        names = _OTLP.values() if wanted == "otlp" else [_OTLP.get(wanted, wanted)]
        found = next((at for each in names for at in group.select(name=each)), None)
        if found is None:
            raise InputError(
                f"OpenTelemetry's exporter {wanted!r} is not installed.",
                where=where,
                next=f"Install it ({_INSTALL}), or name another one.",
            )
        yield found.load()
