"""Decoding, playout, comfort noise, and speech detection."""

from __future__ import annotations

import functools
import struct

import numpy as np

from qwen3tts_codecs.errors import BadPayload
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.opus import OPUS
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.resample import RateConverter
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.concealment import build_comfort_noise, parse_comfort_noise
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.audio.inbound import AudioDecoder
from qwen3tts_phone.audio.playout import END_S, Playout, PlayoutSettings
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.turn_buffer import TurnBuffer
from qwen3tts_phone.detection.turn_transcriber import MAX_GAP_S, GapMeter
from qwen3tts_phone.records.call_recordings import PLAYOUT as RECORDED
from tests.fuzz.target import Target, sequence, steps

PAYLOADS = {0: PCMU, 9: G722, 96: OPUS}

PACKET_HEAD = struct.Struct("!BhB")
"""A packet: payload type, packets that its timestamp advances, hundredths of a second."""

MOST_AHEAD_S = 1.0


def run_playout(data: bytes) -> None:
    """Steps: ``p`` a packet, ``h`` a hole, ``c`` a change of the agreed formats."""
    for settings in (PlayoutSettings(), RECORDED):
        _run(data, Playout(settings=settings))


def _run(data: bytes, playout: Playout) -> None:
    hearing = AudioDecoder(PAYLOADS)
    now, timestamp, ticks = 100.0, 0, 0
    for kind, rest in steps(data):
        if kind == "c":
            hearing.change(dict(list(PAYLOADS.items())[: 1 + len(rest) % 3]))
        if kind not in "ph" or len(rest) < PACKET_HEAD.size:
            continue
        payload_type, packets, wait = PACKET_HEAD.unpack_from(rest)
        now += wait / 100
        timestamp += packets * 160
        body = rest[PACKET_HEAD.size :] if kind == "p" else b""
        frame = InboundFrame(body, payload_type, timestamp, now, 0, False, kind == "h")
        for heard in hearing.take(frame):
            assert heard.samples.dtype == np.int16
            assert 0 < len(heard.samples) <= 5760
            playout.push(heard)
        frames = playout.due(now)
        ticks += len(frames)
        assert all(len(each.samples) == 160 for each in frames)
        assert [each.timestamp for each in frames] == [
            160 * tick for tick in range(ticks - len(frames), ticks)
        ]
        assert playout.waiting_s <= playout.settings.max_delay_s + playout.wanted_s + MOST_AHEAD_S
        assert 0.02 <= playout.wanted_s <= playout.settings.max_delay_s
    assert len(playout.end()) <= END_S * 50 + 1


