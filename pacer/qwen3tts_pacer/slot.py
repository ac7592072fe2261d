"""What goes into the pacer (a frame) and what comes out of it (a slot)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Frame(NamedTuple):
    """One ptime of encoded speech with its faded variants; opaque bytes to the pacer."""

    payload: bytes
    tail: bytes | None
    """Played in the next slot if nothing follows: a short fade to silence. None = plain silence."""
    head: bytes | None
    """This frame faded in, played when it follows a hole in mid-speech. None = the payload."""
    context: int
    """The utterance; numbers rise within a call and are never used twice."""
    start: int
    """Samples of the context's rate before this frame."""
    end: int
    """Samples of the context's rate with this frame; the padding of a last one left out."""
    silent: bool = False
    """Nothing in it can be heard; only used to tell when the first sound went out."""


class Kind(Enum):
    """What a slot carries."""

    SPEECH = "speech"
    FADE = "fade"
    """The tail after the last frame; counted as silence, no position belongs to it."""
    SILENCE = "silence"


class Slot:
    """One packet to send now. A fresh object each time; the core keeps no reference to it."""

    __slots__ = ("deadline", "frame", "kind", "marker", "missed", "payload", "ticks")

    payload: bytes
    kind: Kind
    marker: bool
    """RTP marker bit: this packet follows a break in the sending (RFC 3551 section 4.1)."""
    ticks: int
    """Timestamp advance since the last slot, in units of ptime; 0 on the very first."""
    frame: Frame | None
    """The frame it was made of; None for silence and fades."""
    deadline: float
    """The slot's place on the grid, seconds; with a lead, the time at which the sink plays it."""
    missed: int
    """Slots just before that this frame's utterance lost to an underrun or to lateness."""

    def __init__(
        self,
        payload: bytes,
        kind: Kind,
        marker: bool,
        ticks: int,
        frame: Frame | None,
        deadline: float,
        missed: int = 0,
    ) -> None:
        self.payload = payload
        self.kind = kind
        self.marker = marker
        self.ticks = ticks
        self.frame = frame
        self.deadline = deadline
        self.missed = missed

    def __repr__(self) -> str:
        """Name what matters in a failing test; never the audio itself."""
        place = f" {self.frame.context}:{self.frame.start}-{self.frame.end}" if self.frame else ""
        marker = " marker" if self.marker else ""
        return f"<Slot {self.kind.value}{place} +{self.ticks}{marker} at {self.deadline:.3f}>"
