"""Destinations of latency records: log, OpenTelemetry, own code."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable
from urllib.parse import urlsplit

from qwen3tts_speech.latency import LatencyLog, UtteranceRecord
from qwen3tts_speech.utterance_spans import Spans
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter


log = logging.getLogger(__name__)

TELL_AGAIN_S = 60.0
WHY_CHARS = 300
_SENDING: ContextVar[SpanSender | None] = ContextVar("spans that are being sent", default=None)


class OtelMissing(SpeechError):
    """OpenTelemetry is not installed."""

    code = "otel_missing"


class SpanSender:
    """Exporter for OpenTelemetry's processors.

    Args:
        endpoint: collector; empty = that of the ``OTEL_*`` variables.
        tells: log what is lost.

    Raises OtelMissing.
    """

    def __init__(
        self, endpoint: str, *, tells: bool = True, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import SpanExportResult
        except ImportError as error:
            raise OtelMissing(
                f"Spans for OpenTelemetry need a package that is not installed ({error.name}).",
                remedy="Install it: pip install 'mr_qwen3tts[otel]'",
            ) from error
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_keep_back)  # is there once
        self._exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint or None)
        self._taken = SpanExportResult.SUCCESS
        self._tells, self._now_s = tells, now_s
        self._told_at: float | None = None
        self.lost = 0
        self.why = ""

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        token = _SENDING.set(self)
        try:
            result = self._exporter.export(spans)
        finally:
            _SENDING.reset(token)
        if result is not self._taken:
            self.lost += len(spans)
            now = self._now_s()
            if self._tells and (self._told_at is None or now - self._told_at >= TELL_AGAIN_S):
                self._told_at = now
                log.warning("the collector takes no spans, %d are lost: %s", self.lost, self.why)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def _keep_back(record: logging.LogRecord) -> bool:
    sender = _SENDING.get()
    if sender is None:
        return True
    if record.levelno < logging.ERROR or not sender.why:
        sender.why = _plain(record.getMessage())
    return False


def _plain(said: str) -> str:
    errno = re.search(r"\[Errno -?\d+\] ([^\"')]+)", said)
    return (errno[1] if errno is not None else said)[:WHY_CHARS].rstrip(". ")


__all__ = ["OtelMissing", "Spans", "SpansNotSent", "endpoint_of", "export_records", "open_spans"]

PATH = "/v1/traces"
NO: Final = ("", "0", "no", "off", "false")
STANDARD: Final = ("1", "yes", "on", "true")
"""Values that mean: as the ``OTEL_*`` variables say."""
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
BATCH = 512
"""Spans a request, for a log."""


class SpansNotSent(SpeechError):
    """The collector did not accept the spans."""

    code = "spans_not_sent"
    retryable = True


def endpoint_of(setting: str | None) -> str | None:
    """Return a setting's endpoint: URL, "" for ``OTEL_*``'s, or None.

    Raises ValueError.
    """
    if setting is None or (text := setting.strip()).lower() in NO:
        return None
    if text.lower() in STANDARD:
        spoken = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "")
        if spoken == "grpc":
            raise ValueError("otel: spans go by http/protobuf, and OTEL_* asks for grpc")
        return ""
    no_address = ValueError(
        f"otel={_shown(text)!r} is no address of a collector, such as http://127.0.0.1:4318"
    )
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or address
        raise no_address from None
    if not good or not text.isprintable() or " " in text:
        raise no_address
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            "otel: the address holds more than scheme, host, port and path; a key is given by"
            " OTEL_EXPORTER_OTLP_HEADERS"
        )
    return text.rstrip("/") + PATH if parts.path in ("", "/") else text


def _shown(text: str) -> str:
    return text.rpartition("@")[2][:60]


def open_spans(setting: str | None, *, with_text: bool = False) -> Spans | None:
    """Return a setting's span sink, if any. Raises ValueError, OtelMissing.

    Loading OpenTelemetry takes a moment: use ``asyncio.to_thread``.
    """
    endpoint = endpoint_of(setting)
    if endpoint is None or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    sender = SpanSender(endpoint)
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    return Spans(BatchSpanProcessor(cast(SpanExporter, sender)), with_text=with_text)


def export_records(
    records: Iterable[UtteranceRecord], setting: str | None, *, with_text: bool = False
) -> int:
    """Send a log's records to a collector; return how many.

    Raises ValueError, OtelMissing, SpansNotSent.
    """
    endpoint = endpoint_of(setting)
    if endpoint is None:
        raise ValueError("otel: give the address of a collector, such as http://127.0.0.1:4318")
    sender = SpanSender(endpoint, tells=False)
    try:
        return _export(records, sender, with_text)
    finally:
        sender.shutdown()


def _export(records: Iterable[UtteranceRecord], sender: SpanSender, with_text: bool) -> int:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExportResult

    waiting: list[ReadableSpan] = []

    class Collected(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            waiting.append(span)

    def send() -> None:
        while waiting:
            if sender.export(waiting[:BATCH]) is not SpanExportResult.SUCCESS:
                raise SpansNotSent(
                    f"The collector has not taken the spans: {sender.why}.",
                    remedy="Check its address, that it takes OTLP over HTTP there, and, where it"
                    " wants a key, OTEL_EXPORTER_OTLP_HEADERS.",
                )
            del waiting[:BATCH]

    spans = Spans(Collected(), with_text=with_text)
    count = 0
    for record in records:
        spans.append(record)
        count += 1
        if len(waiting) >= BATCH:
            send()
    spans.close()
    send()
    return count - spans.left_out


class RecordSink(Protocol):
    """Receives the record of each ended utterance."""

    def append(self, record: UtteranceRecord) -> None: ...


@runtime_checkable
class EndOfCallSink(RecordSink, Protocol):
    """Receives the end of each call, too."""

    def call_ended(
        self,
        call_id: str,
        *,
        began_unix_s: float,
        ended_unix_s: float,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        error: str = "",
    ) -> None:
        """Note a call's end; never blocks or raises."""