@functools.cache
def _packets(payload: Payload) -> tuple[bytes, ...]:
    time = np.arange(payload.sample_hz // 5) / payload.sample_hz
    pcm = np.rint(8000 * np.sin(2 * np.pi * 300 * time)).astype(np.int16)
    encoder = payload.encoder(20)
    return tuple(encoder.encode(frame) for frame in pcm.reshape(-1, encoder.frame_samples))


def run_codecs(data: bytes) -> None:
    """The first byte says which decoder; the rest is one packet amid good ones."""
    payload = (G722, OPUS, PCMU)[data[0] % 3] if data else PCMU
    decoder = payload.decoder()
    good = _packets(payload)
    decoder.decode(good[0])
    try:
        samples = decoder.decode(data[1:])
    except BadPayload:
        samples = np.zeros(0, np.int16)
    assert samples.dtype == np.int16
    if payload is OPUS:
        assert len(samples) <= 120 * 24
    else:
        assert len(samples) == len(data[1:]) * (2 if payload is G722 else 1)
    assert len(decoder.decode(good[1])) == payload.frame_samples(20)


def run_comfort_noise(data: bytes) -> None:
    silence = parse_comfort_noise(data)
    if silence is None:
        assert not data
        return
    assert -127 <= silence.level_dbov <= 0
    assert all(-1 < each < 1 for each in silence.reflection)
    again = build_comfort_noise(silence)
    assert parse_comfort_noise(again) == silence


def _add_packets(kind: str, payload_type: int, ahead: int, wait: int, body: bytes = b"") -> bytes:
    return kind.encode() + PACKET_HEAD.pack(payload_type, ahead, wait) + body


def _seeds() -> tuple[bytes, ...]:
    try:
        wide = [_packets(OPUS), _packets(G722)]
    except ValueError:  # without PyAV only G.711 is there to start from
        wide = []
    speech = [_add_packets("p", 0, 1, 2, body) for body in _packets(PCMU)]
    return (
        sequence(
            *speech[:4],
            _add_packets("h", 0, 1, 4),
            *speech[5:],
            _add_packets("p", 13, 1, 2, b"\x32\x80"),
        ),
        sequence(
            *speech[:3], b"c\x01\x02", _add_packets("p", 0, 20_000, 2, b"\xff" * 160), *speech[:2]
        ),
        sequence(*speech[:2], _add_packets("p", 0, -9000, 200, b"\x55" * 160), *speech[:2]),
        *(
            sequence(*(_add_packets("p", kind, 1, 2, body) for body in bodies[:5]))
            for kind, bodies in zip((96, 9), wide, strict=False)
        ),
    )


HEAD = struct.Struct("!BhB")
"""A frame: rate index, frames that its timestamp advances, hundredths of a second."""

RATES_HZ = (8000, 16_000, 24_000, 48_000)

MOST_S = 5.0


def run_speech_detection(data: bytes) -> None:
    """Steps: ``h`` inbound frame, ``c`` concealed one, ``s`` sent one, ``t`` time, ``a`` agent."""
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
    "playout": Target(
        run_playout,
        "Whatever arrives, each tick gives one frame of its length, and the buffer stays bounded.",
        _seeds(),
        (b"\xff\xffp\x00\x00\x01\x02", b"\xff\xffh\x00\x00\x01\x02", b"\xff\xffc", b"p\x0d"),
        stepwise=True,
        hard=(
            sequence(
                *[_add_packets("p", 0, 1, 0, b"\xff" * 1400)] * 40, _add_packets("p", 0, 1, 255)
            ),  # a flood
            sequence(
                *[_add_packets("p", 0, 1, 255, b"\x80" * 160)] * 3, _add_packets("h", 0, -32768, 0)
            ),
            sequence(
                *(
                    _add_packets("p", (0, 9, 96, 13)[n % 4], 1, 2, b"\x01\x02\x03")
                    for n in range(30)
                )
            ),
            sequence(*[_add_packets("h", 0, 1, 2)] * 30, _add_packets("p", 0, 1, 2, b"\xff")),
            sequence(
                _add_packets("p", 13, 1, 2, b"\x00" + b"\xfe" * 40),
                *[_add_packets("p", 13, 30, 60, b"\x01")] * 5,
            ),
            sequence(*[_add_packets("p", 0, (-1) ** n * 99, 2, b"\x31" * 80) for n in range(40)]),
        ),
    ),
    "codecs": Target(
        run_codecs,
        "Any bytes are samples of a bounded number or BadPayload, and the next packet is decoded.",
        (b"\x00" + b"\xfa" * 160, b"\x01\xd8\xff\xfe", b"\x01\x7b\x83\x10\x11", b"\x02\xff"),
        max_bytes=1400,
        hard=(
            b"",
            b"\x01",
            b"\x01\xff",
            b"\x01\xff\x3f" + bytes(60),  # RFC 6716: frames of 48 announced, more than 120 ms
            b"\x01\x03\x80",
            b"\x00" + b"\x00\xff" * 600,
        ),
    ),
    "comfort_noise": Target(
        run_comfort_noise,
        "Any bytes but none are a comfort noise with a stable filter, and are written again.",
        (b"\x32", b"\x3c\x7f\xfe\x00\x80", bytes(range(60, 95))),
        max_bytes=64,
        hard=(b"", b"\xff" * 60, b"\x00" + b"\xfe\x00" * 16, b"\x7f"),
    ),
    "speech_detection": Target(
        run_speech_detection,
        "Whatever frames arrive and are sent, turns begin and end alternately.",
        (
            sequence(*[_step("h", 0, 1, 2, _LOUD)] * 8, _step("t", 0, 0, 100)),
            sequence(
                _step("a", 1, 0, 0), *[_step("s", 0, 0, 0, _LOUD), _step("h", 0, 1, 2, _LOUD)] * 8
            ),
            sequence(*[_step("h", 3, 1, 2, _WIDE)] * 4, _step("c", 0, -9000, 255, _LOUD)),
        ),
        (b"\xff\xffh\x00\x00\x01\x02", b"\xff\xffs\x00\x7f\xff\x02", b"\xff\xfft\x00\x00\x00\xff"),
        max_bytes=8192,
        stepwise=True,
        hard=(
            sequence(
                *[_step("h", 0, 1, 0, _LOUD[:2])] * 60, _step("t", 0, 0, 255)
            ),  # single samples
            sequence(
                *[_step("h", n % 4, 0, n % 3, _LOUD) for n in range(16)]
            ),  # its rate never stays
            sequence(
                _step("a", 1, 0, 0), *[_step("s", 1, 32_767, 0, _LOUD)] * 3, _step("h", 0, 1, 2)
            ),
            sequence(*[_step("s", 0, -32_768, 0, _LOUD), _step("h", 0, -1, 0, _LOUD)] * 8),
            sequence(*[_step("h", 0, 32_767, 255, _LOUD)] * 6, *[_step("t", 0, 0, 255)] * 20),
        ),
    ),
}
