"""Spans of utterances: what they say, and what a collector receives of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.record_sinks import (
    OtelMissing,
    SpanSender,
    SpansNotSent,
    endpoint_of,
    export_records,
    open_spans,
)
from qwen3tts_speech.utterance_spans import IDLE_S, MAX_CALLS, Spans
from tests.speech.collector import Collector, collecting
from tests.speech.marks import HEARD_WHOLE

BEGAN = 1_800_000_000.25
NEEDS_NO_NETWORK = "http://127.0.0.1:9"


def said(call: str = "call-1", context: str = "1", at: float = 50.0) -> UtteranceRecord:
    record = UtteranceRecord(
        call_id=call,
        context=context,
        voice="ryan",
        engine="qwen3",
        started_unix_s=BEGAN,
        clock_error_ms=0.4,
        text="a secret",
    )
    record.generated_samples = record.heard_samples = 48_000
    record.end("text_end")
    for mark, after in HEARD_WHOLE.items():
        record.mark(mark, at + after)
    return record


class Kept(SpanProcessor):
    """Keeps the spans, as a batch would."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def named(self, name: str) -> ReadableSpan:
        (span,) = (each for each in self.spans if each.name == name)
        return span


@pytest.fixture
def kept() -> Kept:
    return Kept()


def milliseconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e6


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


# --- what spans say


def test_a_call_is_a_trace_an_utterance_a_span_and_a_stage_a_span_in_that(kept: Kept) -> None:
    spans = Spans(kept)
    spans.append(said())
    spans.append(said(context="2", at=60.0))
    spans.call_ended("call-1", began_unix_s=BEGAN - 3, ended_unix_s=BEGAN + 20)
    call = kept.named("call")
    utterances = [each for each in kept.spans if each.name == "utterance"]
    assert call.parent is None
    assert {each.parent.span_id for each in utterances if each.parent} == {ids(call)[1]}
    assert len({ids(each)[0] for each in kept.spans}) == 1
    assert milliseconds(call) == pytest.approx(23_000)
    assert call.attributes is not None
    assert call.attributes["qwen3tts.call.utterances"] == 2
    stages = [
        each for each in kept.spans if each.parent and each.parent.span_id == ids(utterances[0])[1]
    ]
    assert [(each.name, milliseconds(each)) for each in stages] == [
        ("first words", 50.0),
        ("first request", 2.0),
        ("server and network", 148.0),
        ("turn to speak", 0.4),
        ("pacer", 0.6),
        ("silence before the sound", 20.0),
        ("speaking", 1999.0),
    ]


def test_the_servers_stages_are_in_the_one_that_waits_for_it(kept: Kept) -> None:
    Spans(kept).append(said())
    waiting = kept.named("server and network")
    inside = [each for each in kept.spans if each.parent and each.parent.span_id == ids(waiting)[1]]
    assert [(each.name, milliseconds(each)) for each in inside] == [
        ("place at the engine", 1.0),
        ("first samples", 144.0),
    ]
    assert all((each.attributes or {})["qwen3tts.clock_error_ms"] == 0.4 for each in inside)


def test_times_are_those_that_things_had(kept: Kept) -> None:
    Spans(kept).append(said())
    assert kept.named("utterance").start_time == pytest.approx(BEGAN * 1e9, abs=1000)
    assert milliseconds(kept.named("utterance")) == 2200.0


def test_words_are_in_no_span_unless_they_are_asked_for(kept: Kept) -> None:
    Spans(kept).append(said())
    assert "secret" not in "".join(each.to_json() for each in kept.spans)
    Spans(kept, with_text=True).append(said("other"))
    assert [
        (each.attributes or {}).get("qwen3tts.text")
        for each in kept.spans
        if each.name == "utterance"
    ] == [None, "a secret"]


def test_an_utterance_that_failed_is_an_error_and_an_interrupted_one_is_none(kept: Kept) -> None:
    spans = Spans(kept)
    for context, reason in (("1", "failed"), ("2", "interrupted")):
        record = said(context=context)
        record.end_reason = reason
        spans.append(record)
    failed, stopped = (each for each in kept.spans if each.name == "utterance")
    assert (failed.status.status_code.name, (failed.attributes or {})["error.type"]) == (
        "ERROR",
        "failed",
    )
    assert stopped.status.status_code.name == "UNSET"


