"""When what happened to one utterance, from the first text delta to the last frame on the wire.

All marks are seconds of the client's monotonic clock. What the server measured arrives in the
server's clock and is mapped by the connection's ping offset. A log holds one JSON line an
utterance; times in it are milliseconds after the utterance's first mark.
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
"""A longer line of a log is damaged; it is skipped without being held in memory."""
MAX_NAME_CHARS = 256
"""Bound on each name (voice, engine, identifiers) read from a log."""
MAX_EXAMPLES = 20
"""How many damaged lines a reader names; all of them are counted."""
VERSION = 1


class Mark(StrEnum):
    """A moment in an utterance's life, in the order of the line."""

    SPEECH_END = "speech_end"
    """The caller fell silent, as voice activity tells; only of an agent's first words of a turn,
    as the next two."""
    TRANSCRIBED = "transcribed"
    """The caller's words were known."""
    TURN_END = "turn_end"
    """The agent was given them: from here on it thinks."""
    TEXT_IN = "text_in"
    """The words were asked for (the call of ``say``)."""
    FIRST_DELTA = "first_delta"
    """The first text delta came from its source."""
    TEXT_END = "text_end"
    """The last delta had come; it is part of no stage."""
    SEGMENT_READY = "segment_ready"
    """The first speakable clause was complete (server)."""
    REQUEST_SENT = "request_sent"
    """The first text left for the server."""
    REQUEST_RECEIVED = "request_received"
    """The server had it."""
    SLOT = "slot"
    """The engine gave it a place."""
    PREFILL = "prefill"
    """The prompt was computed (model engines only)."""
    FIRST_CODES = "first_codes"
    """The first frame of codec codes (model engines only)."""
    FIRST_PCM = "first_pcm"
    """The first samples left the engine."""
    FIRST_AUDIBLE_PCM = "first_audible_pcm"
    """The first samples above silence left the engine."""
    RECEIVED = "received"
    """The first samples reached the client."""
    RESAMPLED = "resampled"
    """The first frame was at the line's rate."""
    QUEUED = "queued"
    """The first frame lay in the pacer's ring."""
    FIRST_FRAME_WIRE = "first_frame_wire"
    """The first frame of speech was sent."""
    FIRST_AUDIBLE_WIRE = "first_audible_wire"
    """The first frame above silence was sent."""
    LAST_FRAME = "last_frame"
    """The last frame of speech was sent."""
    INTERRUPTED = "interrupted"
    """Somebody asked for silence."""
    SILENT = "silent"
    """The last frame above silence after that had been sent."""


MARKS = frozenset(str(mark) for mark in Mark)
SERVER_MARKS = {
    "received": Mark.REQUEST_RECEIVED,
    "segment_ready": Mark.SEGMENT_READY,
    "slot": Mark.SLOT,
    "prefill": Mark.PREFILL,
    "first_codes": Mark.FIRST_CODES,
    "first_pcm": Mark.FIRST_PCM,
    "first_audible": Mark.FIRST_AUDIBLE_PCM,
}
"""The names on the wire, which speak from the server's side, and ours."""


