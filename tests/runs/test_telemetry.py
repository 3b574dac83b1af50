"""Metrics and spans of a run, as the SDK of OpenTelemetry receives them; without being asked, nothing at all."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    openai_attributes,
    server_attributes,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

import bactrian as bt
from bactrian.errors import BatchesOut, InputError, MissingExtra
from bactrian.models.budget import UsageMeter
from bactrian.models.model import Model, Wrapper
from bactrian.models.open import ModelOptions, open_model
from bactrian.models.telemetry import (
    PROVIDERS,
    TelemetryTerms,
    Traced,
    describe_model,
    set_up_sdk,
)
from bactrian.recipes.load import load_recipe
from bactrian.runs.kinds import choose_models, make_plan
from bactrian.runs.wiring import RunLimits, RunOrder, open_run_models, prepare_run
from tests.helpers.batch_server import BatchServer
from tests.helpers.batched import play as play_batches
from tests.helpers.command import LINES, Command, bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import asks, said, stored
from tests.helpers.packages import install

SECONDS = gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION
TOKENS = gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE
CHAT, WORKFLOW = "chat any", "invoke_workflow small"
CALLS = 3 + 12 * 4
"""Three lists, and twelve conversations of four messages."""
Attributes = dict[str, Any]


class Point(NamedTuple):
    """A point of a histogram."""

    metric: str
    unit: str | None
    times: int
    sum: float
    attributes: Attributes


class Collector:
    """The SDK in this process, with exporters in memory."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self._counted: dict[str, tuple[int, float]] = {}
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        trace.set_tracer_provider(tracers)
        metrics.set_meter_provider(MeterProvider([self._metrics]))

    @property
    def spans(self) -> list[ReadableSpan]:
        """What ended since the test began."""
        return list(self._spans.get_finished_spans())

    def read(self) -> list[Point]:
        """What was counted since it was read before."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        points: list[Point] = []
        for metric in (
            each for of in data.resource_metrics for scope in of.scope_metrics for each in scope.metrics
        ):
            for point in metric.data.data_points:
                assert isinstance(point, HistogramDataPoint)
                attributes = dict(point.attributes or {})
                key = f"{metric.name} {sorted(attributes.items())}"
                count, total = self._counted.get(key, (0, 0.0))
                self._counted[key] = point.count, point.sum
                if point.count > count:
                    points.append(
                        Point(metric.name, metric.unit, point.count - count, point.sum - total, attributes)
                    )
        return points

    def forget(self) -> None:
        """Begin anew."""
        self._spans.clear()
        if self._metrics.get_metrics_data() is not None:
            self.read()


@pytest.fixture(scope="session")
def sdk() -> Collector:
    return Collector()


@pytest.fixture
def collector(sdk: Collector) -> Iterator[Collector]:
    sdk.forget()
    yield sdk
    sdk.forget()


async def play(
    folder: Path, endpoint: Endpoint, terms: TelemetryTerms, limit: int | None = None
) -> UsageMeter:
    """Make the small run as the command does."""
    recipe = load_recipe(str(folder / "small.toml"))
    plan = make_plan(recipe, choose_models(recipe, f"vllm:any@{endpoint.url}", {}))
    access = ModelOptions(telemetry=terms, run=str(folder / "run.db"))
    meter = UsageMeter()
    order = RunOrder(plan, folder / "run.db", access, meter, RunLimits(concurrency=8), limit)
    async with prepare_run(order) as work:
        await work.run()
    return meter


def spread(spans: list[ReadableSpan], name: str) -> list[Attributes]:
    """The attributes of the spans with this name."""
    return [dict(span.attributes or {}) for span in spans if span.name == name]


def list_wrappers(model: Model) -> list[type]:
    found: list[type] = []
    while isinstance(model, Wrapper):
        found.append(type(model))
        model = model.inner
    return found


async def test_without_telemetry_no_wrapper_is_there() -> None:
    recipe = load_recipe("ai-society")
    plan = make_plan(recipe, choose_models(recipe, "vllm:m@http://127.0.0.1:9/v1", {}))
    order = RunOrder(plan, Path("run.db"), ModelOptions(), UsageMeter(), RunLimits())

    async def keep(call: object) -> None: ...

    async with TelemetryTerms().open("", None) as telemetry:
        assert telemetry is None
        async with open_run_models(order, keep, telemetry) as opened:
            assert Traced not in list_wrappers(opened.models["user"])


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_ask_for_it_and_the_option_outranks_them(
    variables: dict[str, str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert TelemetryTerms().is_asked() is asked
    assert TelemetryTerms(True).is_asked()
    assert not TelemetryTerms(False).is_asked()


async def test_each_call_is_counted_and_a_session_is_one_trace(folder: Path, collector: Collector) -> None:
    async with Endpoint([said]) as endpoint:
        used = (await play(folder, endpoint, TelemetryTerms(True, 1.0, "small"))).used
        assert len(endpoint.requests) == CALLS
    points = collector.read()
    usual = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "any",
        "gen_ai.response.model": "served-model",
        "server.address": "127.0.0.1",
        "server.port": int(endpoint.url.split(":")[2].removesuffix("/v1")),
    }
    timed = [point for point in points if point.metric == SECONDS]
    assert [(point.unit, point.times, point.attributes) for point in timed] == [("s", CALLS, usual)]
    assert {
        point.attributes["gen_ai.token.type"]: (point.unit, point.sum)
        for point in points
        if point.metric == TOKENS
    } == {"input": ("{token}", used.prompt), "output": ("{token}", used.completion)}
    sessions = {
        span.context.span_id: span for span in collector.spans if span.name == WORKFLOW and span.context
    }
    assert len(sessions) == 12
    calls = [span for span in collector.spans if span.name == CHAT]
    assert Counter(span.parent and span.parent.span_id for span in calls) == Counter(
        dict.fromkeys(sessions, 4)
    )
    for attributes in spread(collector.spans, WORKFLOW):
        assert (attributes["bactrian.run"], attributes["gen_ai.workflow.name"]) == ("run.db", "small")
        assert (attributes["bactrian.turns"], attributes["bactrian.ending"]) == (4, "max_messages")
    first = spread(calls, CHAT)[0]
    assert first["gen_ai.agent.name"] == "user"
    assert first["gen_ai.conversation.id"] in {"001_001", "002_001", "003_001"}
    assert first["gen_ai.response.finish_reasons"] == ("stop",)
    for kind, total in (
        ("input", used.prompt),
        ("output", used.completion),
        ("cache_read.input", used.cached),
    ):
        of_sessions = sum(call[f"gen_ai.usage.{kind}_tokens"] for call in spread(calls, CHAT))
        assert 0 < of_sessions <= total


@pytest.mark.parametrize(("limit", "ending"), [(2, "max_messages"), (9, "task_done")])
def test_the_span_of_a_played_conversation_says_how_many_turns_it_has_and_how_it_ended(
    tmp_path: Path, collector: Collector, limit: int, ending: str
) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(LINES))
    model = f"scripted:{tmp_path / 'replies.json'}"
    bt.play("Time tea", model=model, telemetry=True, max_messages=limit, run=tmp_path / "run.db")
    (attributes,) = spread(collector.spans, "invoke_workflow play")
    assert (attributes["bactrian.turns"], attributes["bactrian.ending"]) == (min(limit, 3), ending)


async def test_sessions_are_chosen_as_a_whole_and_the_same_ones_again(
    folder: Path, collector: Collector
) -> None:
    chosen: list[Counter[str]] = []
    for _ in range(2):
        async with Endpoint([said]) as endpoint:
            await play(folder, endpoint, TelemetryTerms(True, 0.5, "small"))
        assert sum(point.times for point in collector.read() if point.metric == SECONDS) == CALLS
        chosen.append(Counter(call["gen_ai.conversation.id"] for call in spread(collector.spans, CHAT)))
        collector.forget()
        (folder / "run.db").unlink()
    assert chosen[0] == chosen[1]
    assert set(chosen[0].values()) == {4}
    assert 0 < len(chosen[0]) < 12


async def test_a_failed_call_has_the_class_of_its_error_and_not_its_text(
    folder: Path, collector: Collector
) -> None:
    def fail(request: Received) -> Plan:
        answered = asks(request) == "lister"
        return said(request) if answered else Answer({"error": {"message": "bad word ZEBRA"}}, 404)

    async with Endpoint([fail]) as endpoint:
        await play(folder, endpoint, TelemetryTerms(True, 1.0, "small"), limit=1)
    failed = [
        point.attributes["error.type"] for point in collector.read() if "error.type" in point.attributes
    ]
    (call,) = [span for span in collector.spans if span.name == CHAT]
    assert [dict(call.attributes or {})["error.type"]] == failed
    assert call.status.status_code is trace.StatusCode.ERROR
    assert "ZEBRA" not in call.to_json()
    assert call.events == ()


async def test_a_call_whose_batch_a_later_command_collects_is_counted_once(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-this-test")
    stops = 0
    async with BatchServer(looks=1) as server:
        for _ in range(20):
            try:
                await play_batches(
                    tmp_path, server.url, "openai", tasks=1, batch_wait=0.0, telemetry=True, trace_share=1.0
                )
                break
            except BatchesOut:
                stops += 1
        assert stops > 3
        assert server.paid_twice == 0
        paid = sum(server.paid.values())
    assert sum(point.times for point in collector.read() if point.metric == SECONDS) == paid
    assert len(spread(collector.spans, CHAT)) == 2 * 4
    assert not any("error.type" in (span.attributes or {}) for span in collector.spans)


def list_names(*modules: Any) -> set[str]:
    """The values of the constants of the conventions."""
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


async def test_all_names_are_those_of_the_released_conventions(folder: Path, collector: Collector) -> None:
    def fail_once(request: Received) -> Plan:
        if len(endpoint.requests) == 5:
            return Answer("busy", status=503)
        return {**completion(str(said(request))), "service_tier": "flex"}

    async with Endpoint([fail_once]) as endpoint:
        await play(folder, endpoint, TelemetryTerms(True, 1.0, "small"))
    points = collector.read()
    assert {point.metric for point in points} <= list_names(gen_ai_metrics)
    used = {name for span in collector.spans for name in span.attributes or {}}
    used |= {name for point in points for name in point.attributes}
    assert {"error.type", "openai.response.service_tier"} <= used
    known = list_names(gen_ai_attributes, openai_attributes, error_attributes, server_attributes)
    assert {name for name in used if not name.startswith("bactrian.")} - known == set()
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {
        str(dict(span.attributes or {})["gen_ai.operation.name"]) for span in collector.spans
    } <= operations
    types = {each.value for each in gen_ai_attributes.GenAiTokenTypeValues}
    assert {point.attributes.get("gen_ai.token.type", "input") for point in points} == types


def test_providers_have_the_names_of_the_conventions() -> None:
    assert set(PROVIDERS.values()) <= {each.value for each in gen_ai_attributes.GenAiProviderNameValues}


async def test_no_attribute_has_a_piece_of_what_was_said(folder: Path, collector: Collector) -> None:
    """Roles, tasks, prompts and replies: no word of them is in any name or value."""
    words = {
        "chef",
        "pilot",
        "nurse",
        "student",
        "bake",
        "bread",
        "kite",
        "wound",
        "instruction",
        "solution",
        "done",
    }
    async with Endpoint([said]) as endpoint:
        await play(folder, endpoint, TelemetryTerms(True, 1.0, "small"))
        sent = " ".join(request.body.decode().lower() for request in endpoint.requests)
    assert all(word in sent for word in words)
    reported = [span.to_json() for span in collector.spans]
    reported += [json.dumps(point) for point in collector.read()]
    text = " ".join(reported).lower()
    assert len(reported) > CALLS
    assert [word for word in words if word in text] == []


def test_a_model_in_a_file_is_named_without_its_folder(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Yes."]')
    model = open_model(f"scripted:{tmp_path}/replies.json", ModelOptions())
    assert describe_model(model) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "replies.json",
    }


def test_the_sdk_is_set_up_as_its_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    for variables, name in (
        ({}, "bactrian"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_SERVICE_NAME": "", "OTEL_RESOURCE_ATTRIBUTES": "service.name=its"}, "its"),
    ):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        tracers, meters = set_up_sdk()
        assert isinstance(tracers, TracerProvider)
        assert isinstance(meters, MeterProvider)
        assert tracers.resource.attributes["service.name"] == name
        assert str(tracers.resource.attributes["service.instance.id"]).endswith(f"-{os.getpid()}")
        tracers.shutdown()
        meters.shutdown()


def test_without_an_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(InputError, match=r"not installed.\nInstall it: pip install .* opentelemetry-sdk"):
        set_up_sdk()


async def test_without_the_api_the_option_is_refused_and_a_variable_gives_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bactrian\[otel\]'"):
        async with TelemetryTerms(True).open("run.db", None):
            pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    notices: list[str] = []
    async with TelemetryTerms().open("run.db", notices.append) as telemetry:
        assert telemetry is None
    assert "So there is no telemetry. Install it: pip install 'bactrian[otel]'" in notices[0]


def test_an_exporter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(LINES))
    command = ("play", "Time tea", "--model", "scripted:replies.json", "--run", "run.db")
    refused = bactrian(
        *command,
        "--telemetry",
        cwd=tmp_path,
        own_process=True,
        OTEL_TRACES_EXPORTER="console",
        OTEL_METRICS_EXPORTER="carrier_pigeon",
    )
    assert refused.returncode == 2
    assert (
        "OTEL_METRICS_EXPORTER: OpenTelemetry's exporter 'carrier_pigeon' is not installed." in refused.stderr
    )
    noted = bactrian(
        *command,
        cwd=tmp_path,
        own_process=True,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318",
        OTEL_TRACES_EXPORTER="console",
        OTEL_METRICS_EXPORTER="carrier_pigeon",
    )
    assert noted.returncode == 0
    assert "So there is no telemetry." in noted.stderr


EXPORTER = """
import time
from opentelemetry.sdk.trace.export import SpanExporter

