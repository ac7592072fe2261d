"""Utterances as OpenTelemetry spans, sent to a collector by OTLP over HTTP.

A call is one trace: a span of the call, in it one of each utterance, in that one of each stage, and
in the one that waits for the server one of each of the server's stages. Spans are made when an
utterance has ended, from its record, with the times that they had. They are sent in batches by a
thread of OpenTelemetry's own; a collector that is away or slow costs spans, never sound.

Nothing here is imported unless it is asked for, and no global of OpenTelemetry is touched. Headers,
such as a collector's key, sampling, batches and the service's name are those of the standard
``OTEL_*`` variables. Words are in no span unless they are asked for.

The speech server makes no spans, and no trace context is on the wire: what it did is known by the
marks that it sends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.span_sender import OtelMissing, SpanSender
from qwen3tts_speech.utterance_spans import Spans
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

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
