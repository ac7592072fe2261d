"""Pacer core of an RTP sender, which knows more of a call than that speech comes."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_pacer.core import NEVER, PacerCore
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import PacerError, State


class SenderCore(PacerCore):
    """Pacer core whose stream may change, pause, and be fetched ahead.

    Formats change by `regrid`, `change` and `set_continuous`; slots that carry something else are
    passed; a slot that nothing can change is given out before its time.
    """

    def regrid(self, ptime_s: float, origin: float) -> None:
        """Change the packet time: slot 0 now lies at ``origin``; the queue stays."""
        self.ptime_s = ptime_s
        self._half = ptime_s / 2
        self._base = self._origin = origin
        if self._tick != self._sent + 1:
            self._mark, self._last = self._mark or self._sent >= 0, None
        self._underrun_tick -= self._tick
        self._tick, self._sent = 0, -1
        if self._deadline != NEVER:
            self._deadline = origin - self._lead

    def change(self, change: Callable[[Frame], Frame]) -> None:
        """Replace each frame that waits, and the one whose fade may follow: the codec changes."""
        changed = [change(frame) for frame in self._frames]
        self._frames.clear()
        self._frames.extend(changed)
        if self._last is not None:
            self._last = change(self._last)

    def set_continuous(self, continuous: bool, now: float) -> None:
        if continuous == self.continuous:
            return
        self.continuous = continuous
        if self._sent < 0 and not continuous:
            self._mark = True
        if self._state is State.HELD or not self._started:
            return
        if continuous:
            self._aim(now)
        else:
            self._arm(now)

    def mark(self) -> None:
        """Set the marker of the next slot: other packets were sent, or the stream is new."""
        self._mark = True

    def pass_slot(self, now: float) -> None:
        """Leave the slot at ``now`` empty (hold, DTMF): no underrun, the queue stays."""
        tick = self._tick_at(now)
        if self._state is State.STARVED:
            self._underrun_tick += tick + 1 - self._tick
        self._tick = tick + 1
        self._last = None
        if self._deadline != NEVER:
            self._deadline = self._origin + self._tick * self.ptime_s - self._lead

    def fade(self, now: float) -> Slot | None:
        """Return a fade for the slot at ``now``; sending pauses, the queue stays.

        None = nothing plays.
        """
        tick, last = self._tick_at(now), self._last
        self._last = None
        if last is None or tick != self._sent + 1:
            return None
        self._sent, self._tick = tick, tick + 1
        at = self._origin + tick * self.ptime_s
        self._deadline = at + self.ptime_s - self._lead
        self.sent_silence += 1
        return Slot(last.tail or self.silence, Kind.FADE, False, 1, None, at)

    def due_ahead(self, at: float) -> Slot | None:
        """Return the slot at ``at``, the next place, before its time, if nothing can change it.

        That is in mid-utterance with more of it queued. `take_back` undoes it.
        """
        frames, tick = self._frames, self._tick
        if len(frames) < 2 or self._last is None or self._mark or tick != self._sent + 1:
            return None
        number = self._playing
        if not frames[0].context == frames[1].context == number:
            return None
        if self._state is not State.PLAYING and self._state is not State.DRAINING:
            return None
        self._last = frame = self._queue.take()
        self.sent_frames += 1
        self._sent, self._tick = tick, tick + 1
        self._deadline = self._origin + (tick + 1) * self.ptime_s - self._lead
        return Slot(frame.payload, Kind.SPEECH, False, 1, frame, at)

    def take_back(self, before: Frame) -> None:
        """Undo `due_ahead`; ``before`` is the frame of the slot before it."""
        frame = self._last
        if frame is None:
            raise PacerError("there is no slot to take back")
        self._queue.put_back(frame, before)
        self.sent_frames -= 1
        self._last = before
        self._sent -= 1
        self._tick -= 1
        self._deadline = self._origin + self._tick * self.ptime_s - self._lead

    def silence_ahead(self) -> Slot | None:
        """Return the slot of silence that each place from the next one on has, if that is certain.

        That is in an unbroken stream with nothing to play, until another method changes it: before
        that, `repeated` notes how often the slot was sent.
        """
        if (
            self._state is not State.IDLE
            or not self.continuous
            or self._mark
            or self._last is not None
            or self._sent < 0
            or self._tick != self._sent + 1
        ):
            return None
        at = self._origin + self._tick * self.ptime_s
        return Slot(self.silence, Kind.SILENCE, False, 1, None, at)

    def repeated(self, count: int) -> None:
        """Note that the slot of `silence_ahead` was sent at the next ``count`` places."""
        self.sent_silence += count
        self._sent += count
        self._tick += count
        self._deadline = self._origin + self._tick * self.ptime_s - self._lead