class Away(SpanExporter):
    def export(self, spans):
        {export}
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("export", "notice"),
    [
        pytest.param(
            "time.sleep(60)",
            "OpenTelemetry: the last metrics and spans were not taken within 5 seconds.",
            marks=pytest.mark.slow,
        ),
        ("raise OSError", "The conversations go on; later faults are not shown."),
    ],
    ids=["silent", "failing"],
)
async def test_a_collector_that_is_away_loses_no_turn_and_is_reported_once(
    tmp_path: Path, export: str, notice: str
) -> None:
    install(
        tmp_path, "away", EXPORTER.format(export=export), "opentelemetry_traces_exporter", "away = away:Away"
    )
    (tmp_path / "replies.json").write_text(json.dumps(LINES))
    done = bactrian(
        *("play", "Time tea", "--model", "scripted:replies.json", "--run", "run.db", "--telemetry"),
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path),
        OTEL_TRACES_EXPORTER="away",
        OTEL_METRICS_EXPORTER="none",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="1",
    )
    assert done.returncode == 0, done.stderr
    assert " ".join(done.stderr.split()).count(notice) == 1, done.stderr
    assert [len(session.turns) for session in await stored(tmp_path)] == [3]


@pytest.mark.slow
async def test_what_an_interrupted_run_did_is_sent_before_it_ends(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.1)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        model = ("--model", f"vllm:any@{endpoint.url}", "--telemetry", "--trace-share", "1")
        variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
        command = ("generate", "small.toml", "--run", "run.db", "--concurrency", "4", *model)
        process = Command(command, folder, clean_environment(**variables), own_process=True)
        while len(endpoint.requests) < 12:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert process.returncode == 130, err
        calls, lists = len(endpoint.requests), Counter(map(asks, endpoint.requests))["lister"]
    text = out.decode()
    assert text.count('"name": "chat any"') == calls - lists
    assert text.count(f'"name": "{WORKFLOW}"') >= 3
    assert re.findall(COUNT, text, re.DOTALL)[0] == str(calls)


