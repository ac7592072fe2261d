"""Utterances as numpy columns, about 200 bytes each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.findings import Findings, LogChanged
from qwen3tts_speech.latency import Mark, UtteranceRecord

Floats = NDArray[np.float32]
Rows = NDArray[np.bool_] | NDArray[np.intp] | Sequence[int]
"""Mask or row numbers."""

MARK_PLACES: Final = {str(mark): place for place, mark in enumerate(Mark)}
_NO_MARKS: Final = (math.nan,) * len(MARK_PLACES)


class Source(Protocol):
    """Rereadable origin of utterances."""

    @property
    def name(self) -> str:
        """Path, or ``standard input``."""

    def records_at(self, offsets: Iterable[int]) -> Iterator[UtteranceRecord]:
        """Yield the utterances at these byte offsets."""


@dataclass(frozen=True, slots=True)
class NameColumn:
    """Column of names, stored as codes."""

    codes: NDArray[np.int32]
    """Shape [n]; indices into ``names``."""
    names: tuple[str, ...]

    def of(self, row: int) -> str:
        return self.names[int(self.codes[row])]

    def where(self, name: str) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = (
            self.codes == self.names.index(name)
            if name in self.names
            else np.zeros(len(self.codes), bool)
        )
        return mask

    def counts(self) -> dict[str, int]:
        counts = np.bincount(self.codes, minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")
        return {self.names[code]: int(counts[code]) for code in order if counts[code]}


@dataclass(frozen=True)
class Columns:
    """Utterances in reading order; every array has shape [n]."""

    mark_ms: dict[str, Floats]
    """Milliseconds after the first mark, by `Mark`; NaN = missing."""
    started_unix_s: NDArray[np.float64]
    """Wall clock at the record's start."""
    origin_s: NDArray[np.float64]
    """First mark by the writer's monotonic clock; comparable within a call."""
    starvations: NDArray[np.int32]
    """Underruns."""
    starved_ms: Floats
    """Total duration of underruns."""
    longest_gap_ms: Floats
    heard_s: Floats
    """Speech heard."""
    clock_error_ms: Floats
    """Uncertainty of server marks, ±."""
    call: NameColumn
    engine: NameColumn
    voice: NameColumn
    end_reason: NameColumn
    line: NameColumn
    """``sip``, ``twilio``, ``webrtc``, …; empty if unknown."""
    codec: NameColumn
    kind: NameColumn
    """``greeting``, ``answer``, ``prompt``, ``filler``; empty if unknown."""
    rule: NameColumn
    """Rule that ended the caller's turn; empty if unknown."""
    source: NameColumn
    offset: NDArray[np.int64]
    """Byte offset of the line, in the spooled copy for a stream."""
    sources: tuple[Source, ...] = ()
    """By the codes of ``source``."""
    findings: Findings = field(default_factory=Findings)

    def __len__(self) -> int:
        return len(self.offset)

    def between_ms(self, first: Mark | str, last: Mark | str) -> Floats:
        """Return milliseconds between two marks; NaN where one is missing."""
        return self.mark_ms[last] - self.mark_ms[first]

    @property
    def first_sound_ms(self) -> Floats:
        """First delta to first audible frame on the wire."""
        return self.between_ms(Mark.FIRST_DELTA, Mark.FIRST_AUDIBLE_WIRE)

    @property
    def wait_ms(self) -> Floats:
        """Caller's last sound to the first audible frame of the answer."""
        return self.between_ms(Mark.SPEECH_END, Mark.FIRST_AUDIBLE_WIRE)

    @property
    def has_waits(self) -> bool:
        """Whether a recogniser reported the end of caller speech."""
        return bool((~np.isnan(self.wait_ms)).any())

    @property
    def lead_ms(self) -> Floats:
        """Caller's wait if known, else first sound; NaN in greetings."""
        if self.has_waits:
            return self.wait_ms
        return np.where(self.greeting, np.float32(np.nan), self.first_sound_ms)

    @property
    def greeting(self) -> NDArray[np.bool_]:
        return self.kind.where("greeting")

    @property
    def answers(self) -> NDArray[np.bool_]:
        """Mask without greetings; all if there are only greetings."""
        answers = ~self.greeting
        return answers if answers.any() else ~answers

    @property
    def silence_ms(self) -> Floats:
        """Barge-in to silence on the wire; 0 if silent already."""
        # np.maximum keeps NaN.
        return np.maximum(self.between_ms(Mark.INTERRUPTED, Mark.SILENT), np.float32(0))

    def has(self, mark: Mark | str) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = ~np.isnan(self.mark_ms[mark])
        return mask

    @property
    def played(self) -> NDArray[np.bool_]:
        """Mask of utterances with a frame on the wire."""
        return self.has(Mark.FIRST_FRAME_WIRE)

    def select(self, rows: Rows) -> Columns:
        """Return these rows in this order; names and findings are shared."""
        chosen = np.asarray(rows)
        if chosen.dtype != bool:
            chosen = chosen.astype(np.intp)
        taken: dict[str, object] = {
            "mark_ms": {name: values[chosen] for name, values in self.mark_ms.items()}
        }
        for each in fields(self):
            values = getattr(self, each.name)
            if isinstance(values, NameColumn):
                taken[each.name] = NameColumn(values.codes[chosen], values.names)
            elif isinstance(values, np.ndarray):
                taken[each.name] = values[chosen]
        return replace(self, **taken)  # type: ignore[arg-type]

    def record_at(self, row: int) -> UtteranceRecord:
        """Reread one utterance; raises LogChanged, OSError."""
        return next(self.records([row]))

    def records(self, rows: Iterable[int] | None = None) -> Iterator[UtteranceRecord]:
        """Reread these or all, one at a time; raises as `record_at`."""
        all_rows = range(len(self)) if rows is None else rows
        for code, run in groupby(all_rows, lambda row: int(self.source.codes[row])):
            mine = list(run)
            source = self.sources[code]
            found = source.records_at(int(self.offset[row]) for row in mine)
            for row, record in zip(mine, found, strict=True):
                if not self._is(row, record):
                    raise LogChanged(source.name)
                yield record

    def _is(self, row: int, record: UtteranceRecord) -> bool:
        same_time = record.started_unix_s == self.started_unix_s[row]
        return bool(same_time) and record.call_id == self.call.of(row)


