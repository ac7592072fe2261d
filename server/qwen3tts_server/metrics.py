"""Prometheus metrics, and the log line of each utterance."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from qwen3tts_engine.base import Engine
from qwen3tts_engine.wrapped import WrappedEngine, load_of
from qwen3tts_server.logs import TEXT_LOG
from qwen3tts_server.speech_stream import UtteranceObserver
from qwen3tts_server.utterance import Utterance
from qwen3tts_wire.messages import PlayoutReport

FIRST_AUDIO_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)
GAP_S = (0.02, 0.04, 0.06, 0.1, 0.2, 0.5, 1, 2, 5)
LEAD_S = (0, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)


class ServerMetrics:
    """Metrics of one server in its own registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        registry = self.registry = CollectorRegistry()
        labels = ("dialect",)
        self._connections = Gauge(
            "qwen3tts_connections", "Connections and requests now open.", labels, registry=registry
        )
        self._open = Gauge(
            "qwen3tts_utterances_open", "Utterances not yet over.", labels, registry=registry
        )
        self._ended = Counter(
            "qwen3tts_utterances",
            "Utterances that are over: done, cancelled, gone (the client left) or failed.",
            (*labels, "outcome"),
            registry=registry,
        )
        self._errors = Counter(
            "qwen3tts_errors", "Errors sent to clients.", (*labels, "code"), registry=registry
        )
        self._first_audio = Histogram(
            "qwen3tts_first_audio_seconds",
            "From the first text to the first sound sent.",
            labels,
            buckets=FIRST_AUDIO_S,
            registry=registry,
        )
        self._first_audible = Histogram(
            "qwen3tts_first_audible_seconds",
            "From the first text to the first sound that can be heard.",
            labels,
            buckets=FIRST_AUDIO_S,
            registry=registry,
        )
        self._first_pcm = Histogram(
            "qwen3tts_engine_first_pcm_seconds",
            "From the engine's beginning to its first sound.",
            labels,
            buckets=FIRST_AUDIO_S,
            registry=registry,
        )
        self._audio = Counter(
            "qwen3tts_audio_seconds", "Sound that was sent.", labels, registry=registry
        )
        self._thrown = Counter(
            "qwen3tts_audio_unsent_seconds",
            "Sound that was made and not sent, because it was cancelled.",
            labels,
            registry=registry,
        )
        self._chars = Counter(
            "qwen3tts_characters", "Characters of text.", labels, registry=registry
        )
        self._gap = Histogram(
            "qwen3tts_gap_seconds",
            "Times for which the engine was later than somebody who plays the sound as it is made.",
            labels,
            buckets=GAP_S,
            registry=registry,
        )
        self._starved = Counter(
            "qwen3tts_starved_reports",
            "Reports of listeners who had nothing to play.",
            labels,
            registry=registry,
        )
        self._lead = Histogram(
            "qwen3tts_lead_seconds",
            "Sound sent and not yet heard, when a listener reported.",
            labels,
            buckets=LEAD_S,
            registry=registry,
        )
        self._ready = Gauge("qwen3tts_ready", "1 while something new may begin.", registry=registry)
        self._info = Info("qwen3tts", "What is running.", registry=registry)
        registry.register(_EngineFigures(engine))
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def dialect(self, name: str) -> DialectMetrics:
        return DialectMetrics(self, name)

    def connected(self, dialect: str, change: int) -> None:
        self._connections.labels(dialect).inc(change)

    def refused(self, code: str) -> None:
        self._errors.labels("gate", code).inc()

    def exposition(self, accept: str, *, ready: bool) -> tuple[bytes, str]:
        self._ready.set(ready)
        self._info.info(
            {"version": _version(), "engine": self._engine.name, "model": self._engine.model}
        )
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class DialectMetrics:
    """Observer that counts a dialect's utterances."""

    def __init__(self, meter: ServerMetrics, name: str) -> None:
        # Children are found once: ``labels`` costs more than the counting.
        self._open = meter._open.labels(name)
        self._ended = meter._ended
        self._errors = meter._errors
        self._name = name
        self._first_audio = meter._first_audio.labels(name)
        self._first_audible = meter._first_audible.labels(name)
        self._first_pcm = meter._first_pcm.labels(name)
        self._audio = meter._audio.labels(name)
        self._thrown = meter._thrown.labels(name)
        self._chars = meter._chars.labels(name)
        self._gap = meter._gap.labels(name)
        self._starved = meter._starved.labels(name)
        self._lead = meter._lead.labels(name)

    def opened(self, utterance: Utterance) -> None:
        self._open.inc()

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None:
        if report.state == "starved":
            self._starved.inc()
        unheard = max(0, utterance.sent - report.played)
        self._lead.observe(unheard / utterance.opened.format.sample_rate)

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None:
        if utterance.counted:
            # It was done, and is cancelled while it plays.
            if outcome == "cancelled":
                self._ended.labels(self._name, "cancelled_done").inc()
            return
        utterance.counted = True
        self._open.dec()
        self._ended.labels(self._name, outcome).inc()
        marks, rate = utterance.marks, utterance.opened.format.sample_rate
        for figure, start, end in (
            (self._first_audio, "first_delta", "first_sent"),
            (self._first_audible, "first_delta", "first_audible"),
            (self._first_pcm, "slot", "first_pcm"),
        ):
            if start in marks and end in marks:
                figure.observe(max(0.0, marks[end] - marks[start]) / 1000)
        self._audio.inc(utterance.sent / rate)
        self._thrown.inc(max(0, utterance.generated - utterance.sent) / rate)
        self._chars.inc(utterance.chars)
        for gap_s in utterance.gaps:
            self._gap.observe(gap_s)

    def errored(self, code: str) -> None:
        self._errors.labels(self._name, code).inc()


