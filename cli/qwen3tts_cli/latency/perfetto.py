"""Trace for ui.perfetto.dev or chrome://tracing.

A process is a call; tracks are utterances by client and server, and an underrun counter.
Overlapping utterances get further tracks. Times are wall clock microseconds, exact within a
call. Source: "Trace Event Format" (Google, 2016) and perfetto.dev/docs/getting-started/other-
formats.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from qwen3tts_cli.output.writable import whole_file
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.utterance_spans import (
    Stage,
    began_unix_s,
    client_stages,
    falling_silent,
    server_stages,
    speaking,
)

MAX_CALLS = 10_000
"""Remembered calls; the least recent one is dropped."""
MAX_SPANS = 64
"""Utterances of a track checked for overlap."""
SAME_CLOCK_S = 1.0
"""Smaller wall clock differences in a call are clock adjustments; the first reading counts."""
MAX_UNIX_S = 4e9
"""Bound of plausible times."""
FIRST_TRACK: Final = 1_000_001
"""Track numbers start here, distinct from process numbers."""
CATEGORY: Final = "speech"


@dataclass(frozen=True, slots=True)
class TraceSize:
    utterances: int
    calls: int
    events: int
    left_out: int
    """Utterances without mark or valid time."""


@dataclass(slots=True)
class _TrackPair:
    client: int
    server: int
    held: list[tuple[int, int]] = field(default_factory=list)
    """Latest utterances, microseconds."""


@dataclass(slots=True)
class _Call:
    number: int
    """Process number."""
    offset_s: float
    """Wall clock minus the marks' clock."""
    offset_us: int
    starvations: int = 0
    lanes: list[_TrackPair] = field(default_factory=list)


def write_trace(
    records: Iterable[UtteranceRecord], path: Path, *, with_text: bool = False
) -> TraceSize:
    """Write a trace atomically, mode 0600; gzip if ``path`` ends in ``.gz``; raises OSError."""
    trace = _Trace(with_text)
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    with ExitStack() as stack:
        file = stack.enter_context(whole_file(path))
        stream: IO[str]
        if path.suffix == ".gz":
            stream = stack.enter_context(gzip.open(file, "wt", encoding="ascii", compresslevel=5))
        else:
            stream = stack.enter_context(io.TextIOWrapper(file, encoding="ascii"))
        stream.write('{"displayTimeUnit":"ms","otherData":{"source":"mr-qwen3tts"},"traceEvents":[')
        separator = "\n"
        for record in records:
            for event in trace.events(record):
                stream.write(separator)
                stream.write(encode(event))
                separator = ",\n"
        stream.write("\n]}\n")
    return trace.size()


