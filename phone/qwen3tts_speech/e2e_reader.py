"""Reader of mr_sip's latency log.

Lines without a session (older versions, PySIP's first packet) go to the one utterance that fits in
time, if any.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from qwen3tts_speech.e2e_lines import (
    MAX_LINE_CHARS,
    RECORD,
    SPOKEN,
    UNKNOWN,
    E2eLine,
    marks_of,
    read_line,
    take_facts,
)
from qwen3tts_speech.latency import MAX_EXAMPLES, Damaged, Mark, UtteranceRecord

MAX_OPEN = 10_000
"""Open utterances; beyond, the oldest is complete."""
CLOSED_S = 300.0
"""An utterance is complete this long after its last event."""
RESTART_S = 3600.0
"""A clock this far behind is another one: the machine was restarted."""
NEAR_S = 2.0
"""Longest time from an utterance's first sound to a first packet without a session."""
MAX_LOST = 10_000
"""Events without a session that wait."""
WIRE = frozenset((Mark.QUEUED, Mark.FIRST_FRAME_WIRE))
"""Marks that a line without a session may give."""


@dataclass(slots=True)
class _Group:
    line: int
    """First line, from 1."""
    record: UtteranceRecord
    newest_s: float
    spoken: bool = False
    """True if it holds events of the speaker or of the wire."""
    seen: set[str] = field(default_factory=set)


class E2eGroups:
    """Groups events (pure); the first of a kind counts."""

    def __init__(self) -> None:
        self.unplaced = 0
        """Events without a session that fit no utterance, or several."""
        self._open: OrderedDict[tuple[str, int], _Group] = OrderedDict()
        self._lost: list[tuple[float, Mark]] = []
        self._now_s = 0.0

    def add(self, line: bytes | str, number: int) -> list[tuple[UtteranceRecord, int]]:
        """Take line ``number``; return complete records with first lines.

        Raises BadE2eLine.
        """
        event = read_line(line)
        done: list[tuple[UtteranceRecord, int]] = []
        if event.perf_s < self._now_s - RESTART_S:
            done = self.finish()
        self._now_s = max(self._now_s, event.perf_s)
        key = event.session, event.utterance
        group = self._open.get(key)
        # Where the speaker's own lines have no session, either, those of the wire belong to them.
        at_home = group is not None and Mark.RECEIVED in group.record.marks
        if event.session == UNKNOWN and not at_home and self._keep_for_others(event):
            return done
        if group is None:
            record = UtteranceRecord(
                call_id="" if event.session == UNKNOWN else event.session,
                context=str(event.utterance),
                started_unix_s=event.at_unix_s,
            )
            group = self._open[key] = _Group(number, record, event.perf_s)
        _take(group, event)
        while self._open:
            oldest = next(iter(self._open.values()))
            if len(self._open) <= MAX_OPEN and self._now_s - oldest.newest_s <= CLOSED_S:
                break
            done += self._close()
        return done

    def finish(self) -> list[tuple[UtteranceRecord, int]]:
        """Return all open records at the end of file or clock."""
        done: list[tuple[UtteranceRecord, int]] = []
        while self._open:
            done += self._close()
        self.unplaced += len(self._lost)
        self._lost.clear()
        self._now_s = 0.0
        return done

    def _keep_for_others(self, event: E2eLine) -> bool:
        marks = marks_of(event)
        if not marks or not WIRE.issuperset(marks):
            return False
        for mark, at in marks.items():
            self._lost.append((at, Mark(mark)))
        while len(self._lost) > MAX_LOST:
            self._lost.pop(0)
            self.unplaced += 1
        return True

    def _close(self) -> list[tuple[UtteranceRecord, int]]:
        _, group = self._open.popitem(last=False)
        marks = group.record.marks
        if Mark.TEXT_IN in marks and RECORD not in group.seen:
            # What the host calls the model's first partial is both: asked for, and a first delta.
            group.record.mark(Mark.FIRST_DELTA, marks[Mark.TEXT_IN])
        received = marks.get(Mark.RECEIVED)
        if received is not None:
            for mark in (Mark.QUEUED, Mark.FIRST_FRAME_WIRE):
                if mark not in marks:
                    self._place(group.record, mark, received)
        return [(group.record, group.line)] if group.spoken else []

    def _place(self, record: UtteranceRecord, mark: Mark, received: float) -> None:
        for place, (at, kind) in enumerate(self._lost):
            if kind is mark and received <= at <= received + NEAR_S:
                del self._lost[place]
                if any(_can_have(other.record, mark, at) for other in self._open.values()):
                    self.unplaced += 1
                else:
                    record.mark(mark, at)
                return


def _can_have(record: UtteranceRecord, mark: Mark, at: float) -> bool:
    received = record.marks.get(Mark.RECEIVED)
    return received is not None and mark not in record.marks and received <= at <= received + NEAR_S


def _take(group: _Group, event: E2eLine) -> None:
    if event.event in group.seen:
        return
    group.seen.add(event.event)
    group.newest_s = max(group.newest_s, event.perf_s)
    record = group.record
    if event.event == RECORD:
        take_facts(record, event)
    for mark, at in marks_of(event).items():
        record.mark(mark, at)
        group.spoken = group.spoken or mark in _SPEAKS
    if event.event == SPOKEN[0][0]:
        # The model's first words: what the host knows of them, where nothing says more.
        record.started_unix_s = event.at_unix_s


_SPEAKS = frozenset((*(mark for _, mark in SPOKEN), Mark.FIRST_FRAME_WIRE))


class E2eReader:
    """Iterates over the records of mr_sip's log, as `qwen3tts_speech.latency.LogReader`."""

    lines: int
    damaged: int
    examples: list[Damaged]
    """The first damaged lines, at most `MAX_EXAMPLES`."""

    def __init__(self, stream: BinaryIO, *, close: bool = False) -> None:
        self._stream = stream
        self._close = close
        self._groups = E2eGroups()
        self.lines = 0
        self.damaged = 0
        self.examples: list[Damaged] = []

    @property
    def unplaced(self) -> int:
        return self._groups.unplaced

    def __iter__(self) -> Iterator[UtteranceRecord]:
        for record, _ in self.numbered():
            yield record

    def numbered(self) -> Iterator[tuple[UtteranceRecord, int]]:
        try:
            while line := self._stream.readline(MAX_LINE_CHARS + 1):
                self.lines += 1
                whole = line
                while not line.endswith(b"\n") and len(line) > MAX_LINE_CHARS:
                    line = self._stream.readline(MAX_LINE_CHARS + 1)
                if whole.isspace():
                    continue
                try:
                    done = self._groups.add(whole, self.lines)
                except ValueError as error:
                    self._note(str(error))
                else:
                    yield from done
            yield from self._groups.finish()
        finally:
            self.close()

    def close(self) -> None:
        if self._close:
            self._stream.close()

    def _note(self, why: str) -> None:
        self.damaged += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Damaged(self.lines, why))


def read_e2e(source: str | os.PathLike[str] | BinaryIO) -> E2eReader:
    """Read mr_sip's log. Raises OSError."""
    if isinstance(source, str | os.PathLike):
        return E2eReader(Path(source).open("rb"), close=True)
    return E2eReader(source)
