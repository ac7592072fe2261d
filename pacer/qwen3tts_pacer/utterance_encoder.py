"""Encoder from PCM to the pacer's frames."""

from __future__ import annotations

import numpy as np

from qwen3tts_codecs.frames import EncodedFrame, FrameEncoder
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import PcmBytes
from qwen3tts_pacer.slot import Frame


class UtteranceEncoder:
    """`FrameEncoder` that gives each frame its utterance (context) and position.

    Raises as `FrameEncoder`.
    """

    def __init__(self, from_hz: int, payload: Payload, ptime_ms: int, context: int = -1) -> None:
        self.from_hz = from_hz
        self.position = 0
        """Position after the last frame, samples at ``from_hz``."""
        self._encoder = FrameEncoder(from_hz, payload, ptime_ms)
        self.context = context
        """Utterance of the frames to come."""

    def begin(self, context: int) -> None:
        self.context, self.position = context, 0

    def push(self, data: PcmBytes) -> list[Frame]:
        """Take s16le bytes, cut anywhere; return the frames that are full now."""
        return self._placed(self._encoder.push(data))

    def flush(self) -> list[Frame]:
        """End the utterance; return its last frames."""
        return self._placed(self._encoder.flush())

    def resume(self, payload: Payload, ptime_ms: int, at: int, past: PcmBytes = b"") -> None:
        """Continue in another format from position ``at`` on; ``past`` as for `FrameEncoder`."""
        self._encoder.resume(payload, ptime_ms, at, np.frombuffer(past, np.int16))
        self.position = at

    def reset(self) -> None:
        """Drop what is not encoded yet."""
        self._encoder.reset()

    def _placed(self, encoded: list[EncodedFrame]) -> list[Frame]:
        frames, position = [], self.position
        for payload, tail, head, samples, silent in encoded:
            end = position + samples
            frames.append(Frame(payload, tail, head, self.context, position, end, silent))
            position = end
        self.position = position
        return frames