class _EngineFigures(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        load = load_of(self._engine)
        if load is not None:
            yield _gauge(
                "engine_slots", "Requests that the engine speaks concurrently.", load.slots
            )
            yield _gauge("engine_busy", "Requests that it is speaking.", load.busy)
            yield _gauge("engine_waiting", "Requests that wait for a slot.", load.waiting)
        yield from self._starters()

    def _starters(self) -> Iterable[Metric]:
        engine = self._engine
        while isinstance(engine, WrappedEngine):
            hits, misses = getattr(engine, "hits", None), getattr(engine, "misses", None)
            if isinstance(hits, int) and isinstance(misses, int):
                yield _counter("starter_hits", "Clauses said from memory.", hits)
                yield _counter("starter_misses", "First clauses that were not kept.", misses)
                for name, what in (("bytes", "Bytes of"), ("entries", "Number of")):
                    value = getattr(engine, name, 0)
                    yield _gauge(f"starter_{name}", f"{what} openings kept.", value)
            engine = engine.inner


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"qwen3tts_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"qwen3tts_{name}", text, value=value)


def _version() -> str:
    try:
        return version("mr_qwen3tts")
    except PackageNotFoundError:
        return "unknown"


log = logging.getLogger("qwen3tts_server.utterances")
text_log = logging.getLogger(TEXT_LOG)
"""Silent unless ``log_text``."""
ERRORS_WRITTEN = 20
"""Logged errors a connection, then every thousandth: clients must not fill the disk."""


class UtteranceLog:
    """Observer that logs utterances and passes events on."""

    def __init__(self, observer: UtteranceObserver, dialect: str) -> None:
        self._observer = observer
        self._dialect = dialect
        self._errors = 0

    def opened(self, utterance: Utterance) -> None:
        self._observer.opened(utterance)

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None:
        self._observer.reported(utterance, report, now)

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None:
        again = utterance.counted
        self._observer.ended(utterance, outcome, now)
        if again:
            return
        if log.isEnabledFor(logging.INFO):
            log.info("%s", outcome, extra={"fields": self._fields(utterance)})
        if text_log.isEnabledFor(logging.INFO):
            text_log.info("%s", outcome, extra={"fields": {"text": utterance.text}})

    def errored(self, code: str) -> None:
        self._observer.errored(code)
        self._errors += 1
        if self._errors <= ERRORS_WRITTEN or self._errors % 1000 == 0:
            fields = {"dialect": self._dialect, "code": code, "errors": self._errors}
            log.info("told of an error", extra={"fields": fields})

    def _fields(self, utterance: Utterance) -> dict[str, object]:
        rate = utterance.opened.format.sample_rate
        fields: dict[str, object] = {
            "dialect": self._dialect,
            "chars": utterance.chars,
            "sent_s": round(utterance.sent / rate, 3),
            "made_s": round(utterance.generated / rate, 3),
        }
        if utterance.reason != "text_end":
            fields["reason"] = utterance.reason
        first, sound = (utterance.marks.get(name) for name in ("first_delta", "first_sent"))
        if first is not None and sound is not None:
            fields["first_ms"] = round(sound - first, 1)
        if utterance.gaps:
            fields |= {"gaps": len(utterance.gaps), "longest_gap_s": round(max(utterance.gaps), 3)}
        return fields
