"""Audio frames of both directions, DTMF digits, and taps on outbound audio."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.payload import Decoder, Payload
from qwen3tts_speech.sink import FrameSink
from qwen3tts_speech.sound import LiveSound

Tap = Callable[[bytes, float], None]
"""Takes the payload of a frame that went out, and when (seconds of the monotonic clock)."""


KEPT_S = 5.0
"""Length of a reader's buffer; older frames are dropped."""


class CallSink(FrameSink, Protocol):
    """A `FrameSink` that also reports the frames that went out."""

    @property
    def last_at(self) -> float | None:
        """End of the last utterance that was played in full, seconds."""

    def tap(self, tap: Tap) -> None: ...

    def untap(self, tap: Tap) -> None: ...

    def follow(self) -> None:
        """Report to the taps what went out since the last call."""

    def gone(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HeardFrame:
    samples: NDArray[np.int16]
    """Linear samples at ``rate_hz``, shape [n]."""
    at: float
    """Arrival, seconds of the monotonic clock."""
    concealed: bool
    """True if it was synthesised here in place of a lost packet."""
    rate_hz: int = 8000
    timestamp: int = 0
    """RTP ticks of ``clock_hz`` since the stream's first packet, not wrapping."""
    clock_hz: int = 8000
    noise: bool = False
    """Comfort noise (RFC 3389): the far end is silent, and describes its background."""

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate_hz


@dataclass(frozen=True, slots=True)
class KeyPressed:
    at: float
    digit: str
    duration_ms: int
    by: str = "rfc4733"
    """Transport: ``rfc4733`` (with the media), ``info`` (a SIP INFO), ``stream``, or ``page``
    (the softphone's keypad)."""


@dataclass(frozen=True, slots=True)
class SentFrame:
    """One outbound frame of speech; silence between utterances is no frame."""

    samples: NDArray[np.int16]
    """Linear samples, shape [n], as the far end decodes them."""
    rate_hz: int
    at: float
    """Sending time, or playout time where the far end keeps the clock (monotonic, s)."""
    live: bool = False
    """True if it is of live sound (`Call.live`), and not of what was said or played."""

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate_hz


FrameTap = Callable[[SentFrame], None]


class OutboundAudio:
    """Outbound audio of a call, decoded once for all its taps."""

    def __init__(self) -> None:
        self._sink: CallSink | None = None
        self._payload: Payload | None = None
        self._decoder: Decoder | None = None
        self._takers: list[FrameTap] = []
        self._live: weakref.WeakSet[LiveSound] = weakref.WeakSet()

    def begin(self, sink: CallSink, payload: Payload) -> None:
        self._sink = sink
        self.change(payload)
        if self._takers:
            sink.tap(self.sent)

    def change(self, payload: Payload) -> None:
        if payload != self._payload or self._decoder is None:
            self._decoder = payload.decoder()
        self._payload = payload

    def add(self, take: FrameTap) -> None:
        if not self._takers and self._sink is not None:
            self._sink.tap(self.sent)
        self._takers.append(take)

    def add_live(self, sound: LiveSound) -> None:
        self._live.add(sound)

    def remove(self, take: FrameTap) -> None:
        if take in self._takers:
            self._takers.remove(take)
            if not self._takers and self._sink is not None:
                self._sink.untap(self.sent)

    def follow(self) -> None:
        if self._sink is not None:
            self._sink.follow()

    def sent(self, payload: bytes, at: float) -> None:
        if self._decoder is None or self._payload is None:
            return
        try:
            samples = self._decoder.decode(payload)
        except CodecError:  # of the codec before: a frame that went out during the change
            return
        live = any(sound.made(payload) for sound in self._live)
        frame = SentFrame(samples, self._payload.sample_hz, at, live)
        for take in list(self._takers):
            take(frame)


class SentAudio:
    """Buffer of the latest `KEPT_S` seconds of outbound audio; made by `Call.sent_audio`."""

    def __init__(self, side: OutboundAudio) -> None:
        self._side = side
        self._kept: deque[SentFrame] = deque()
        self._kept_s = 0.0
        self._tap = _weak_tap(self, side)
        side.add(self._tap)

    def take(self) -> list[SentFrame]:
        self._side.follow()
        frames = list(self._kept)
        self._kept.clear()
        self._kept_s = 0.0
        return frames

    def close(self) -> None:
        self._side.remove(self._tap)

    def __enter__(self) -> SentAudio:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, frame: SentFrame) -> None:
        self._kept.append(frame)
        self._kept_s += frame.duration_s
        while self._kept_s > KEPT_S and len(self._kept) > 1:
            self._kept_s -= self._kept.popleft().duration_s


def _weak_tap(sent: SentAudio, side: OutboundAudio) -> FrameTap:
    known = weakref.ref(sent)

    def take(frame: SentFrame) -> None:
        there = known()
        if there is None:
            side.remove(take)
        else:
            there.keep(frame)

    return take