def test_an_interruption_is_an_event_and_the_way_to_silence_a_stage(kept: Kept) -> None:
    record = said()
    record.mark(Mark.INTERRUPTED, 51.0)
    record.mark(Mark.SILENT, 51.03)
    Spans(kept).append(record)
    assert [event.name for event in kept.named("utterance").events] == ["interrupted", "silent"]
    assert milliseconds(kept.named("falling silent")) == pytest.approx(30.0)


def test_a_call_whose_end_nobody_tells_has_its_span_at_the_end_of_all(kept: Kept) -> None:
    spans = Spans(kept)
    spans.append(said())
    assert "call" not in {each.name for each in kept.spans}
    spans.close()
    assert milliseconds(kept.named("call")) == 2200.0


def test_a_call_in_which_nothing_was_said_has_a_span_too(kept: Kept) -> None:
    Spans(kept).call_ended(
        "silent",
        began_unix_s=BEGAN,
        ended_unix_s=BEGAN + 1,
        attributes={"line": "sip"},
        error="busy",
    )
    call = kept.named("call")
    assert (call.attributes or {})["qwen3tts.call.line"] == "sip"
    assert call.status.status_code.name == "ERROR"


def test_calls_that_nobody_ends_are_bounded(kept: Kept) -> None:
    spans = Spans(kept)
    for number in range(MAX_CALLS + 3):
        record = UtteranceRecord(call_id=f"call-{number}", started_unix_s=BEGAN)
        record.mark(Mark.TEXT_IN, 1.0)
        spans.append(record)
    assert sum(each.name == "call" for each in kept.spans) == 3


def test_a_call_that_is_idle_for_long_is_over(kept: Kept) -> None:
    spans = Spans(kept)
    spans.append(said("idle"))
    for after in (100.0, IDLE_S, IDLE_S + 10):
        record = said("other")
        record.started_unix_s += after
        spans.append(record)
    assert [
        (each.attributes or {})["qwen3tts.call.id"] for each in kept.spans if each.name == "call"
    ] == ["idle"]


@pytest.mark.parametrize("started", [1e15, -1e15, -60.0])
def test_a_time_that_is_none_is_left_out(kept: Kept, started: float) -> None:
    spans = Spans(kept)
    record = said()
    record.started_unix_s = started
    spans.append(record)
    spans.append(UtteranceRecord())
    assert (spans.left_out, kept.spans) == (2, [])


def test_marks_of_a_clock_that_ran_backwards_make_no_span_that_does(kept: Kept) -> None:
    record = said()
    record.marks[Mark.RECEIVED] = 40.0
    record.marks[Mark.SLOT] = 30.0
    Spans(kept).append(record)
    assert all(milliseconds(each) >= 0 for each in kept.spans)


def test_what_breaks_in_a_processor_is_told_once_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("no")

    spans = Spans(Broken())
    spans.append(said())
    spans.append(said())
    assert [each.getMessage() for each in caplog.records].count("spans cannot be made") == 1


def test_sampling_is_that_of_the_call(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    spans = Spans(kept)
    spans.append(said())
    spans.close()
    assert kept.spans == []


# --- the setting


@pytest.mark.parametrize("setting", [None, "", "0", "off", " no ", "False"])
def test_nowhere_by_default_and_nothing_is_imported(setting: str | None) -> None:
    assert endpoint_of(setting) is None
    code = (
        "import sys; from qwen3tts_speech.record_sinks import open_spans;"
        f" assert open_spans({setting!r}) is None;"
        " assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("setting", "endpoint"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector.example/", "https://collector.example/v1/traces"),
        ("http://[::1]:4318/otlp/v1/traces", "http://[::1]:4318/otlp/v1/traces"),
        ("1", ""),
        ("on", ""),
    ],
)
def test_a_base_address_gets_the_path_of_the_protocol(setting: str, endpoint: str) -> None:
    assert endpoint_of(setting) == endpoint


