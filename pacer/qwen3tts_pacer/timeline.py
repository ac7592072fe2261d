"""Which sample of which utterance is at the caller's ear."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from qwen3tts_pacer.frame import Frame


class Span(NamedTuple):
    """Speech of one utterance played without a break; times in seconds, positions in samples."""

    context: int
    start: int
    end: int
    began: float
    ended: float


class Timeline:
    """What was sent and when it is heard; memory is bounded by ``spans_kept`` stretches."""

    def __init__(self, ptime_s: float = 0.02, spans_kept: int = 256) -> None:
        self._ptime = ptime_s
        self._spans: deque[list[float]] = deque(maxlen=spans_kept)
        # [context, start, end, began, ended, samples of a full frame]

    def sent(self, frame: Frame, at: float) -> None:
        """The frame begins to play at ``at``: `Slot.deadline`, not the moment of the call."""
        spans = self._spans
        if spans:
            last = spans[-1]
            if (
                last[0] == frame.context
                and last[2] == frame.start
                and abs(at - last[4]) < self._ptime / 2
            ):
                last[2] = frame.end
                last[4] += self._ptime
                return
        samples = frame.end - frame.start
        spans.append([frame.context, frame.start, frame.end, at, at + self._ptime, samples])

    def position(self, context: int, now: float, queued_s: float = 0.0) -> int:
        """Samples of the context that have been heard at ``now``.

        ``queued_s`` is what the sink still holds, where it says so. 0 for an unknown context.
        """
        heard = now - queued_s
        for number, start, end, began, _, samples in reversed(self._spans):
            if number == context and began <= heard:
                return int(min(end, start + (heard - began) / self._ptime * samples + 1e-6))
        return 0

    def at(self, now: float) -> tuple[int, int] | None:
        """Context and sample at the ear at ``now``; None in silence."""
        for number, start, end, began, ended, samples in reversed(self._spans):
            if began <= now < ended:
                position = int(start + (now - began) / self._ptime * samples + 1e-6)
                return int(number), min(int(end), position)
            if ended <= now:
                return None
        return None

    def spans(self, context: int | None = None) -> list[Span]:
        """The unbroken stretches of one context, or of all that are still remembered."""
        return [
            Span(int(number), int(start), int(end), began, ended)
            for number, start, end, began, ended, _ in self._spans
            if context is None or number == context
        ]

    def forget(self, context: int) -> None:
        """Drop an utterance whose record has been written."""
        kept = [span for span in self._spans if span[0] != context]
        self._spans.clear()
        self._spans.extend(kept)