class _Trace:
    def __init__(self, with_text: bool) -> None:
        self._with_text = with_text
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._utterances = self._processes = self._events = self._left_out = self._tracks = 0

    def size(self) -> TraceSize:
        return TraceSize(self._utterances, self._processes, self._events, self._left_out)

    def events(self, record: UtteranceRecord) -> Iterator[dict[str, object]]:
        offset_s = began_unix_s(record)
        times = [offset_s + at for at in record.marks.values()]
        if not times or not all(SAME_CLOCK_S <= at <= MAX_UNIX_S for at in times):
            self._left_out += 1
            return
        self._utterances += 1
        for event in self._of(record, offset_s):
            self._events += 1
            yield event

    def _of(self, record: UtteranceRecord, offset_s: float) -> Iterator[dict[str, object]]:
        call = self._calls.pop(record.call_id, None)
        if call is None or abs(call.offset_s - offset_s) > SAME_CLOCK_S:
            self._processes += 1
            call = _Call(self._processes, offset_s, round(offset_s * 1e6))
            yield _meta(call, 0, "process_name", name=f"call {record.call_id or 'without a name'}")
            yield _meta(call, 0, "process_sort_index", sort_index=call.number)
            yield _counter(call, min(record.marks.values()))
        self._calls[record.call_id] = call
        if len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)

        marks = record.marks.values()
        whole = Stage(
            f"utterance {record.context}".rstrip(),
            min(marks),
            max(marks),
            Mark.TEXT_IN,
            Mark.SILENT,
        )
        server = server_stages(record)
        lane, new = self._lane(call, whole)
        if new:
            number = f" {len(call.lanes)}" if len(call.lanes) > 1 else ""
            for track, name in ((lane.client, "client"), (lane.server, "server")):
                yield _meta(call, track, "thread_name", name=f"{name}{number}")
                yield _meta(call, track, "thread_sort_index", sort_index=track)
        yield from self._client(call, lane.client, record, whole)
        if server:
            first, last = server[0], server[-1]
            all_of_it = Stage(whole.name, first.start, last.end, first.first, last.last)
            error = {"clock may be off by ms": round(record.clock_error_ms, 3)}
            yield from _slice(call, lane.server, all_of_it, error)
            for stage in server:
                yield from _slice(call, lane.server, stage)

    def _client(
        self, call: _Call, track: int, record: UtteranceRecord, whole: Stage
    ) -> Iterator[dict[str, object]]:
        facts = _facts(record, self._with_text)
        if _us(call, whole.end) == _us(call, whole.start):
            yield _instant(call, track, whole.name, whole.start, facts)
        yield from _slice(call, track, whole, facts)
        reached = whole.start
        for stage in client_stages(record):
            yield from _slice(call, track, stage)
            reached = stage.end
        spoken = speaking(record)
        if spoken is not None and spoken.end >= reached:
            rest = replace(spoken, start=max(spoken.start, reached))
            yield from _slice(call, track, rest)
        if (at := record.marks.get(Mark.INTERRUPTED)) is not None:
            silence = falling_silent(record)
            known = {} if silence is None else {"silent after ms": round(silence.ms, 3)}
            yield _instant(call, track, "interrupted", at, known)
        if record.starvations:
            call.starvations += record.starvations
            gaps = {
                "gaps": record.starvations,
                "silence ms": round(record.starved_ms, 3),
                "longest ms": round(record.longest_gap_ms, 3),
            }
            # Where in it they were, a record does not say.
            at = record.marks.get(Mark.LAST_FRAME, whole.end)
            yield _instant(call, track, "gaps in this utterance", at, gaps)
            yield _counter(call, at)

    def _lane(self, call: _Call, whole: Stage) -> tuple[_TrackPair, bool]:
        start = _us(call, whole.start)
        end = _us(call, whole.end)
        for lane in call.lanes:
            if all(end <= held[0] or held[1] <= start for held in lane.held):
                lane.held.append((start, end))
                del lane.held[:-MAX_SPANS]
                return lane, False
        track = FIRST_TRACK + 2 * self._tracks
        self._tracks += 1
        call.lanes.append(_TrackPair(track, track + 1, [(start, end)]))
        return call.lanes[-1], True


def _us(call: _Call, at: float) -> int:
    """Microseconds since 1970, in two steps for float precision."""
    return call.offset_us + round(at * 1e6)


def _slice(
    call: _Call, track: int, stage: Stage, args: Mapping[str, object] | None = None
) -> Iterator[dict[str, object]]:
    start = _us(call, stage.start)
    duration = _us(call, stage.end) - start
    if duration > 0:
        place = {"pid": call.number, "tid": track, "ts": start, "dur": duration}
        event: dict[str, object] = {"ph": "X", "name": stage.name, "cat": CATEGORY, **place}
        if args:
            event["args"] = args
        yield event


def _instant(
    call: _Call, track: int, name: str, at: float, args: Mapping[str, object]
) -> dict[str, object]:
    place = {"pid": call.number, "tid": track, "ts": _us(call, at), "s": "t"}
    return {"ph": "i", "name": name, "cat": CATEGORY, **place, "args": args}


def _counter(call: _Call, at: float) -> dict[str, object]:
    values = {"gaps": call.starvations}
    place = {"pid": call.number, "tid": 0, "ts": _us(call, at)}
    return {"ph": "C", "name": "starvations", "cat": CATEGORY, **place, "args": values}


def _meta(call: _Call, track: int, kind: str, **args: Any) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": call.number, "tid": track, "args": args}


def _facts(record: UtteranceRecord, with_text: bool) -> dict[str, object]:
    rate_hz = record.rate_hz or 24_000
    facts: dict[str, object] = {
        "call": record.call_id,
        "utterance": record.context,
        "engine": record.engine,
        "voice": record.voice,
        "line": record.line,
        "codec": record.codec,
        "ended": record.end_reason,
        "heard s": round(record.heard_samples / rate_hz, 3),
        "generated s": round(record.generated_samples / rate_hz, 3),
        "server's clock may be off by ms": round(record.clock_error_ms, 3),
        "words": record.text if with_text else None,
    }
    if (ms := record.first_sound_ms) is not None:
        facts["first sound ms"] = round(ms, 3)
    return {name: value for name, value in facts.items() if value not in (None, "")}
