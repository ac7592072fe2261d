"""An utterance as stages and OpenTelemetry spans, of client and server.

A side's stages follow each other on one clock. The server's are mapped to the client's clock, give
or take ``clock_error_ms``, and stand apart.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final

from qwen3tts_speech.latency import MAX_NAME_CHARS, Mark, UtteranceRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span


CLIENT: Final = (
    Mark.SPEECH_END,
    Mark.TRANSCRIBED,
    Mark.TURN_END,
    Mark.TEXT_IN,
    Mark.FIRST_DELTA,
    Mark.REQUEST_SENT,
    Mark.RECEIVED,
    Mark.RESAMPLED,
    Mark.QUEUED,
    Mark.FIRST_FRAME_WIRE,
    Mark.FIRST_AUDIBLE_WIRE,
)
"""Stages to the first sound by the client's clock; `Mark.REQUEST_SENT` to `Mark.RECEIVED` is
network and server."""
SERVER: Final = (
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.FIRST_AUDIBLE_PCM,
)
"""Stages of the server, by its clock."""
WAITED_FOR: Final[dict[str, str]] = {
    Mark.TRANSCRIBED: "transcription",
    Mark.TURN_END: "end of turn",
    Mark.TEXT_IN: "agent",
    Mark.FIRST_DELTA: "first words",
    Mark.REQUEST_SENT: "first request",
    Mark.RECEIVED: "server and network",
    Mark.RESAMPLED: "line's format",
    Mark.QUEUED: "turn to speak",
    Mark.FIRST_FRAME_WIRE: "pacer",
    Mark.FIRST_AUDIBLE_WIRE: "silence before the sound",
    Mark.SEGMENT_READY: "first clause",
    Mark.SLOT: "place at the engine",
    Mark.PREFILL: "prefill",
    Mark.FIRST_CODES: "first codes",
    Mark.FIRST_PCM: "first samples",
    Mark.FIRST_AUDIBLE_PCM: "first audible samples",
}
"""Name of the stage before each mark."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage; monotonic seconds of the client."""

    name: str
    """Value of `WAITED_FOR`, ``speaking`` or ``falling silent``."""
    start: float
    end: float
    first: Mark
    last: Mark

    @property
    def ms(self) -> float:
        return (self.end - self.start) * 1000


def client_stages(record: UtteranceRecord) -> list[Stage]:
    """Return stages to the first sound; a missing mark joins two."""
    return _stages(record, CLIENT)


def server_stages(record: UtteranceRecord) -> list[Stage]:
    return _stages(record, SERVER)


def speaking(record: UtteranceRecord) -> Stage | None:
    return _between(record, "speaking", Mark.FIRST_FRAME_WIRE, Mark.LAST_FRAME)


def falling_silent(record: UtteranceRecord) -> Stage | None:
    return _between(record, "falling silent", Mark.INTERRUPTED, Mark.SILENT)


def began_unix_s(record: UtteranceRecord) -> float:
    """Return the marks' offset to the wall clock, seconds."""
    marks = record.marks
    return record.started_unix_s - marks.get(Mark.TEXT_IN, min(marks.values(), default=0.0))


def _stages(record: UtteranceRecord, chain: Iterable[Mark]) -> list[Stage]:
    held = [(record.marks[mark], mark) for mark in chain if mark in record.marks]
    held.sort(key=lambda item: item[0])
    return [
        Stage(WAITED_FOR.get(last, str(last)), start, end, first, last)
        for (start, first), (end, last) in pairwise(held)
    ]


def _between(record: UtteranceRecord, name: str, first: Mark, last: Mark) -> Stage | None:
    start, end = record.marks.get(first), record.marks.get(last)
    if start is None or end is None:
        return None
    return Stage(name, start, max(start, end), first, last)


log = getLogger(__name__)

SCOPE = "mr_qwen3tts"
SERVICE = "mr-qwen3tts"
"""Service name without ``OTEL_SERVICE_NAME``."""
MAX_CALLS = 4096
"""Calls whose spans are kept open; beyond, the one idle longest is ended."""
IDLE_S = 900.0
"""A call idle for this time, while another is not, counts as over; if it continues it has a second
trace."""
MAX_UNIX_S = 4e9
MAX_CHARS = 4096
CLOSE_S = 2.0
"""Longest wait for a collector at the end."""
ENDED_WELL = ("", "text_end", "interrupted", "no_text")
"""Ends of an utterance that are no error."""


