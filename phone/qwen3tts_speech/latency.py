"""Latency record of one utterance, from first delta to last frame.

Marks are monotonic seconds of the client. The server's are mapped by the connection's ping offset.
A log holds one JSON line an utterance, in milliseconds after its first mark.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from qwen3tts_speech.line_file import LineFile

MAX_LINE_BYTES = 1 << 20
"""Longer lines of a log are skipped as damaged."""
MAX_NAME_CHARS = 256
"""Bound on each name (voice, engine, identifiers) read from a log."""
MAX_EXAMPLES = 20
"""Damaged lines that a reader names; all are counted."""
VERSION = 1


class Mark(StrEnum):
    """Moment of an utterance, in the order of the line."""

    SPEECH_END = "speech_end"
    """Endpoint of the caller's speech by VAD; as the next two, only for the first words of an
    agent's turn."""
    TRANSCRIBED = "transcribed"
    TURN_END = "turn_end"
    TEXT_IN = "text_in"
    """Call of ``say``."""
    FIRST_DELTA = "first_delta"
    TEXT_END = "text_end"
    """Last text delta; part of no stage."""
    SEGMENT_READY = "segment_ready"
    REQUEST_SENT = "request_sent"
    """First text sent to the server."""
    REQUEST_RECEIVED = "request_received"
    """First text received by the server."""
    SLOT = "slot"
    PREFILL = "prefill"
    FIRST_CODES = "first_codes"
    """First codec frame (model engines only)."""
    FIRST_PCM = "first_pcm"
    """First samples from the engine."""
    FIRST_AUDIBLE_PCM = "first_audible_pcm"
    """First audible samples from the engine."""
    RECEIVED = "received"
    """First samples received by the client."""
    RESAMPLED = "resampled"
    """First frame at the line's rate."""
    RELEASED = "released"
    """Release of a prepared utterance (`UtteranceRecord.release`); part of no stage."""
    QUEUED = "queued"
    """First frame in the pacer's ring."""
    FIRST_FRAME_WIRE = "first_frame_wire"
    FIRST_AUDIBLE_WIRE = "first_audible_wire"
    LAST_FRAME = "last_frame"
    INTERRUPTED = "interrupted"
    SILENT = "silent"
    """Last audible frame after it sent."""


MARKS = frozenset(str(mark) for mark in Mark)
_OF_THE_TURN = (Mark.SPEECH_END, Mark.TRANSCRIBED, Mark.TURN_END)
SERVER_MARKS = {
    "received": Mark.REQUEST_RECEIVED,
    "segment_ready": Mark.SEGMENT_READY,
    "slot": Mark.SLOT,
    "prefill": Mark.PREFILL,
    "first_codes": Mark.FIRST_CODES,
    "first_pcm": Mark.FIRST_PCM,
    "first_audible": Mark.FIRST_AUDIBLE_PCM,
}
"""Our marks by the wire's names."""


