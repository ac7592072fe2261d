"""An utterance as stages: what was waited for, from when to when, at the client and at the server.

Stages of one side follow each other by one clock and never run backwards. What the server measured
is mapped to the client's clock, give or take ``clock_error_ms``; so it stands apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from qwen3tts_speech.latency import Mark, UtteranceRecord

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
"""The way to the first sound by the client's clock; from `Mark.REQUEST_SENT` to `Mark.RECEIVED` the
network and the server are waited for."""
SERVER: Final = (
    Mark.REQUEST_RECEIVED,
    Mark.SEGMENT_READY,
    Mark.SLOT,
    Mark.PREFILL,
    Mark.FIRST_CODES,
    Mark.FIRST_PCM,
    Mark.FIRST_AUDIBLE_PCM,
)
"""What the server does meanwhile, by its clock."""
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
"""What is waited for before a mark, in words that are the same for every utterance."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of an utterance's time; seconds of the client's monotonic clock."""

    name: str
    """A value of `WAITED_FOR`, ``speaking`` or ``falling silent``."""
    start: float
    end: float
    first: Mark
    """The mark that it begins with."""
    last: Mark

    @property
    def ms(self) -> float:
        """How long it took."""
        return (self.end - self.start) * 1000


def client_stages(record: UtteranceRecord) -> list[Stage]:
    """The stages on the way to the first sound; a mark that is missing makes one of two."""
    return _stages(record, CLIENT)


def server_stages(record: UtteranceRecord) -> list[Stage]:
    """What the server did; none where it told fewer than two marks."""
    return _stages(record, SERVER)


def speaking(record: UtteranceRecord) -> Stage | None:
    """From the first frame to the last one; None where nothing went out."""
    return _between(record, "speaking", Mark.FIRST_FRAME_WIRE, Mark.LAST_FRAME)


def falling_silent(record: UtteranceRecord) -> Stage | None:
    """From the interruption to silence; None where nobody interrupted."""
    return _between(record, "falling silent", Mark.INTERRUPTED, Mark.SILENT)


def began_unix_s(record: UtteranceRecord) -> float:
    """What is to be added to the record's marks to have the wall clock, seconds.

    The wall clock was read when the words were asked for. Without that mark it is taken for that of
    the first one.
    """
    marks = record.marks
    return record.started_unix_s - marks.get(Mark.TEXT_IN, min(marks.values(), default=0.0))


def _stages(record: UtteranceRecord, chain: Iterable[Mark]) -> list[Stage]:
    """Marks in the order of time: a log may hold a clock that ran backwards, a stage may not."""
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
