"""Fuzz target: what the far end sends as sound, and when, from frames to turns."""

from __future__ import annotations

import struct

import numpy as np

from qwen3tts_codecs.resample import RateConverter
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.turn_buffer import TurnBuffer
from qwen3tts_phone.detection.turn_transcriber import MAX_GAP_S, GapMeter
from tests.fuzz.target import Target, steps, story

HEAD = struct.Struct("!BhB")
"""Of a frame: which rate, how many frames its timestamp goes on, hundredths of a second."""
RATES_HZ = (8000, 16_000, 24_000, 48_000)
MOST_S = 5.0


def run_listening(data: bytes) -> None:
    """Steps: ``h`` a frame heard, ``c`` one made up, ``s`` one sent, ``t`` time, ``a`` an agent."""
    core = SpeechDetectionCore(ListenSettings(max_turn_s=MOST_S, quiet_s=1.0), 100.0)
    gaps, converter = GapMeter(), RateConverter(8000)
    buffer = TurnBuffer(8000, longest_s=MOST_S)
    buffer.begin(now := 100.0)
    timestamp = 0
    sent: list[SentFrame] = []
    events: list[ListenEvent] = []
    for kind, rest in steps(data):
        if kind not in "hcsta" or len(rest) < HEAD.size:
            continue
        which, packets, wait = HEAD.unpack_from(rest)
        rate_hz = RATES_HZ[which % len(RATES_HZ)]
        samples = np.frombuffer(rest[HEAD.size :][: (len(rest) - HEAD.size) // 2 * 2], "<i2")
        now += wait / 100
        timestamp += packets * 160
        if kind == "s":
            sent.append(SentFrame(samples, rate_hz, now + packets / 100))
        elif kind == "a":
            core.agent_speaking(bool(which % 2), now)
        elif kind == "t":
            events += core.tick(now, sent)
            sent.clear()
        else:
            frame = HeardFrame(samples, now, kind == "c", rate_hz, timestamp, rate_hz)
            assert 0.0 <= gaps.hole_s(frame) <= MAX_GAP_S
            buffer.push(converter.push(samples, rate_hz), now)
            events += core.push(frame, sent)
            sent.clear()
    assert len(buffer.samples()) <= MOST_S * buffer.rate_hz
    begun = False
    for event in events:
        if isinstance(event, OnsetHeard | TurnEnded):
            assert begun is isinstance(event, TurnEnded), "a turn ends once, and before the next"
            begun = not begun
        if isinstance(event, TurnEnded):
            assert event.began_at <= event.ended_at
            assert event.speech_s >= 0


def _step(kind: str, rate: int, ahead: int, wait: int, samples: bytes = b"") -> bytes:
    return kind.encode() + HEAD.pack(rate, ahead, wait) + samples


_LOUD = np.where(np.arange(160) // 20 % 2, 8000, -8000).astype("<i2").tobytes()
_WIDE = np.where(np.arange(960) // 90 % 2, 8000, -8000).astype("<i2").tobytes()

TARGETS = {
    "listening": Target(
        run_listening,
        "Whatever is heard and sent, and whenever, turns begin and end in turn.",
        (
            story(*[_step("h", 0, 1, 2, _LOUD)] * 8, _step("t", 0, 0, 100)),
            story(
                _step("a", 1, 0, 0), *[_step("s", 0, 0, 0, _LOUD), _step("h", 0, 1, 2, _LOUD)] * 8
            ),
            story(*[_step("h", 3, 1, 2, _WIDE)] * 4, _step("c", 0, -9000, 255, _LOUD)),
        ),
        (b"\xff\xffh\x00\x00\x01\x02", b"\xff\xffs\x00\x7f\xff\x02", b"\xff\xfft\x00\x00\x00\xff"),
        most_bytes=8192,
        stepwise=True,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "listening": (
        story(*[_step("h", 0, 1, 0, _LOUD[:2])] * 60, _step("t", 0, 0, 255)),  # single samples
        story(*[_step("h", n % 4, 0, n % 3, _LOUD) for n in range(16)]),  # its rate never stays
        story(_step("a", 1, 0, 0), *[_step("s", 1, 32_767, 0, _LOUD)] * 3, _step("h", 0, 1, 2)),
        story(*[_step("s", 0, -32_768, 0, _LOUD), _step("h", 0, -1, 0, _LOUD)] * 8),
        story(*[_step("h", 0, 32_767, 255, _LOUD)] * 6, *[_step("t", 0, 0, 255)] * 20),
    ),
}