class RecordSinks:
    """Several sinks as one; each one's first error is logged."""

    def __init__(self, *sinks: RecordSink) -> None:
        self.sinks = sinks
        self._broken: set[int] = set()

    def append(self, record: UtteranceRecord) -> None:
        for sink in self.sinks:
            self._guarded(sink, partial(sink.append, record))

    def call_ended(
        self,
        call_id: str,
        *,
        began_unix_s: float,
        ended_unix_s: float,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        error: str = "",
    ) -> None:
        for sink in self.sinks:
            if isinstance(sink, EndOfCallSink):
                told = partial(
                    sink.call_ended,
                    call_id,
                    began_unix_s=began_unix_s,
                    ended_unix_s=ended_unix_s,
                    attributes=attributes,
                    error=error,
                )
                self._guarded(sink, told)

    def _guarded(self, sink: RecordSink, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            if id(sink) not in self._broken:
                self._broken.add(id(sink))
                log.exception("a %s failed on a record", type(sink).__name__)


def together(*sinks: RecordSink | None) -> RecordSink | None:
    there = [sink for sink in sinks if sink is not None]
    if not there:
        return None
    return there[0] if len(there) == 1 else RecordSinks(*there)


async def open_records(
    stack: AsyncExitStack,
    latency_log: str | os.PathLike[str] | None,
    otel: str | None,
    *more: RecordSink | None,
) -> RecordSink | None:
    """Open the settings' log and spans; ``stack`` closes them.

    Raises OSError for the log; ValueError, OtelMissing as `open_spans`.
    """
    written = stack.enter_context(LatencyLog(latency_log)) if latency_log is not None else None
    # OpenTelemetry takes a moment to load.
    spans = await asyncio.to_thread(open_spans, otel) if otel is not None else None
    if spans is not None:
        stack.push_async_callback(asyncio.to_thread, spans.close)
    return together(written, spans, *more)
