"""Frames that wait while a call's codec changes: made anew in the other one, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from qwen3tts_codecs.frames import EncodedFrame, FrameEncoder
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import to_bytes
from qwen3tts_pacer.frame import Frame

BATCH = 8
"""So many frames are made in one go: encoding takes up to 1 ms each, and other calls wait."""


class Remaking:
    """The same sound in another format; frames of one context, in order.

    Nothing is left out and nothing comes twice; the positions are those of the frames given.

    Args:
        before: the frame that went out last, so that the sound goes on from it without a step.
    """

    def __init__(
        self,
        frames: Sequence[Frame],
        old: Payload,
        new: Payload,
        old_ptime_ms: int,
        new_ptime_ms: int,
        before: Frame | None = None,
    ) -> None:
        self._all = list(frames)
        self._waiting = deque(self._all)
        self._old, self._new = old, new
        self._old_ms, self._new_ms = old_ptime_ms, new_ptime_ms
        stateless = not (old.stateful or new.stateful)
        self._alike = stateless and old.sample_hz == new.sample_hz and old_ptime_ms == new_ptime_ms
        self._count = -(-len(self._all) * old_ptime_ms // new_ptime_ms)
        self._made = 0
        self._ready: deque[EncodedFrame] = deque()
        if self._alike or not frames:
            return
        self._decoder = old.decoder()
        silence = np.zeros(old.frame_samples(old_ptime_ms), np.int16)
        heard = self._decoder.decode(before.payload) if before is not None else silence
        self._encoder = FrameEncoder(old.sample_hz, old, old_ptime_ms)
        self._encoder.push(to_bytes(heard))
        self._ready.extend(self._encoder.switch(new, new_ptime_ms))

    @property
    def left(self) -> int:
        """Frames that can still be taken."""
        return self._count - self._made

    def take(self, most: int = BATCH) -> list[Frame]:
        """The next frames, at most so many; [] = there are no more."""
        count = min(most, self.left)
        if self._alike:
            self._made += count
            return [self._translated(self._waiting.popleft()) for _ in range(count)]
        while len(self._ready) < count and self._waiting:
            pcm = self._decoder.decode(self._waiting.popleft().payload)
            self._ready.extend(self._encoder.push(to_bytes(pcm)))
        if len(self._ready) < count:
            self._ready.extend(self._encoder.flush())
        taken = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        frames = [self._placed(self._made + index, each) for index, each in enumerate(taken)]
        # What the encoder does not give at all can only be less than a frame.
        self._made = self._made + len(frames) if len(frames) == count else self._count
        return frames

    def _translated(self, frame: Frame) -> Frame:
        def translate(data: bytes) -> bytes:
            return self._new.encode(self._old.decode(data))

        return frame._replace(
            payload=translate(frame.payload),
            tail=translate(frame.tail) if frame.tail is not None else None,
            head=translate(frame.head) if frame.head is not None else None,
        )

    def _placed(self, index: int, encoded: EncodedFrame) -> Frame:
        """A frame at its position in the utterance."""
        start = self._position(index * self._new_ms)
        end = self._position((index + 1) * self._new_ms)
        payload, tail, head, _, silent = encoded
        return Frame(payload, tail, head, self._all[0].context, start, end, silent)

    def _position(self, ms: int) -> int:
        index, rest = divmod(ms, self._old_ms)
        if index >= len(self._all):
            return self._all[-1].end
        frame = self._all[index]
        return frame.start + round((frame.end - frame.start) * rest / self._old_ms)
