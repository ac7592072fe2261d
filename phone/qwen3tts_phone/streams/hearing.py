"""What a stream's far end says, as frames of samples at their place in the stream."""

from __future__ import annotations

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.hearing import MOST_SAMPLES, Hearing
from qwen3tts_phone.streams.events import StreamAudio, StreamLost

PIECE_MS = 60
"""Longer messages are cut, so that no decoder has to take more than it may."""
MOST_AHEAD_S = 10.0
"""A place in the stream that is further ahead is none: a far end may send any number."""
MOST_LOST_MS = 200.0
"""So much of a hole is concealed; the rest of it is silence nobody waits for."""


class StreamHearing:
    """One call's (pure): decodes, and conceals what never came."""

    def __init__(self) -> None:
        self._hearing = Hearing({}, comfort_noise=frozenset())
        self._types: dict[Payload, int] = {}
        self._played_s = 0.0  # of the stream, up to the next frame
        self._frame_ms = 20.0

    @property
    def undecodable(self) -> int:
        """Messages that held no sound of their format."""
        return self._hearing.undecodable

    def take(self, audio: StreamAudio, payload: Payload, at: float) -> list[HeardFrame]:
        """What is heard with a message in format ``payload`` that came ``at``, in order.

        Raises CodecMissing where the format's library is not installed.
        """
        if audio.timestamp_ms is not None:
            ahead_s = audio.timestamp_ms / 1000 - self._played_s
            if 0.0 < ahead_s <= MOST_AHEAD_S:
                self._played_s += ahead_s
        heard: list[HeardFrame] = []
        for piece in _pieces(audio.data, payload):
            heard += self._frame(piece, payload, at)
        return heard

    def lost(self, lost: StreamLost, payload: Payload, at: float) -> list[HeardFrame]:
        """What is made up for sound that never came."""
        heard: list[HeardFrame] = []
        left_ms = min(lost.duration_ms, MOST_LOST_MS)
        while left_ms > 0:
            heard += self._frame(b"", payload, at, concealed=True)
            left_ms -= self._frame_ms
        return heard

    def _frame(
        self, data: bytes, payload: Payload, at: float, *, concealed: bool = False
    ) -> list[HeardFrame]:
        number = self._types.get(payload)
        if number is None:
            number = self._types[payload] = len(self._types)
            self._hearing.change({number: payload})
        frame = InboundFrame(
            data, number, round(self._played_s * payload.clock_hz), at, 0, False, concealed
        )
        heard = self._hearing.take(frame)
        for each in heard:
            self._played_s += each.duration_s
            if each.duration_s:
                self._frame_ms = each.duration_s * 1000
        return heard


def _pieces(data: bytes, payload: Payload) -> list[bytes]:
    """A message in pieces of `PIECE_MS`, where the format can be cut; whole samples each."""
    if payload.overlapped:
        return [data]
    size = min(payload.frame_bytes(PIECE_MS), MOST_SAMPLES * (payload.sample_bytes or 1))
    return [data[at : at + size] for at in range(0, len(data), size)]
