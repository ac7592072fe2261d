"""Playout timeline: which sample of which utterance is played when."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from qwen3tts_pacer.slot import Frame

N = TypeVar("N", int, float)


class ContextPlayout(Generic[N]):
    """Playout ledger of one context: frames sent, their times, and underruns in mid-utterance.

    Times and gaps are seconds, or nanoseconds and slots: those of the caller.
    """

    __slots__ = (
        "audible_at",
        "end",
        "first_at",
        "frames",
        "last_at",
        "longest",
        "missed",
        "starvations",
    )

    def __init__(self) -> None:
        self.frames = 0
        self.end = 0
        """Position after the last frame sent, samples of the context's rate."""
        self.first_at: N | None = None
        self.audible_at: N | None = None
        """When the first frame with sound was sent."""
        self.last_at: N | None = None
        self.starvations = 0
        """Gaps in mid-utterance, by an underrun or lateness."""
        self.missed: N | int = 0
        """Their length altogether."""
        self.longest: N | int = 0

    def sent(self, frame: Frame, at: N, gap: N) -> None:
        """Note a frame that was sent after a gap; 0 = right after the one before."""
        self.frames += 1
        self.end = frame.end
        self.last_at = at
        if self.first_at is None:
            self.first_at = at
        if self.audible_at is None and not frame.silent:
            self.audible_at = at
        if gap:
            self.starvations += 1
            self.missed += gap
            self.longest = max(self.longest, gap)


class Span(NamedTuple):
    """Speech of one utterance played without a break; seconds and samples."""

    context: int
    start: int
    end: int
    began: float
    ended: float


class Timeline:
    """Record of what was sent; keeps the last ``spans_kept`` stretches."""

    def __init__(self, ptime_s: float = 0.02, spans_kept: int = 256) -> None:
        self._ptime = ptime_s
        self._spans: deque[list[float]] = deque(maxlen=spans_kept)
        # [context, start, end, began, ended, samples of the first frame, of the following ones]

    def sent(self, frame: Frame, at: float) -> None:
        """Note that the frame begins to play at ``at``.

        `Slot.deadline`, not the moment of the call.
        """
        spans = self._spans
        if spans:
            last = spans[-1]
            if (
                last[0] == frame.context
                and last[2] == frame.start
                and abs(at - last[4]) < self._ptime / 2
            ):
                # The first frame may bring fewer samples than the others, and so may the last.
                last[6] = max(last[6], frame.end - frame.start)
                last[2] = frame.end
                last[4] += self._ptime
                return
        samples = frame.end - frame.start
        spans.append(
            [frame.context, frame.start, frame.end, at, at + self._ptime, samples, samples]
        )

    def position(self, context: int, now: float, queued_s: float = 0.0) -> int:
        """Return the samples of the context played at ``now``; 0 for an unknown one.

        ``queued_s`` is what the sink still buffers.
        """
        heard = now - queued_s
        for span in reversed(self._spans):
            if span[0] == context and span[3] <= heard:
                return self._within(span, heard)
        return 0

    def at(self, now: float) -> tuple[int, int] | None:
        """Return context and sample played at ``now``; None in silence."""
        for span in reversed(self._spans):
            if span[3] <= now < span[4]:
                return int(span[0]), self._within(span, now)
            if span[4] <= now:
                return None
        return None

    def spans(self, context: int | None = None) -> list[Span]:
        """Return the stretches of one context, or of all."""
        return [
            Span(int(number), int(start), int(end), began, ended)
            for number, start, end, began, ended, *_ in self._spans
            if context is None or number == context
        ]

    def _within(self, span: list[float], heard: float) -> int:
        _, start, end, began, _, first, following = span
        frames = (heard - began) / self._ptime
        samples = frames * first if frames < 1 else first + (frames - 1) * following
        return int(min(end, start + samples + 1e-6))

    def forget(self, context: int) -> None:
        kept = [span for span in self._spans if span[0] != context]
        self._spans.clear()
        self._spans.extend(kept)
