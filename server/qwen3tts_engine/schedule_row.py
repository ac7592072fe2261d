"""State of one scheduled generation."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from qwen3tts_engine.playout import PlayoutLead

FRAME_S = 0.08
"""Sound in one codec frame: 12.5 frames a second."""
FRAME_SAMPLES = 1920
"""The same at 24 kHz."""
CODE_RING = 64
"""Frames of codes that a slot holds until their decode has arrived."""
EPSILON_S = 1e-6
"""Two times nearer than this are the same."""


class RowState(Enum):
    """State of a job; starved, paced and held rows are RUNNING."""

    WAITING = auto()
    """Admitted, without a slot."""
    RUNNING = auto()
    """In a slot; frames are made."""
    DRAINING = auto()
    """In a slot; no more frames are made, some are not yet sound."""


@dataclass(slots=True, eq=False)
class Row:
    """One job; ``arrived <= taken <= stepped`` frames."""

    job: Hashable
    order: int
    """Number of the admission."""
    lead: PlayoutLead
    target_s: float
    """Audio ahead with which it rests; infinite: never."""
    low_s: float
    """Audio ahead with which it must go on."""
    admitted: float
    """When, seconds."""
    own_chunk: int | None = None
    """Frames in the first chunk as the request wants it."""
    frame_s: float = FRAME_S
    """Audio that the listener gets of one frame."""
    assumed: bool = False
    """True if ``lead`` is the scheduler's own assumption of a listener."""
    state: RowState = RowState.WAITING
    has_text: bool = True
    held: bool = False
    stepped: int = 0
    """Frames whose codes exist."""
    taken: int = 0
    """Frames that a plan has given to decode."""
    arrived: int = 0
    """Frames that are sound."""
    first_chunk: int = 1
    """Frames to wait for before the first decode, while the listener hears nothing anyway."""
    cap: int = 1
    """Most frames in the next decode."""
    keep_s: float = 0.0
    """Lead to keep while frames gather for a larger chunk."""
    dry_since: float | None = None
    """Since when the listener has nothing; None: it has something."""
    ripe_since: float | None = None
    """Since when a whole chunk waits."""
    last_step: int = -1
    """Number of its last step among all rows' steps."""
    whole: bool = False
    """True if the number of its frames is settled."""
    decoding: deque[tuple[int, float]] = field(default_factory=deque)
    """Decodes under way: frames, when planned."""

    # What ``look`` saw: the same moment for all decisions of a plan.
    reach_s: float = 0.0
    """Audio ahead of the listener, made or being decoded."""
    ahead_s: float = 0.0
    """The same with the frames that wait for a decode."""
    rushed: bool = False
    """True if a job whose listener needs sound waits for a slot: this one then runs to its end,
    whatever its own lead."""
    unheard: bool = True
    """True if the context has made no sound at all, nor is any being decoded: a new call."""

    def look(self, now: float) -> None:
        lead = self.lead
        decoding = self.taken - self.arrived
        self.reach_s = lead.seconds(now) + decoding * self.frame_s
        self.ahead_s = self.reach_s + (self.stepped - self.taken) * self.frame_s
        self.unheard = decoding == 0 and not lead.started

    @property
    def undecoded(self) -> int:
        return self.stepped - self.taken

    @property
    def decided(self) -> bool:
        return self.taken > 0

    @property
    def finished(self) -> bool:
        return self.state is RowState.DRAINING and self.arrived == self.stepped

    @property
    def stalled(self) -> bool:
        return self.held and not self.rushed

    @property
    def silent(self) -> bool:
        return self.reach_s <= EPSILON_S

    @property
    def paced(self) -> bool:
        return self.target_s != math.inf

    # --- whether it may step ---

    def may_step(self, room: int) -> bool:
        """Return whether a frame may be made: text, ring room, reader and use."""
        return self.can_step(room) and (
            self.rushed or self.ahead_s < self.target_s or self._gathers()
        )

    def can_step(self, room: int) -> bool:
        return (
            self.state is not RowState.DRAINING
            and self.has_text
            and not self.stalled
            and self.stepped - self.arrived < room
        )

    def wants_step(self) -> bool:
        return self.ahead_s <= self.low_s + EPSILON_S or self._gathers()

    def hurries(self, hurry_s: float) -> bool:
        return (
            self.ahead_s <= min(hurry_s, self.low_s) + EPSILON_S
            or self._gathers()
            or self.rushed
            or not self.paced
        )

    def _gathers(self) -> bool:
        return self.taken == 0 and self.stepped < self.first_chunk and self.silent

    def falls_to(self, ahead_s: float, now: float) -> float | None:
        """Return when the lead falls to ``ahead_s``; None: not by time."""
        lead_s = ahead_s - (self.stepped - self.arrived) * self.frame_s
        # Below zero: its undecoded frames must be decoded first.
        return self.lead.falls_to(lead_s, now) if lead_s >= 0 else None