@dataclass(slots=True)
class UtteranceRecord:
    """Latency record of one utterance."""

    call_id: str = ""
    context: str = ""
    voice: str = ""
    engine: str = ""
    started_unix_s: float = field(default_factory=time.time)
    """Wall clock at the opening of the record."""
    marks: dict[str, float] = field(default_factory=dict)
    """Seconds of the client's monotonic clock by `Mark`."""
    prepared: dict[str, float] = field(default_factory=dict)
    """Marks before the release of a prepared utterance: the listener did not wait for them."""
    starvations: int = 0
    starved_ms: float = 0.0
    longest_gap_ms: float = 0.0
    heard_samples: int = 0
    """Samples heard, at the context's rate."""
    generated_samples: int = 0
    """Samples received, at the context's rate."""
    rate_hz: int = 24_000
    audible_sample: int | None = None
    """First sample of the first audible frame."""
    clock_offset_s: float = 0.0
    """Lead of the server's monotonic clock over this one."""
    clock_error_ms: float = 0.0
    """Bound of the error of server marks: half the round trip of the ping."""
    line: str = ""
    """Kind of line: ``sip``, ``webrtc``, ``twilio``, …; empty = unknown."""
    codec: str = ""
    """Encoding name, such as ``PCMU``."""
    kind: str = ""
    """Kind of an agent's words: ``greeting``, ``answer``, ``prompt`` (unasked, in a silence),
    ``filler``; else empty."""
    rule: str = ""
    """Rule that ended the caller's turn which this answers; empty = unknown, or the set pause."""
    end_reason: str = ""
    """``text_end``, ``interrupted``, ``no_text``, ``failed``; empty = in progress."""
    generation_end: str = ""
    """``reason`` of ``context.done``: ``text_end``, ``dry``, ``silence``, ``frame_cap``,
    ``repeated``, ``regenerated`` and its kinds; empty = unknown."""
    text: str | None = None
    """Text said; written only on request."""
    version: int = VERSION
    """Version of the format that it was read from."""

    def mark(self, name: Mark | str, at: float) -> bool:
        """Note ``name``'s first time (monotonic, s). Raises ValueError."""
        if name not in MARKS:
            raise ValueError(f"no mark is called {name!r}")
        if not math.isfinite(at):
            raise ValueError(f"{name} at {at} is not a time")
        early = at < self.marks.get(Mark.RELEASED, -math.inf) and name not in _OF_THE_TURN
        marks = self.prepared if early else self.marks
        if name in marks:
            return False
        marks[str(name)] = at
        return True

    def release(self, at: float) -> None:
        """Note the release of a prepared utterance.

        It counts as its request; marks before it are kept in ``prepared``.
        """
        self.started_unix_s += at - self.marks.get(Mark.TEXT_IN, at)
        before, self.marks = self.marks, {Mark.RELEASED: at}
        for name, when in before.items():
            if name in _OF_THE_TURN:
                self.marks[name] = when
            else:
                self.prepared[name] = when
        for mark in (Mark.TEXT_IN, Mark.FIRST_DELTA):
            if mark in self.prepared:
                self.marks[mark] = at

    def server_marks(self, marks_ms: Mapping[str, float]) -> None:
        """Take the server's marks (monotonic ms); unknown names are ignored."""
        for name, at_ms in marks_ms.items():
            mark = SERVER_MARKS.get(name)
            if mark is not None and math.isfinite(at_ms):
                self.mark(mark, at_ms / 1000 - self.clock_offset_s)

    def first_audible_sample(self, position: int) -> None:
        """Note the first audible frame's first sample, once."""
        if self.audible_sample is None:
            self.audible_sample = position

    def played(
        self,
        *,
        position: int,
        first_at: float | None = None,
        first_audible_at: float | None = None,
        last_at: float | None = None,
        starvations: int = 0,
        starved_s: float = 0.0,
        longest_gap_s: float = 0.0,
    ) -> None:
        """Take the ended utterance's playout; times as in `mark`.

        Without ``first_audible_at`` it is computed from the first frame and `first_audible_sample`,
        unless there was an underrun.
        """
        if first_audible_at is None and first_at is not None:
            ahead = self.audible_sample
            if ahead is not None and ahead < position and (ahead == 0 or not starvations):
                first_audible_at = first_at + ahead / self.rate_hz
        self.heard_samples = position
        self.starvations, self.starved_ms = starvations, starved_s * 1000
        self.longest_gap_ms = longest_gap_s * 1000
        for name, at in (
            (Mark.FIRST_FRAME_WIRE, first_at),
            (Mark.FIRST_AUDIBLE_WIRE, first_audible_at),
            (Mark.LAST_FRAME, last_at),
        ):
            if at is not None:
                self.mark(name, at)

    def end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason

    def between_ms(self, first: Mark | str, last: Mark | str) -> float | None:
        start, end = self.marks.get(first), self.marks.get(last)
        return None if start is None or end is None else (end - start) * 1000

    @property
    def first_sound_ms(self) -> float | None:
        return self.between_ms(Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE)

    @property
    def silence_ms(self) -> float | None:
        """Return the time from interruption to silence; 0 = silent already."""
        wait = self.between_ms(Mark.INTERRUPTED, Mark.SILENT)
        return None if wait is None else max(0.0, wait)

    def to_json(self, *, include_text: bool = False) -> str:
        origin = min(self.marks.values(), default=0.0)
        line: dict[str, Any] = {
            "v": VERSION,
            "context_id": self.context[:MAX_NAME_CHARS],
            "call_id": self.call_id[:MAX_NAME_CHARS],
            "voice": self.voice[:MAX_NAME_CHARS],
            "engine": self.engine[:MAX_NAME_CHARS],
            "started_unix_s": round(self.started_unix_s, 3),
            "origin_s": round(origin, 6),
            "marks_ms": {
                name: round((at - origin) * 1000, 3)
                for name, at in sorted(self.marks.items(), key=lambda item: item[1])
            },
            "starvations": self.starvations,
            "starved_ms": round(self.starved_ms, 3),
            "longest_gap_ms": round(self.longest_gap_ms, 3),
            "heard_samples": self.heard_samples,
            "generated_samples": self.generated_samples,
            "rate_hz": self.rate_hz,
            "audible_sample": self.audible_sample,
            "clock_offset_s": round(self.clock_offset_s, 6),
            "clock_error_ms": round(self.clock_error_ms, 3),
            "line": self.line[:MAX_NAME_CHARS],
            "codec": self.codec[:MAX_NAME_CHARS],
            "kind": self.kind[:MAX_NAME_CHARS],
            "rule": self.rule[:MAX_NAME_CHARS],
            "end_reason": self.end_reason[:MAX_NAME_CHARS],
            "generation_end": self.generation_end[:MAX_NAME_CHARS],
        }
        if self.prepared:
            released = self.marks.get(Mark.RELEASED, origin)
            line["prepared_ms"] = {
                name: round((at - released) * 1000, 3) for name, at in self.prepared.items()
            }
        if include_text and self.text is not None:
            line["text"] = self.text
        # ASCII only: a lone surrogate in the text must not break the line's encoding.
        return json.dumps(line, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> UtteranceRecord:
        """Read one line; unknown keys are ignored. Raises ValueError."""
        try:
            raw = json.loads(line)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except UnicodeDecodeError:
            raise ValueError("not UTF-8 text") from None
        except ValueError as error:
            raise ValueError(f"not JSON: {error}"[:200]) from None
        if not isinstance(raw, dict):
            raise ValueError("not a JSON object")
        if "context_id" not in raw or "marks_ms" not in raw:
            raise ValueError("not an utterance: context_id or marks_ms is missing")
        marks = raw["marks_ms"]
        if not isinstance(marks, dict):
            raise ValueError("marks_ms is not an object")
        origin = _number(raw, "origin_s")
        text = raw.get("text")
        return cls(
            context=_name(raw, "context_id"),
            call_id=_name(raw, "call_id"),
            voice=_name(raw, "voice"),
            engine=_name(raw, "engine"),
            started_unix_s=_number(raw, "started_unix_s"),
            marks={name: origin + _number(marks, name) / 1000 for name in marks if name in MARKS},
            starvations=_count(raw, "starvations"),
            starved_ms=_duration(raw, "starved_ms"),
            longest_gap_ms=_duration(raw, "longest_gap_ms"),
            heard_samples=_count(raw, "heard_samples"),
            generated_samples=_count(raw, "generated_samples"),
            rate_hz=_count(raw, "rate_hz"),
            audible_sample=(
                None if raw.get("audible_sample") is None else _count(raw, "audible_sample")
            ),
            clock_offset_s=_number(raw, "clock_offset_s"),
            clock_error_ms=_duration(raw, "clock_error_ms"),
            line=_name(raw, "line"),
            codec=_name(raw, "codec"),
            kind=_name(raw, "kind"),
            rule=_name(raw, "rule"),
            end_reason=_name(raw, "end_reason"),
            generation_end=_name(raw, "generation_end"),
            text=text if isinstance(text, str) else None,
            version=_version(raw),
        )


LARGEST = 1e15


def _number(raw: Mapping[str, Any], key: str) -> float:
    value = raw.get(key, 0.0)
    if type(value) is float and -LARGEST <= value <= LARGEST:  # all but a few: kept quick
        return value
    if type(value) is not int or not abs(value) <= LARGEST:
        raise ValueError(f"{key} is not a number in range")
    return float(value)


def _count(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key, 0)
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"{key} is not a count")
    return value


