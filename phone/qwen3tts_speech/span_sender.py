"""Sends spans by OTLP over HTTP, and says in a line of its own when a collector takes none.

OpenTelemetry's exporter logs each try, every few seconds for as long as a collector is away. Here
those lines are kept back, of this exporter alone, and one a minute says what is lost and why.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

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
