"""Sends spans by OTLP over HTTP, and says in a line of its own when a collector takes none.

OpenTelemetry's exporter logs each try, every few seconds for as long as a collector is away. Here
those lines are kept back, of this exporter alone, and one a minute says what is lost and why.
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
    """OpenTelemetry's packages are not installed."""

    code = "otel_missing"


class SpanSender:
    """An exporter for OpenTelemetry's processors.

    Args:
        endpoint: where it sends to; empty = what the ``OTEL_*`` variables say.
        tells: whether it logs what is lost.

    Raises:
        OtelMissing: the extra ``otel`` is not installed.
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
        """Spans that were not taken."""
        self.why = ""
        """What was said of the last failure."""

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        """Send them; the result is OpenTelemetry's."""
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
        """Give a request up that is under way."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True


def _keep_back(record: logging.LogRecord) -> bool:
    """Whether a line of OpenTelemetry's is of somebody else's spans."""
    sender = _SENDING.get()
    if sender is None:
        return True
    if record.levelno < logging.ERROR or not sender.why:
        sender.why = _plain(record.getMessage())
    return False


def _plain(said: str) -> str:
    """What the system said of a connection that failed, or what OpenTelemetry says."""
    errno = re.search(r"\[Errno -?\d+\] ([^\"')]+)", said)
    return (errno[1] if errno is not None else said)[:WHY_CHARS].rstrip(". ")


__all__ = ["OtelMissing", "Spans", "SpansNotSent", "endpoint_of", "export_records", "open_spans"]

PATH = "/v1/traces"
NO: Final = ("", "0", "no", "off", "false")
STANDARD: Final = ("1", "yes", "on", "true")
"""Wishes for what the ``OTEL_*`` variables say."""
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
BATCH = 512
"""Spans a request, where a log is sent."""


class SpansNotSent(SpeechError):
    """The collector has not taken them."""

    code = "spans_not_sent"
    retryable = True


def endpoint_of(wish: str | None) -> str | None:
    """Where a setting says that spans go: a URL, "" for what ``OTEL_*`` says, None for nowhere.

    Raises:
        ValueError: it is neither a URL of HTTP nor yes or no; it begins with ``otel=``.
    """
    if wish is None or (text := wish.strip()).lower() in NO:
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
    except ValueError:  # a port or an address that is none
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
    """Without what might be a secret."""
    return text.rpartition("@")[2][:60]


def open_spans(wish: str | None, *, with_text: bool = False) -> Spans | None:
    """What sends utterances to the collector that a setting names; None where it names none.

    It loads OpenTelemetry, which takes a moment: in an event loop use ``asyncio.to_thread``.

    Raises:
        ValueError: what `endpoint_of` refuses.
        OtelMissing: the extra ``otel`` is not installed.
    """
    endpoint = endpoint_of(wish)
    if endpoint is None or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    sender = SpanSender(endpoint)
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    return Spans(BatchSpanProcessor(cast(SpanExporter, sender)), with_text=with_text)


def export_records(
    records: Iterable[UtteranceRecord], wish: str | None, *, with_text: bool = False
) -> int:
    """Send the utterances of a log to a collector, and wait until it has taken them.

    Returns:
        How many utterances were sent.

    Raises:
        ValueError: what `endpoint_of` refuses, and a wish for nowhere.
        OtelMissing: the extra ``otel`` is not installed.
        SpansNotSent: the collector has refused them, or is away.
    """
    endpoint = endpoint_of(wish)
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