def _duration(raw: Mapping[str, Any], key: str) -> float:
    value = _number(raw, key)
    if value < 0:
        raise ValueError(f"{key} is negative")
    return value


def _version(raw: Mapping[str, Any]) -> int:
    version = _count(raw, "v") if "v" in raw else VERSION
    if version < 1:
        raise ValueError("v is no version: they count from 1")
    return version


def _name(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key, "")
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS:
        raise ValueError(f"{key} is not a name of at most {MAX_NAME_CHARS} characters")
    return value


class LatencyLog(LineFile):
    """Appender to a private file; see `LineFile`."""

    def __init__(self, path: str | os.PathLike[str], *, include_text: bool = False) -> None:
        """Open or create ``path``. Raises OSError."""
        super().__init__(path, what="latency log")
        self.include_text = include_text

    def append(self, record: UtteranceRecord) -> None:
        self.write(record.to_json(include_text=self.include_text))


@dataclass(frozen=True, slots=True)
class Damaged:
    """Line of a log that is no record."""

    line: int
    """Counted from 1."""
    why: str


class LogReader:
    """Iterator over a log; counts damaged lines."""

    lines: int
    damaged: int
    examples: list[Damaged]
    """The first damaged lines, at most `MAX_EXAMPLES`."""
    newer: int
    line: bytes
    offset: int
    """Its offset, bytes from the beginning of the reading."""

    def __init__(self, stream: BinaryIO, *, close: bool = False) -> None:
        self._stream = stream
        self._close = close
        self.line = b""
        self.offset = self.newer = 0
        self.lines = 0
        self.damaged = 0
        self.examples: list[Damaged] = []

    def __iter__(self) -> Iterator[UtteranceRecord]:
        try:
            position = 0
            while line := self._stream.readline(MAX_LINE_BYTES):
                self.lines += 1
                begin, position = position, position + len(line)
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    position += self._skip_line()
                    self._note(f"longer than {MAX_LINE_BYTES} bytes")
                elif not line.isspace():
                    try:
                        record = UtteranceRecord.from_json(line)
                    except ValueError as error:
                        self._note(str(error))
                    else:
                        self.line, self.offset = line, begin
                        self.newer += record.version > VERSION
                        yield record
        finally:
            self.close()

    def close(self) -> None:
        if self._close:
            self._stream.close()

    def _skip_line(self) -> int:
        skipped = 0
        while rest := self._stream.readline(MAX_LINE_BYTES):
            skipped += len(rest)
            if rest.endswith(b"\n"):
                break
        return skipped

    def _note(self, why: str) -> None:
        self.damaged += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Damaged(self.lines, why))


def read_log(source: str | os.PathLike[str] | BinaryIO) -> LogReader:
    """Read a file or binary stream. Raises OSError."""
    if isinstance(source, str | os.PathLike):
        return LogReader(Path(source).open("rb"), close=True)
    return LogReader(source)
