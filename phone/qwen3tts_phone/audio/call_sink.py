"""Sink of a call whose frames this process paces (streams, WebRTC)."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling
from qwen3tts_phone.audio.frames import Tap
from qwen3tts_speech.sink import PacerSink, Played, Write


@dataclass(frozen=True, slots=True)
class SinkPacing:
    ptime_ms: int
    queued_s: float
    lead_ms: int = 0
    continuous: bool = True
    late_ms: int = 0


class PacerCallSink(PacerSink):
    """`PacerSink` with taps, counters, and a playout position that never decreases."""

    def __init__(
        self,
        write: Write,
        payload: Payload,
        pacing: SinkPacing,
        *,
        clock: Clock | None,
        policy: Filling | None,
    ) -> None:
        super().__init__(
            write,
            silence=payload.silent_frame(pacing.ptime_ms),
            ptime_ms=pacing.ptime_ms,
            lead_ms=pacing.lead_ms,
            queued_s=pacing.queued_s,
            clock=clock,
            policy=policy,
            continuous=pacing.continuous,
            late_ms=pacing.late_ms,
        )
        self.scale(payload.name, payload.sample_hz)
        self.sent_frames = 0
        """Frames of speech."""
        self.first_at: float | None = None
        """Sending time of the first frame of speech, seconds of the clock."""
        self.last_at: float | None = None
        """End of the last utterance that was played in full, seconds of the clock."""
        self._taps: list[Tap] = []
        self._positions: dict[int, int] = {}

    async def drained(self, context: int) -> Played:
        played = await super().drained(context)
        if played.last_at is not None and not played.dropped:
            self.last_at = self.clock.now()
        self._positions.pop(context, None)
        return played

    def position(self, context: int) -> int:
        over = self._over.get(context)
        if over is not None:
            return over.position
        position = max(self._positions.get(context, 0), self._estimated_position(context))
        self._positions[context] = position
        return position

    def tap(self, tap: Tap) -> None:
        if tap not in self._taps:
            self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        if tap in self._taps:
            self._taps.remove(tap)

    @property
    def skipped_slots(self) -> int:
        return self._pacer.core.skipped_slots

    @property
    def starvations(self) -> int:
        return self._pacer.core.starvations

    def _estimated_position(self, context: int) -> int:
        return super().position(context)

    def _count_frame(self) -> None:
        self.first_at = self.clock.now() if self.first_at is None else self.first_at
        self.sent_frames += 1
