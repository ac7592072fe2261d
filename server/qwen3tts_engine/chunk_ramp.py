"""How many codec frames go into a chunk: as few as the deadline needs, as many as it allows. Pure.

Small chunks bring the first sound early, large ones cost less to decode and to send. A chunk may
grow while the audio ahead of the listener covers the wait for its frames; what it may at most be
grows along the ramp (1, 2, 4, 8), and shrinks again with a chunk that had to leave early.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from qwen3tts_engine.schedule_row import EPSILON_S, FRAME_S, Row, RowState


def powers_below(steady: int) -> tuple[int, ...]:
    """Powers of two below the steady chunk: the choices of an initial chunk that follows load."""
    return tuple(1 << i for i in range(max(1, (steady - 1).bit_length())))


def chunk_by_load(active: int, slots: int, steady: int) -> int:
    """Frames in a first chunk by load: ``active`` of ``slots`` rows, in linear steps."""
    choices = powers_below(steady)
    share = min(1.0, active / slots)
    return choices[min(len(choices) - 1, int(share * len(choices)))]


class ChunkRamp:
    """The chunk sizes, and which one a row takes when.

    Args:
        sizes: allowed sizes in frames, rising.
        margin_s: audio that is left with the listener while a chunk gathers.
    """

    def __init__(self, sizes: Sequence[int], margin_s: float) -> None:
        self.sizes = tuple(sizes)
        self._margin_s = margin_s

    @property
    def steady(self) -> int:
        """The largest chunk."""
        return self.sizes[-1]

    def at_most(self, frames: float) -> int:
        """The largest size that is not above ``frames``, at least the smallest."""
        return self.sizes[max(0, bisect_right(self.sizes, frames) - 1)]

    def open(self, row: Row, initial: int | None) -> None:
        """A row got its slot: its first chunk, ``initial`` frames where that was chosen."""
        row.first_chunk = initial or self.at_most(row.reach_s / 2 / FRAME_S)
        row.cap = row.first_chunk
        row.keep_s = min(self._margin_s, row.reach_s / 2)

    def take(self, row: Row, frames: int, now: float) -> None:
        """``frames`` of a row go to the codec: what its next chunk may be."""
        row.taken += frames
        row.decoding.append((frames, now))
        row.ripe_since = None
        row.look(now)
        row.keep_s = min(self._margin_s, row.reach_s / 2)
        following = bisect_right(self.sizes, frames)
        row.cap = min(self.sizes[min(following, len(self.sizes) - 1)], self._affordable(row))

    def _affordable(self, row: Row) -> int:
        """The largest chunk whose gathering leaves the margin to the listener."""
        if not row.paced:
            return self.steady
        return self.at_most((row.low_s - self._margin_s) / FRAME_S)

    def due(self, row: Row, latency_s: float) -> bool:
        """Whether a decode that waits for one frame more would come too late."""
        return row.reach_s - latency_s <= row.keep_s + EPSILON_S

    def due_at(self, row: Row, latency_s: float, now: float) -> float | None:
        """When that will be; None: not by time alone."""
        lead_s = row.keep_s + latency_s - (row.taken - row.arrived) * FRAME_S
        # Below zero: what is being decoded is enough until it arrives.
        return row.lead.falls_to(lead_s, now) if lead_s >= 0 else None

    def ready(self, row: Row, latency_s: float, may_step: bool) -> int:
        """Frames that a row would have decoded now, 0 for none."""
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