def powers_below(steady: int) -> tuple[int, ...]:
    return tuple(1 << i for i in range(max(1, (steady - 1).bit_length())))


def chunk_by_load(active: int, slots: int, steady: int) -> int:
    """Return a first chunk's frames for ``active`` of ``slots`` rows."""
    choices = powers_below(steady)
    share = min(1.0, active / slots)
    return choices[min(len(choices) - 1, int(share * len(choices)))]


class ChunkRamp:
    """Chunk sizes, rising from the first to the steady one.

    Args:
        sizes: allowed sizes in frames, rising.
        margin_s: audio left with the listener while a chunk gathers.
    """

    def __init__(self, sizes: Sequence[int], margin_s: float) -> None:
        self.sizes = tuple(sizes)
        self._margin_s = margin_s

    @property
    def steady(self) -> int:
        return self.sizes[-1]

    def at_most(self, frames: float) -> int:
        return self.sizes[max(0, bisect_right(self.sizes, frames) - 1)]

    def open(self, row: Row, initial: int | None) -> None:
        row.first_chunk = initial or self.at_most(row.reach_s / 2 / row.frame_s)
        row.cap = row.first_chunk
        row.keep_s = min(self._margin_s, row.reach_s / 2)

    def take(self, row: Row, frames: int, now: float) -> None:
        row.taken += frames
        row.decoding.append((frames, now))
        row.ripe_since = None
        row.look(now)
        row.keep_s = min(self._margin_s, row.reach_s / 2)
        following = bisect_right(self.sizes, frames)
        row.cap = min(self.sizes[min(following, len(self.sizes) - 1)], self._affordable(row))

    def _affordable(self, row: Row) -> int:
        if not row.paced:
            return self.steady
        return self.at_most((row.low_s - self._margin_s) / row.frame_s)

    def due(self, row: Row, latency_s: float) -> bool:
        return row.reach_s - latency_s <= row.keep_s + EPSILON_S

    def due_at(self, row: Row, latency_s: float, now: float) -> float | None:
        """Return when that will be; None: not by time alone."""
        lead_s = row.keep_s + latency_s - (row.taken - row.arrived) * row.frame_s
        # Below zero: what is being decoded is enough until it arrives.
        return row.lead.falls_to(lead_s, now) if lead_s >= 0 else None

    def ready(self, row: Row, latency_s: float, may_step: bool) -> int:
        waiting = row.undecoded
        if waiting == 0 or row.stalled:
            return 0
        if row.state is RowState.DRAINING:
            return self.at_most(waiting)
        if waiting >= row.cap:
            return row.cap
        if not row.decided and row.silent and may_step:
            return 0  # nothing plays that could run dry: the first chunk is waited for
        return self.at_most(waiting) if self.due(row, latency_s) else 0


RISE = 0.5
"""Weight of a turn slower than the mean: rows must be safe immediately."""
FALL = 0.1
"""Weight of a faster one."""
LONGEST_S = 0.25
"""A longer turn is a stall of the machine, not what the next will take."""


class TurnTimes:
    """Running means of turns and decodes, seconds; fast up, slow down."""

    def __init__(self) -> None:
        self.turn_s = 0.0
        """From a plan that has work to the next plan."""
        self.decode_s = 0.0
        """From a plan that names a decode to the arrival of its sound."""
        self._began: float | None = None

    @property
    def latency_s(self) -> float:
        """Seconds from a plan without a frame to its sound by the next plan."""
        return self.turn_s + self.decode_s

    def began(self, now: float) -> None:
        self._began = now

    def turn(self, now: float) -> None:
        if self._began is not None and now > self._began:
            self.turn_s = _mean(self.turn_s, now - self._began)
            self._began = None

    def decoded(self, seconds: float) -> None:
        self.decode_s = _mean(self.decode_s, seconds)


def _mean(mean: float, seconds: float) -> float:
    seconds = min(max(0.0, seconds), LONGEST_S)
    if mean == 0.0:
        return seconds
    return mean + (RISE if seconds > mean else FALL) * (seconds - mean)