@pytest.mark.parametrize(
    "setting",
    [
        "collector",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x:0",
        "http://a b",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused_by_name(setting: str) -> None:
    with pytest.raises(ValueError, match=r"^otel="):
        endpoint_of(setting)


@pytest.mark.parametrize("setting", ["http://me:key-1@x", "http://x/?key-1", "ftp://me:key-1@x"])
def test_a_key_in_the_address_is_refused_and_not_shown(setting: str) -> None:
    with pytest.raises(ValueError, match="otel") as refused:
        endpoint_of(setting)
    assert "key-1" not in str(refused.value)


def test_grpc_is_not_spoken_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ValueError, match="grpc"):
        endpoint_of("1")


def test_the_standard_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_spans(NEEDS_NO_NETWORK) is None


def test_a_missing_package_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(OtelMissing, match=r"mr_qwen3tts\[otel\]"):
        open_spans(NEEDS_NO_NETWORK)


# --- a real collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as taken:
        yield taken


@pytest.mark.network
def test_a_collector_receives_the_trace(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key-1")
    spans = open_spans(collector.url)
    assert spans is not None
    spans.append(said())
    spans.call_ended("call-1", began_unix_s=BEGAN - 1, ended_unix_s=BEGAN + 5)
    spans.close(20)
    received = collector.spans()
    (call,) = (each for each in received if each.name == "call")
    (utterance,) = (each for each in received if each.name == "utterance")
    assert utterance.parent_span_id == call.span_id
    assert utterance.trace_id == call.trace_id
    assert utterance.start_time_unix_nano == pytest.approx(BEGAN * 1e9, abs=1000)
    assert collector.headers[0]["path"] == "/v1/traces"
    assert collector.headers[0]["authorization"] == "Bearer key-1"
    (service,) = (
        each.value.string_value
        for each in collector.requests[0].resource_spans[0].resource.attributes
        if each.key == "service.name"
    )
    assert service == "mr-qwen3tts"
    assert b"secret" not in collector.requests[0].SerializeToString()


@pytest.mark.network
def test_the_standard_variables_name_the_collector_and_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "reception")
    spans = open_spans("1")
    assert spans is not None
    spans.append(said())
    spans.close(20)
    assert b"reception" in collector.requests[0].SerializeToString()


@pytest.mark.network
def test_a_collector_that_hangs_holds_nobody_up(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The collector does not answer until the end: all of this would wait for it otherwise."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    collector.hold.clear()
    spans = open_spans(collector.url)
    assert spans is not None
    spans.append(said())
    assert collector.came.wait(20)
    for number in range(500):
        spans.append(said(context=str(number)))
    spans.close(0.01)
    assert "does not answer" in caplog.text
    collector.hold.set()


@pytest.mark.network
def test_a_log_is_sent_whole(collector: Collector) -> None:
    records = [said(f"call-{number % 7}", str(number)) for number in range(300)]
    assert export_records(records, collector.url) == 300
    names = [each.name for each in collector.spans()]
    assert (names.count("utterance"), names.count("call")) == (300, 7)
    assert len({each.trace_id for each in collector.spans()}) == 7
    assert (
        max(len(each.resource_spans[0].scope_spans[0].spans) for each in collector.requests) <= 512
    )


@pytest.mark.network
def test_a_collector_that_refuses_is_told(collector: Collector) -> None:
    collector.status = 401
    with pytest.raises(SpansNotSent, match="OTEL_EXPORTER_OTLP_HEADERS"):
        export_records([said()], collector.url)


def test_a_log_has_to_go_somewhere() -> None:
    with pytest.raises(ValueError, match=r"^otel"):
        export_records([], "off")


@pytest.mark.network
def test_a_collector_that_is_away_is_told_of_once_a_minute(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    collector.status = 400
    sender = SpanSender(collector.url + "/v1/traces", now_s=lambda: now[0])
    spans = Spans(SimpleSpanProcessor(cast(SpanExporter, sender)))
    spans.append(said())
    lost_at_first = sender.lost
    now[0] = 61.0
    spans.append(said(context="2"))
    assert lost_at_first > 1
    assert [(each.name, each.levelname) for each in caplog.records] == [
        ("qwen3tts_speech.record_sinks", "WARNING")
    ] * 2
    assert "400" in caplog.text


@pytest.mark.network
def test_what_others_export_is_logged_as_ever(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    SpanSender(collector.url)
    collector.status = 400
    theirs = OTLPSpanExporter(endpoint=collector.url)
    theirs.export([])
    assert [each.name.partition(".")[0] for each in caplog.records] == ["opentelemetry"]


@pytest.mark.network
def test_a_collector_that_is_not_there_is_told_in_the_systems_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    with pytest.raises(SpansNotSent, match="spans: Connection refused"):
        export_records([said()], NEEDS_NO_NETWORK)
