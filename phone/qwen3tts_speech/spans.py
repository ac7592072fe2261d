"""OpenTelemetry spans of utterances, sent by OTLP over HTTP.

OpenTelemetry's exporter logs each try while a collector is away. Those lines of this exporter are
suppressed; one a minute says what is lost and why.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from qwen3tts_speech.latency import UtteranceRecord
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
    """Return the endpoint of a setting: a URL, "" for that of ``OTEL_*``, None for none. Raises
    ValueError.
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
    """Return the span sink of a setting, or None. Raises ValueError, OtelMissing.

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
    """Send the records of a log to a collector and wait; return how many.

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