class _Names:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._codes = array("i")

    def add(self, name: str) -> None:
        self._codes.append(self._numbers.setdefault(name, len(self._numbers)))

    def made(self) -> NameColumn:
        return NameColumn(np.array(self._codes, np.int32), tuple(self._numbers))


class ColumnsBuilder:
    """Accumulator of utterances; `columns` may be called at any time."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.sources: list[Source] = []
        self._numbers: dict[int, int] = {}
        self._memory = InMemory()
        self._marks = array("f")
        self._doubles = {name: array("d") for name in ("started_unix_s", "origin_s")}
        self._floats = {
            name: array("f")
            for name in ("starved_ms", "longest_gap_ms", "heard_s", "clock_error_ms")
        }
        self._names = {
            name: _Names()
            for name in ("call", "engine", "voice", "end_reason", "line", "codec", "kind", "rule")
        }
        self._starvations = array("i")
        self._source_codes = array("i")
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, record: UtteranceRecord, source: Source | None = None, offset: int = 0) -> None:
        """Add one; without ``source`` it is kept in memory."""
        marks = record.marks
        origin = min(marks.values(), default=0.0)
        row = list(_NO_MARKS)
        for name, at in marks.items():
            row[MARK_PLACES[name]] = (at - origin) * 1000
        self._marks.extend(row)
        self._doubles["started_unix_s"].append(record.started_unix_s)
        self._doubles["origin_s"].append(origin)
        floats = self._floats
        floats["starved_ms"].append(record.starved_ms)
        floats["longest_gap_ms"].append(record.longest_gap_ms)
        floats["heard_s"].append(record.heard_samples / record.rate_hz if record.rate_hz else 0.0)
        floats["clock_error_ms"].append(record.clock_error_ms)
        names = self._names
        names["call"].add(record.call_id)
        names["engine"].add(record.engine)
        names["voice"].add(record.voice)
        names["end_reason"].add(record.end_reason)
        names["line"].add(record.line)
        names["codec"].add(record.codec)
        names["kind"].add(record.kind)
        names["rule"].add(record.rule)
        self._starvations.append(min(record.starvations, 2**31 - 1))
        if source is None:
            source, offset = self._memory.keep(record)
        self._source_codes.append(self._number(source))
        self._offsets.append(offset)

    def _number(self, source: Source) -> int:
        number = self._numbers.get(id(source))
        if number is None:  # `sources` keeps it alive: its id stays its own
            number = self._numbers[id(source)] = len(self.sources)
            self.sources.append(source)
        return number

    def columns(self) -> Columns:
        """Return a copy of the columns so far."""
        marks = np.array(self._marks, np.float32).reshape(-1, len(MARK_PLACES))
        arrays: dict[str, Any] = {
            **{name: np.array(values, np.float64) for name, values in self._doubles.items()},
            **{name: np.array(values, np.float32) for name, values in self._floats.items()},
            **{name: values.made() for name, values in self._names.items()},
        }
        return Columns(
            mark_ms={
                name: np.ascontiguousarray(marks[:, place]) for name, place in MARK_PLACES.items()
            },
            **arrays,
            starvations=np.array(self._starvations, np.int32),
            source=NameColumn(
                np.array(self._source_codes, np.int32), tuple(each.name for each in self.sources)
            ),
            offset=np.array(self._offsets, np.int64),
            sources=tuple(self.sources),
            findings=self.findings,
        )


class InMemory:
    name = "memory"

    def __init__(self) -> None:
        self._records: list[UtteranceRecord] = []

    def keep(self, record: UtteranceRecord) -> tuple[InMemory, int]:
        self._records.append(record)
        return self, len(self._records) - 1

    def records_at(self, offsets: Iterable[int]) -> Iterator[UtteranceRecord]:
        return (self._records[offset] for offset in offsets)


def columns_of(records: Iterable[UtteranceRecord]) -> Columns:
    builder = ColumnsBuilder()
    for record in records:
        builder.add(record)
    return builder.columns()