@dataclass(slots=True)
class _Call:
    context: Context
    """Ids of the call's span, which is made at its end."""
    trace_id: int
    span_id: int
    sampled: bool
    start_ns: int
    end_ns: int
    utterances: int = 0


class Spans:
    """Maker of spans; never raises or waits.

    Args:
        processor: receiver of spans, such as OpenTelemetry's ``BatchSpanProcessor``.
        with_text: put the text into spans, where the record has it.
    """

    def __init__(self, processor: SpanProcessor, *, with_text: bool = False) -> None:
        self._ids = _ids()
        self._provider = _provider(self._ids)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SCOPE)
        self._with_text = with_text
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._lock = threading.Lock()
        self._broken = False
        self.left_out = 0
        """Records without a mark or with an invalid time."""

    def append(self, record: UtteranceRecord) -> None:
        self._guarded(lambda: self._utterance(record))

    def call_ended(
        self,
        call_id: str,
        *,
        began_unix_s: float,
        ended_unix_s: float,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        error: str = "",
    ) -> None:
        """Note a call's end, also without utterances.

        Args:
            call_id: as in the records.
            began_unix_s: wall clock.
            ended_unix_s: wall clock.
            attributes: facts of the call, prefixed by ``qwen3tts.call.``.
            error: error code; empty = none.
        """

        def end() -> None:
            if not (0 <= began_unix_s <= MAX_UNIX_S and 0 <= ended_unix_s <= MAX_UNIX_S):
                return
            began, ended = int(began_unix_s * 1e9), int(ended_unix_s * 1e9)
            call = self._calls.pop(call_id, None) or self._new_call(began, ended)
            call.start_ns, call.end_ns = min(call.start_ns, began), max(call.end_ns, ended)
            self._end_call(call_id, call, dict(attributes or {}), error)

        self._guarded(end)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        self._guarded(self._end_calls)
        # In a thread, as OpenTelemetry waits for the collector without a bound of ours.
        ending = threading.Thread(target=self._provider.shutdown, name="otel end", daemon=True)
        ending.start()
        ending.join(timeout_s)
        if ending.is_alive():
            log.warning("the collector of spans does not answer: the last ones are lost")

    # --- inside

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            with self._lock:
                work()
        except Exception:
            if not self._broken:
                self._broken = True
                log.exception("spans cannot be made")

    def _utterance(self, record: UtteranceRecord) -> None:
        offset_s = began_unix_s(record)
        times = [offset_s + at for at in record.marks.values()]
        if not times or not all(0 <= at <= MAX_UNIX_S for at in times):
            self.left_out += 1
            return
        whole = _Times(offset_s)
        start_ns, end_ns = (
            whole.ns(min(record.marks.values())),
            whole.ns(max(record.marks.values())),
        )
        call = self._call_of(record.call_id, start_ns, end_ns)
        span = self._tracer.start_span(
            "utterance",
            call.context,
            attributes=_attributes(record, self._with_text),
            start_time=start_ns,
        )
        if span.is_recording():
            for mark in (Mark.TEXT_END, Mark.INTERRUPTED, Mark.SILENT):
                if (at := record.marks.get(mark)) is not None:
                    span.add_event(mark, timestamp=whole.ns(at))
            self._stages(span, record, whole)
            _set_status(span, record.end_reason)
        span.end(end_ns)

    def _stages(self, span: Span, record: UtteranceRecord, times: _Times) -> None:
        from opentelemetry.trace import set_span_in_context

        inside = set_span_in_context(span)
        further = [stage for stage in (speaking(record), falling_silent(record)) if stage]
        for stage in (*client_stages(record), *further):
            made = self._stage(inside, stage, times, {})
            if stage.first is Mark.REQUEST_SENT and stage.last is Mark.RECEIVED:
                error = {"qwen3tts.clock_error_ms": record.clock_error_ms}
                below = set_span_in_context(made)
                for each in server_stages(record):
                    self._stage(below, each, times, error)

    def _stage(
        self, inside: Context, stage: Stage, times: _Times, attributes: dict[str, float]
    ) -> Span:
        held: dict[str, Any] = {
            "qwen3tts.stage.first": str(stage.first),
            "qwen3tts.stage.last": str(stage.last),
            **attributes,
        }
        start_ns = times.ns(stage.start)
        span = self._tracer.start_span(stage.name, inside, attributes=held, start_time=start_ns)
        span.end(max(start_ns, times.ns(stage.end)))
        return span

    def _call_of(self, call_id: str, start_ns: int, end_ns: int) -> _Call:
        call = self._calls.pop(call_id, None) or self._new_call(start_ns, end_ns)
        call.start_ns, call.end_ns = min(call.start_ns, start_ns), max(call.end_ns, end_ns)
        call.utterances += 1
        self._calls[call_id] = call
        while True:
            oldest, its = next(iter(self._calls.items()))
            idle_s = (end_ns - its.end_ns) / 1e9
            if its is call or (idle_s <= IDLE_S and len(self._calls) <= MAX_CALLS):
                return call
            del self._calls[oldest]
            self._end_call(oldest, its, {}, "")

    def _new_call(self, start_ns: int, end_ns: int) -> _Call:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.trace.sampling import Decision

        trace_id, span_id = self._ids.fresh()
        sampling = self._provider.sampler.should_sample(None, trace_id, "call")
        sampled = sampling.decision is Decision.RECORD_AND_SAMPLE
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
        parent = trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())
        return _Call(context, trace_id, span_id, sampled, start_ns, end_ns)

    def _end_call(self, call_id: str, call: _Call, attributes: dict[str, Any], error: str) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        held: dict[str, Any] = {"qwen3tts.call.id": call_id[:MAX_NAME_CHARS]}
        held |= {f"qwen3tts.call.{name}": _bounded(value) for name, value in attributes.items()}
        held["qwen3tts.call.utterances"] = call.utterances
        if not call.sampled:
            return
        self._ids.next_ids = call.trace_id, call.span_id
        try:
            span = self._tracer.start_span(
                "call", Context(), SpanKind.SERVER, attributes=held, start_time=call.start_ns
            )
        finally:
            self._ids.next_ids = None
        if error:
            _fail(span, error)
        span.end(max(call.start_ns, call.end_ns))

    def _end_calls(self) -> None:
        while self._calls:
            call_id, call = self._calls.popitem(last=False)
            self._end_call(call_id, call, {}, "")


