"""Queue of frames that wait for their slots, utterance (context) after utterance."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from qwen3tts_pacer.policy import Filling
from qwen3tts_pacer.slot import Frame
from qwen3tts_pacer.states import ContextError


class DroppedContext(NamedTuple):
    """Part of one utterance that an interruption dropped."""

    context: int
    frames: int
    samples: int
    played: int
    """Position up to which frames were sent, samples of the context's rate."""


class Dropped(NamedTuple):
    """Everything that an interruption dropped, in order."""

    at: float
    contexts: tuple[DroppedContext, ...]


class _Context:
    __slots__ = ("finished", "frames", "played", "queued", "received")

    def __init__(self) -> None:
        self.frames = 0  # taken in so far
        self.queued = 0
        self.received = 0  # position of the last frame taken in, samples
        self.played = 0  # position of the last frame sent, samples
        self.finished = False


class FrameQueue:
    """Frames of the open contexts, in order.

    Numbers of contexts rise within a call. A context ends when it is finished, by `finish` or by
    frames of a later one, and its last frame was taken.
    """

    def __init__(self, policy: Filling, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self.frames: deque[Frame] = deque()
        self.drained: deque[int] = deque(maxlen=256)
        """Contexts fully sent, in order; the caller takes them out."""
        self.refused_frames = 0
        """Frames that came late for an interrupted context."""
        self.newest = -1
        """Context whose frames came last."""
        self._contexts: dict[int, _Context] = {}
        self._begun = -1  # highest context seen
        self._cut = -1  # contexts up to here were interrupted

    def queued_of(self, number: int) -> int:
        known = self._contexts.get(number)
        return known.queued if known is not None else 0

    def interrupted(self, number: int) -> bool:
        return number <= self._cut

    def begin(self, number: int, key: str) -> None:
        if number <= self._begun:
            raise ContextError(f"context {number} follows {self._begun}: numbers must rise")
        self._begun = number
        self._contexts[number] = _Context()
        self.policy.begin(number, key)

    def push(self, frames: Sequence[Frame], now: float) -> bool:
        """Queue frames of one context; False = refused, for it was interrupted."""
        number = frames[0].context
        if number <= self._cut:
            self.refused_frames += len(frames)
            return False
        context = self._contexts.get(number)
        if context is None or context.finished:
            raise ContextError(
                f"context {number} was not begun, is already finished, or a later one has its turn"
            )
        position = context.received
        for frame in frames:
            if frame.start < position or frame.context != number:
                raise ContextError(
                    f"context {number}: frame {frame.context}:{frame.start} after {position}"
                )
            position = frame.end
        if number != self.newest:
            self._turn(number)
        self.policy.arrived(number, context.frames, len(frames), now)
        self.frames.extend(frames)
        context.frames += len(frames)
        context.queued += len(frames)
        context.received = position
        return True

    def finish(self, number: int) -> bool:
        """Finish a context; return whether it was not finished before."""
        context = self._contexts.get(number)
        if context is None:
            if number <= self._begun and number <= self.newest:
                return False  # a later context has already ended its turn
            raise ContextError(f"context {number} was not begun or is already finished")
        if context.finished:
            return False
        context.finished = True
        if context.queued == 0:
            self._close(number)
        return True

    def newest_finished(self) -> bool:
        return self._contexts[self.newest].finished

    def take(self) -> Frame:
        frame = self.frames.popleft()
        context = self._contexts[frame.context]
        context.played = frame.end
        context.queued -= 1
        if context.queued == 0 and context.finished:
            self._close(frame.context)
        return frame

    def put_back(self, frame: Frame, before: Frame) -> None:
        """Undo `take` of a frame that was not its context's last; ``before`` was taken before."""
        self.frames.appendleft(frame)
        context = self._contexts[frame.context]
        context.played = before.end
        context.queued += 1

    def ready_at(self, playing: int, ptime_s: float, now: float) -> float:
        """Return when the first frame may be sent; ``playing`` is the context sent last."""
        number = self.frames[0].context
        context = self._contexts[number]
        if context.finished or len(self.frames) >= self.capacity:
            return now
        if number == playing and context.played:
            return self.policy.resume_at(number, context.queued * ptime_s, now)
        return self.policy.start_at(number)

    def interrupt(self, through: int | None) -> tuple[DroppedContext, ...]:
        """Drop all frames and end all contexts begun so far, and those up to ``through``."""
        left: dict[int, list[int]] = {context: [0, 0] for context in self._contexts}
        for frame in self.frames:
            counts = left[frame.context]
            counts[0] += 1
            counts[1] += frame.end - frame.start
        dropped = tuple(
            DroppedContext(context, counts[0], counts[1], self._contexts[context].played)
            for context, counts in left.items()
        )
        self.frames.clear()
        for context in self._contexts:
            self.policy.end(context)
        self._contexts.clear()
        self._cut = max(self._cut, self._begun, -1 if through is None else through)
        self.newest = -1
        return dropped

    def _turn(self, number: int) -> None:
        for other in [each for each in self._contexts if each < number]:
            context = self._contexts[other]
            if not context.finished:
                context.finished = True
                if context.queued == 0:
                    self._close(other)
        self.newest = number

    def _close(self, number: int) -> None:
        del self._contexts[number]
        self.policy.end(number)
        self.drained.append(number)