@dataclass(slots=True)
class UtteranceRecord:
    """Everything known about the timing of one utterance."""

    call_id: str = ""
    context: str = ""
    """Names the utterance within its call."""
    voice: str = ""
    engine: str = ""
    started_unix_s: float = field(default_factory=time.time)
    """Wall clock at which the record was opened; marks do not depend on it."""
    marks: dict[str, float] = field(default_factory=dict)
    """Seconds of the client's monotonic clock, by the names of `Mark`."""
    starvations: int = 0
    """How often the line ran dry in mid-speech."""
    starved_ms: float = 0.0
    """Silence heard for that, all gaps together."""
    longest_gap_ms: float = 0.0
    heard_samples: int = 0
    """Samples of the context's rate that the caller heard."""
    generated_samples: int = 0
    """Samples of the context's rate that arrived from the server."""
    rate_hz: int = 24_000
    """The context's rate."""
    audible_sample: int | None = None
    """Where the first frame above silence begins, in samples from the utterance's first."""
    clock_offset_s: float = 0.0
    """How far the server's monotonic clock is ahead of this one."""
    clock_error_ms: float = 0.0
    """How far server marks may be off: half the round trip of the ping that gave the offset."""
    line: str = ""
    """What the call came over: ``sip``, ``webrtc``, ``twilio``, …; empty where nobody said."""
    codec: str = ""
    """What the sound left in, such as ``PCMU``."""
    kind: str = ""
    """Of an agent's words: ``greeting``, ``answer``, ``prompt`` (unasked, in a silence),
    ``filler``; empty for words of a program or a person."""
    end_reason: str = ""
    """``text_end``, ``interrupted``, ``no_text``, ``failed``; empty while it lives."""
    generation_end: str = ""
    """Why the server's generation ended (``reason`` of ``context.done``): ``text_end``, ``dry``,
    ``regenerated``, ``silence``, ``frame_cap``; empty where the server did not say."""
    text: str | None = None
    """What was said; written only where it is asked for."""
    version: int = VERSION
    """Of the format that it was read from; it is always written in the present one."""

    def mark(self, name: Mark | str, at: float) -> bool:
        """Note that ``name`` happened ``at`` (client monotonic, s). The first time wins.

        Raises ``ValueError`` for a name that `Mark` does not have, and for a time that is none.
        """
        if name not in MARKS:
            raise ValueError(f"no mark is called {name!r}")
        if not math.isfinite(at):
            raise ValueError(f"{name} at {at} is not a time")
        if name in self.marks:
            return False
        self.marks[str(name)] = at
        return True

    def server_marks(self, marks_ms: Mapping[str, float]) -> None:
        """Take over the server's marks (server-monotonic ms), mapped by ``clock_offset_s``.

        Names are those of `SERVER_MARKS`; others are left out: a server may measure more.
        """
        for name, at_ms in marks_ms.items():
            mark = SERVER_MARKS.get(name)
            if mark is not None and math.isfinite(at_ms):
                self.mark(mark, at_ms / 1000 - self.clock_offset_s)

    def first_audible_sample(self, position: int) -> None:
        """Note where the first frame above silence begins; the first call wins."""
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
        """Take over what the sink knows of an utterance that is over; times as in `mark`.

        A sink that cannot tell which frame is audible leaves ``first_audible_at`` out. It then
        follows from the first frame and `first_audible_sample`, as frames go out in real time;
        unless there was a gap, whose place is not known here.
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
        """Note why it ended; the first reason wins."""
        self.end_reason = self.end_reason or reason

    def between_ms(self, first: Mark | str, last: Mark | str) -> float | None:
        """Milliseconds from one mark to another; ``None`` where one of them is missing."""
        start, end = self.marks.get(first), self.marks.get(last)
        return None if start is None or end is None else (end - start) * 1000

    @property
    def first_sound_ms(self) -> float | None:
        """The headline: from the first delta to the first audible frame on the wire."""
        return self.between_ms(Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE)

    @property
    def silence_ms(self) -> float | None:
        """From the interruption to silence on the wire; 0 where it was silent already."""
        wait = self.between_ms(Mark.INTERRUPTED, Mark.SILENT)
        return None if wait is None else max(0.0, wait)

    def to_json(self, *, include_text: bool = False) -> str:
        """One line of JSON without its newline."""
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
            "end_reason": self.end_reason[:MAX_NAME_CHARS],
            "generation_end": self.generation_end[:MAX_NAME_CHARS],
        }
        if include_text and self.text is not None:
            line["text"] = self.text
        # ASCII only: a lone surrogate in the text must not break the line's encoding.
        return json.dumps(line, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> UtteranceRecord:
        """Read one line back. Unknown keys and marks are ignored, those of newer versions too.

        Raises ``ValueError`` with what is wrong with the line.
        """
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
            end_reason=_name(raw, "end_reason"),
            generation_end=_name(raw, "generation_end"),
            text=text if isinstance(text, str) else None,
            version=_version(raw),
        )


LARGEST = 1e15
"""No number of a log is larger: as seconds this is longer than the machine will live."""


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
    """Appends utterances to a file that only its owner may read; see `LineFile`."""

    def __init__(self, path: str | os.PathLike[str], *, include_text: bool = False) -> None:
        """Open or create ``path``; raises ``OSError`` where that is impossible."""
        super().__init__(path, what="latency log")
        self.include_text = include_text

    def append(self, record: UtteranceRecord) -> None:
        """Write one line; never raises for a file system that fails."""
        self.write(record.to_json(include_text=self.include_text))


@dataclass(frozen=True, slots=True)
class Damaged:
    """One line of a log that is no utterance."""

    line: int
    """Counted from 1."""
    why: str


class LogReader:
    """Iterates over the utterances of a log, one line in memory at a time.

    A damaged line never ends the reading: it is counted in ``damaged``, and the first ones are
    named in ``examples``.
    """

    lines: int
    """Lines read so far."""
    damaged: int
    """Lines of these that are no utterances."""
    examples: list[Damaged]
    """The first of them, at most `MAX_EXAMPLES`."""
    newer: int
    """Utterances that a newer version wrote; they are read as far as they are known here."""
    line: bytes
    """The line of the utterance that came last."""
    offset: int
    """Where that line begins, in bytes after the beginning of the reading."""

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
        """Close what `read_log` opened; reading to the end does it too."""
        if self._close:
            self._stream.close()

    def _skip_line(self) -> int:
        """Pass over the rest of a line; how many bytes it was."""
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
    """The utterances of a file or of a binary stream; raises ``OSError`` for a missing file."""
    if isinstance(source, str | os.PathLike):
        return LogReader(Path(source).open("rb"), close=True)
    return LogReader(source)