class _Times:
    def __init__(self, offset_s: float) -> None:
        self._offset_ns = round(offset_s * 1e6) * 1000

    def ns(self, at: float) -> int:
        return self._offset_ns + round(at * 1e6) * 1000


def _attributes(record: UtteranceRecord, with_text: bool) -> dict[str, Any]:
    rate_hz = record.rate_hz or 24_000
    held: dict[str, Any] = {
        "gen_ai.output.type": "speech",
        "gen_ai.provider.name": record.engine,
        "qwen3tts.call.id": record.call_id,
        "qwen3tts.utterance.id": record.context,
        "qwen3tts.voice": record.voice,
        "qwen3tts.line": record.line,
        "qwen3tts.codec": record.codec,
        "qwen3tts.end_reason": record.end_reason,
        "qwen3tts.generation_end": record.generation_end,
        "qwen3tts.starvations": record.starvations,
        "qwen3tts.starved_ms": round(record.starved_ms, 3),
        "qwen3tts.longest_gap_ms": round(record.longest_gap_ms, 3),
        "qwen3tts.heard_s": round(record.heard_samples / rate_hz, 3),
        "qwen3tts.generated_s": round(record.generated_samples / rate_hz, 3),
        "qwen3tts.clock_error_ms": round(record.clock_error_ms, 3),
        "qwen3tts.first_sound_ms": _rounded(record.first_sound_ms),
        "qwen3tts.silence_ms": _rounded(record.silence_ms),
        "qwen3tts.text": record.text if with_text else None,
    }
    return {name: _bounded(value) for name, value in held.items() if value not in (None, "")}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_CHARS].encode("utf-8", "replace").decode()
    return value


def _set_status(span: Span, reason: str) -> None:
    if reason not in ENDED_WELL:
        _fail(span, reason)


def _fail(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", _bounded(why[:MAX_NAME_CHARS]))
    span.set_status(Status(StatusCode.ERROR, why[:MAX_NAME_CHARS]))


def _ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class CallIds(RandomIdGenerator):
        next_ids: tuple[int, int] | None = None

        def fresh(self) -> tuple[int, int]:
            return super().generate_trace_id(), super().generate_span_id()

        def generate_trace_id(self) -> int:
            return self.next_ids[0] if self.next_ids is not None else super().generate_trace_id()

        def generate_span_id(self) -> int:
            return self.next_ids[1] if self.next_ids is not None else super().generate_span_id()

    return CallIds()


def _provider(ids: Any) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider

    resource = Resource.create()
    if "OTEL_SERVICE_NAME" not in os.environ and SERVICE_NAME not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    return TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
