"""What has gone out on a call, as samples."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from qwen3tts_codecs import OPUS, PCMA, PCMU
from qwen3tts_phone.audio.frames import KEPT_S, CallSink, OutboundAudio, SentAudio, Tap

LOUD = np.full(160, 8000, np.int16)


class FakeSink:
    """Frames that have gone out are told when somebody looks."""

    def __init__(self) -> None:
        self.taps: list[Tap] = []
        self.gone: list[tuple[bytes, float]] = []

    def tap(self, tap: Tap) -> None:
        self.taps.append(tap)

    def untap(self, tap: Tap) -> None:
        self.taps.remove(tap)

    def follow(self) -> None:
        gone, self.gone = self.gone, []
        for payload, at in gone:
            for tap in self.taps:
                tap(payload, at)


def begun() -> tuple[OutboundAudio, FakeSink]:
    side, sink = OutboundAudio(), FakeSink()
    side.begin(as_sink(sink), PCMU)
    return side, sink


def as_sink(sink: FakeSink) -> CallSink:
    return sink  # type: ignore[return-value]


def test_frames_are_given_once_in_order_with_their_time() -> None:
    side, sink = begun()
    sent = SentAudio(side)
    assert sent.take() == []
    sink.gone = [(PCMU.encode(LOUD), 1.0), (PCMU.encode(LOUD // 2), 1.02)]
    frames = sent.take()
    assert [frame.at for frame in frames] == [1.0, 1.02]
    assert [frame.rate_hz for frame in frames] == [8000, 8000]
    assert frames[0].samples[0] == pytest.approx(8000, rel=0.03)
    assert frames[1].samples[0] == pytest.approx(4000, rel=0.03)
    assert frames[0].duration_s == pytest.approx(0.02)
    assert sent.take() == []


def test_every_taker_gets_every_frame_from_when_it_began() -> None:
    side, sink = begun()
    first = SentAudio(side)
    sink.gone = [(PCMU.encode(LOUD), 1.0)]
    sink.follow()
    second = SentAudio(side)
    sink.gone = [(PCMU.encode(LOUD), 1.02)]
    assert [frame.at for frame in second.take()] == [1.02]
    assert [frame.at for frame in first.take()] == [1.0, 1.02]


def test_one_that_nobody_asks_keeps_the_newest_seconds() -> None:
    side, sink = begun()
    sent = SentAudio(side)
    sink.gone = [(PCMU.encode(LOUD), number * 0.02) for number in range(3000)]
    sink.follow()
    frames = sent.take()
    assert len(frames) == KEPT_S / 0.02
    assert frames[-1].at == pytest.approx(59.98)


def test_nothing_is_decoded_when_nobody_wants_it() -> None:
    side, sink = begun()
    assert not sink.taps
    with SentAudio(side):
        assert len(sink.taps) == 1
        with SentAudio(side):
            assert len(sink.taps) == 1
    assert not sink.taps


def test_one_that_nobody_has_any_more_is_forgotten() -> None:
    side, sink = begun()
    SentAudio(side)
    gc.collect()
    sink.gone = [(PCMU.encode(LOUD), 1.0)]
    sink.follow()
    assert not sink.taps


def test_one_that_was_made_before_the_line_hears_it_from_its_first_frame() -> None:
    side, sink = OutboundAudio(), FakeSink()
    sent = SentAudio(side)
    assert sent.take() == []
    side.begin(as_sink(sink), PCMU)
    sink.gone = [(PCMU.encode(LOUD), 1.0)]
    assert len(sent.take()) == 1


def test_another_codec_in_mid_call_is_understood() -> None:
    side, sink = begun()
    sent = SentAudio(side)
    sink.gone = [(PCMU.encode(LOUD), 1.0)]
    side.follow()
    side.change(PCMA)
    sink.gone = [(PCMA.encode(LOUD), 1.02)]
    for frame in sent.take():
        assert frame.samples[0] == pytest.approx(8000, rel=0.03)


def test_a_frame_that_is_none_of_the_codec_is_left_out() -> None:
    side, sink = OutboundAudio(), FakeSink()
    side.begin(as_sink(sink), OPUS)
    sent = SentAudio(side)
    sink.gone = [(b"", 1.0)]
    assert sent.take() == []
