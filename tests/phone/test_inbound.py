"""Decoding of inbound packets, and steady audio on a busy machine."""

from __future__ import annotations

import asyncio
from typing import cast

import numpy as np
import pytest

from qwen3tts_codecs.g711 import PCMA, PCMU, encode_ulaw
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.opus import OPUS
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import AudioDecoder, InboundAudio, LegReceiver
from qwen3tts_phone.facts import MediaFacts
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sdp.session import Negotiated
from tests.fakes import FakeClock, settle
from tests.phone.voices import Samples, rms, step, voice

FORMATS = [PCMU, PCMA, G722, OPUS]
formats = pytest.mark.parametrize("payload", FORMATS, ids=lambda p: p.name)


def packets(payload: Payload, pcm: Samples, first: int = 0) -> list[InboundFrame]:
    """20 ms each, by the far end's encoder."""
    encoder = payload.encoder(20)
    count = encoder.frame_samples
    return [
        InboundFrame(
            encoder.encode(pcm[number * count : (number + 1) * count]),
            payload.payload_type,
            (first + number) * payload.frame_ticks(20),
            10.0 + (first + number) * 0.02,
            first + number,
            marker=False,
            concealed=False,
        )
        for number in range(len(pcm) // count)
    ]


def lost(frame: InboundFrame) -> InboundFrame:
    return frame._replace(payload=b"", concealed=True)


def sound(frames: list[HeardFrame]) -> Samples:
    return np.concatenate([frame.samples for frame in frames])


def hear(hearing: AudioDecoder, frames: list[InboundFrame]) -> list[HeardFrame]:
    return [heard for frame in frames for heard in hearing.take(frame)]


@formats
def test_a_frame_is_heard_at_once_with_its_rate_and_place(payload: Payload) -> None:
    sent = packets(payload, voice(payload.sample_hz, 0.2))
    hearing = AudioDecoder({payload.payload_type: payload})
    for frame in sent:
        (heard,) = hearing.take(frame)
        assert (heard.rate_hz, heard.clock_hz) == (payload.sample_hz, payload.clock_hz)
        assert (heard.timestamp, heard.at) == (frame.timestamp, frame.at)
        assert len(heard.samples) == payload.frame_samples(20)
        assert heard.duration_s == pytest.approx(0.02)
        assert not heard.concealed
        assert not heard.noise


@formats
def test_a_hole_is_filled_and_joined(payload: Payload) -> None:
    pcm = voice(payload.sample_hz, 0.5)
    sent = packets(payload, pcm)
    whole = sound(hear(AudioDecoder({payload.payload_type: payload}), sent))
    hearing = AudioDecoder({payload.payload_type: payload})
    frames = hear(hearing, [*sent[:12], lost(sent[12]), *sent[13:]])
    assert [frame.concealed for frame in frames] == [n == 12 for n in range(25)]
    assert len(frames[12].samples) == payload.frame_samples(20)
    assert rms(frames[12].samples) > 0.6 * rms(pcm)
    assert step(sound(frames)) <= 1.4 * step(whole)
    assert hearing.concealed_s == pytest.approx(0.02)


@formats
def test_bytes_that_are_no_frame_are_concealed_and_counted(payload: Payload) -> None:
    sent = packets(payload, voice(payload.sample_hz, 0.3))
    hearing = AudioDecoder({payload.payload_type: payload})
    frames = hear(hearing, [*sent[:8], sent[8]._replace(payload=b""), *sent[9:]])
    if payload.stateful:
        assert frames[8].concealed
        assert hearing.undecodable == 1
    assert len(sound(frames)) >= 14 * payload.frame_samples(20)


def test_a_type_that_was_not_agreed_is_no_sound() -> None:
    frame = packets(PCMU, voice(8000, 0.02))[0]
    hearing = AudioDecoder({0: PCMU})
    assert hearing.take(frame._replace(payload_type=8)) == []
    assert hearing.take(frame._replace(payload_type=101)) == []


@pytest.mark.parametrize("after", FORMATS, ids=lambda p: p.name)
@pytest.mark.parametrize("before", FORMATS, ids=lambda p: p.name)
def test_the_codec_may_change_with_any_packet(before: Payload, after: Payload) -> None:
    hearing = AudioDecoder({before.payload_type: before, after.payload_type: after})
    one = hear(hearing, packets(before, voice(before.sample_hz, 0.3)))
    other = hear(hearing, packets(after, voice(after.sample_hz, 0.3), first=15))
    assert {frame.rate_hz for frame in one} == {before.sample_hz}
    assert {frame.rate_hz for frame in other} == {after.sample_hz}
    assert rms(sound(other[3:])) == pytest.approx(rms(sound(one[3:])), rel=0.3)


def test_a_hole_right_after_a_change_sounds_like_what_went_before() -> None:
    hearing = AudioDecoder({0: PCMU})
    hear(hearing, packets(PCMU, voice(8000, 0.3)))
    hearing.change({9: G722})
    (made,) = hearing.take(lost(packets(G722, voice(16000, 0.02))[0]))
    assert made.rate_hz == 16000
    assert rms(made.samples) > 0.6 * rms(voice(16000, 0.3))


def test_an_agreement_on_the_same_codec_keeps_its_decoder() -> None:
    """A hold and a resume in the middle of a stream of G.722."""
    sent = packets(G722, voice(16000, 0.4))
    whole = sound(hear(AudioDecoder({9: G722}), sent))
    hearing = AudioDecoder({9: G722})
    first = hear(hearing, sent[:10])
    hearing.change({9: G722})
    assert sound(first + hear(hearing, sent[10:])).tolist() == whole.tolist()


def test_what_was_on_its_way_before_a_change_is_heard() -> None:
    """RFC 3264 section 8.3.2."""
    hearing = AudioDecoder({0: PCMU})
    before = packets(PCMU, voice(8000, 0.2))
    hear(hearing, before[:8])
    hearing.change({9: G722})
    assert len(hear(hearing, before[8:])) == 2
    assert len(hear(hearing, packets(G722, voice(16000, 0.1), first=10))) == 5


def test_comfort_noise_has_the_level_that_was_told() -> None:
    hearing = AudioDecoder({0: PCMU})
    hear(hearing, packets(PCMU, voice(8000, 0.1)))
    heard = hearing.take(InboundFrame(bytes((50,)), 13, 800, 10.1, 5, False, False))
    assert [(frame.noise, frame.concealed, frame.rate_hz) for frame in heard] == [
        (True, False, 8000)
    ]
    assert rms(heard[0].samples) == pytest.approx(32768 * 10 ** (-50 / 20), rel=0.3)
    assert hearing.take(InboundFrame(b"", 13, 960, 10.12, 6, False, False)) == []


def test_comfort_noise_before_any_sound_has_the_agreed_rate() -> None:
    (heard,) = AudioDecoder({9: G722}).take(InboundFrame(bytes((40,)), 13, 0, 1.0, 0, False, False))
    assert (heard.rate_hz, len(heard.samples)) == (16000, 320)


AGREED = Negotiated("192.0.2.1", 4000, 0, "PCMU", 20, None, True, True)
LOUD = encode_ulaw(np.full(160, 8000, np.int16))


class FakeLeg:
    """A leg with frames that wait to be read."""

    def __init__(self) -> None:
        self.waiting: list[InboundFrame] = []

    def read_inbound(self) -> list[InboundFrame]:
        read, self.waiting = self.waiting, []
        return read


async def test_steady_sound_has_all_that_came_in_time_whoever_was_busy() -> None:
    leg, clock = FakeLeg(), FakeClock()
    ears = InboundAudio(clock, MediaFacts())
    feed = LegReceiver(cast(MediaLeg, leg), ears)
    feed.agree(AGREED)
    heard: list[int] = []

    async def listen() -> None:
        async for frame in ears(steady=True):
            heard.append(int(np.abs(frame.samples).max()))

    listening = asyncio.create_task(listen())
    await settle()
    for number in range(50):
        at = clock.now()
        leg.waiting.append(InboundFrame(LOUD, 0, 160 * number, at, number, False, False))
        if number == 0:
            feed.take()  # nobody takes anything after that
        await clock.advance(0.02)
    ears.close()
    await clock.advance(0.1)
    await listening
    assert len(heard) >= 50
    assert min(heard[8:50]) > 7000
