"""Destinations of latency records: a log, spans, own code, or several."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Protocol, runtime_checkable

from qwen3tts_speech.latency import LatencyLog, UtteranceRecord
from qwen3tts_speech.spans import open_spans


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
        """Note the end of a call; returns immediately and never raises."""


class RecordSinks:
    """Several sinks as one; the first error of each is logged, and affects no other."""

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
                logging.getLogger(__name__).exception(
                    "a %s does not take what it is given", type(sink).__name__
                )


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
    """Open the log and the spans of the settings; ``stack`` closes them.

    Raises OSError for the log; ValueError, OtelMissing as `qwen3tts_speech.spans.open_spans`.
    """
    written = stack.enter_context(LatencyLog(latency_log)) if latency_log is not None else None
    # OpenTelemetry takes a moment to load.
    spans = await asyncio.to_thread(open_spans, otel) if otel is not None else None
    if spans is not None:
        stack.push_async_callback(asyncio.to_thread, spans.close)
    return together(written, spans, *more)