CONSOLE = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    **dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"), "console"),
}
COUNT = r'"name": "gen_ai.client.operation.duration".*?"count": (\d+)'


@pytest.mark.system
def test_a_judge_and_what_writes_questions_are_counted_too(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(LINES))
    (tmp_path / "judge.json").write_text(json.dumps({"judge": ["Yes. It does."] * 99}))
    (tmp_path / "lister.json").write_text(json.dumps({"lister": ["1. Who keeps bees?\n2. What is honey?"]}))
    play = ("play", "Time tea", "--model", "scripted:replies.json", "--run", "run.db")
    assert bactrian(*play, cwd=tmp_path).returncode == 0
    judge = ("analyze", "run.db", "--judge", "scripted:judge.json", "--sample", "2")
    judged = bactrian(*judge, cwd=tmp_path, own_process=True, text=None, **CONSOLE)
    assert judged.returncode == 0, judged.stderr
    (asked,) = re.findall(r"is asked (\d+) question", judged.stderr)
    assert re.findall(COUNT, judged.stdout, re.DOTALL) == [asked]
    write = ("evaluate", "questions", "code", "--model", "scripted:lister.json", "-n", "2")
    wrote = bactrian(*write, cwd=tmp_path, own_process=True, text=None, **CONSOLE)
    assert wrote.returncode == 0, wrote.stderr
    assert re.findall(COUNT, wrote.stdout, re.DOTALL) == ["1"]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier", "exporter 'carrier' is not installed."),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x", "must be a non-negative integer but got x."),
        ("OTEL_BSP_SCHEDULE_DELAY", "x", "Unable to parse value for OTEL_BSP_SCHEDULE_DELAY as integer."),
        ("OTEL_TRACES_SAMPLER", "x", "Couldn't recognize sampler x."),
        (
            "OTEL_METRIC_EXPORT_INTERVAL",
            "0",
            "interval value 0.0 is invalid and needs to be larger than zero.",
        ),
    ],
)
@pytest.mark.system
def test_a_variable_with_a_bad_value_is_said_in_words_and_costs_no_turn(
    tmp_path: Path, variable: str, value: str, words: str
) -> None:
    (tmp_path / "replies.json").write_text(json.dumps(LINES))
    variables = dict(CONSOLE)
    if variable == "OTEL_EXPORTER_OTLP_PROTOCOL":
        variables["OTEL_METRICS_EXPORTER"] = "otlp"
    done = bactrian(
        *("play", "Time tea", "--model", "scripted:replies.json", "--run", "run.db"),
        cwd=tmp_path,
        own_process=True,
        text=None,
        **(variables | {variable: value}),
    )
    told = " ".join(done.stderr.split())
    assert done.returncode == 0, told
    assert words in told
    assert "Traceback" not in told
    assert '"turns": 3' in bactrian("show", "run.db", "--json", cwd=tmp_path).stdout


def test_names_of_the_process_are_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none,")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=node-7")
    tracers, _ = set_up_sdk()
    assert isinstance(tracers, TracerProvider)
    assert tracers.resource.attributes["service.instance.id"] == "node-7"
    assert tracers.resource.attributes["service.name"] == "bactrian"
