"""Input of the pacer (frame) and its output (slot)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Frame(NamedTuple):
    """One packet time of encoded speech with its faded variants."""

    payload: bytes
    tail: bytes | None
    """Fade to silence for the next slot if nothing follows; None = plain silence."""
    head: bytes | None
    """The frame faded in, for after a hole in mid-speech; None = the payload."""
    context: int
    """Number of the utterance; rises within a call."""
    start: int
    """Samples of the context's rate before this frame."""
    end: int
    """Samples with this frame, without padding."""
    silent: bool = False


class Kind(Enum):
    """Content of a slot."""

    SPEECH = "speech"
    FADE = "fade"
    """Tail after the last frame; counted as silence."""
    SILENCE = "silence"


class Slot:
    """Packet to send now."""

    __slots__ = ("deadline", "frame", "kind", "marker", "missed", "payload", "ticks")

    payload: bytes
    kind: Kind
    marker: bool
    """RTP marker bit: the packet follows a break in the sending (RFC 3551 section 4.1)."""
    ticks: int
    """Timestamp advance since the last slot, in packet times; 0 on the first."""
    frame: Frame | None
    """Source; None for silence and fades."""
    deadline: float
    """Place on the grid, seconds; with a lead, when the sink plays it."""
    missed: int
    """Slots just before that this frame's utterance lost to an underrun or lateness."""

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
        place = f" {self.frame.context}:{self.frame.start}-{self.frame.end}" if self.frame else ""
        marker = " marker" if self.marker else ""
        return f"<Slot {self.kind.value}{place} +{self.ticks}{marker} at {self.deadline:.3f}>"
