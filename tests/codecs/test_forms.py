"""Frames of formats with memory: breaks make no click, and a codec may change in mid-speech."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_codecs import (
    G722,
    OPUS,
    PCMA,
    PCMU,
    EncodedFrame,
    FrameEncoder,
    Payload,
    Pcm,
    UnsupportedPtime,
    to_bytes,
)
from qwen3tts_codecs.frames import PAST_MS
from tests.codecs.test_coders import decoded, likeness, speechlike
from tests.phone.voices import voice

WIDE = [G722, OPUS]
wide = pytest.mark.parametrize("payload", WIDE, ids=lambda p: p.name)
PAST = 24 * PAST_MS
"""Samples that a change needs."""
ALL = [PCMU, PCMA, G722, OPUS]


def voice_24k(seconds: float) -> Pcm:
    return speechlike(OPUS, seconds)


def encoded(payload: Payload, pcm: Pcm, ptime: int = 20) -> list[EncodedFrame]:
    encoder = FrameEncoder(24000, payload, ptime)
    return encoder.push(to_bytes(pcm)) + encoder.flush()


def steps(pcm: Pcm) -> float:
    return float(np.abs(np.diff(pcm.astype(float))).max())


@pytest.mark.parametrize("ptime", [10, 20, 40, 60])
@wide
def test_an_utterance_is_heard_to_its_end(payload: Payload, ptime: int) -> None:
    """Also the end that the codec holds back: 6.5 ms of Opus."""
    pcm = np.concatenate((voice_24k(0.3), speechlike(OPUS, 0.02) * 2))
    frames = encoded(payload, pcm, ptime)
    assert sum(frame.samples for frame in frames) == len(pcm)
    heard = decoded(payload, [frame.payload for frame in frames])
    delay = FrameEncoder(24000, payload, ptime).delay_s
    assert len(heard) / payload.sample_hz >= len(pcm) / 24000 + delay
    end = round((len(pcm) / 24000 + delay) * payload.sample_hz)
    assert np.abs(heard[end - payload.sample_hz // 200 : end]).max() > 1000


@wide
def test_any_cut_of_the_bytes_gives_the_same_frames(payload: Payload) -> None:
    data = to_bytes(voice_24k(0.25))
    encoder = FrameEncoder(24000, payload)
    frames = [each for at in range(0, len(data), 701) for each in encoder.push(data[at : at + 701])]
    assert frames + encoder.flush() == encoded(payload, voice_24k(0.25))


@pytest.mark.parametrize("ending", ["flush", "reset"])
@wide
def test_the_next_utterance_knows_nothing_of_the_last(payload: Payload, ending: str) -> None:
    pcm = voice_24k(0.2)
    encoder = FrameEncoder(24000, payload)
    encoder.push(to_bytes(pcm[:3333]))
    getattr(encoder, ending)()
    assert encoder.push(to_bytes(pcm)) + encoder.flush() == encoded(payload, pcm)


@pytest.mark.parametrize("at", [12, 17, 23])
@wide
def test_an_end_in_mid_speech_makes_no_click_and_is_silent_soon(payload: Payload, at: int) -> None:
    frames = encoded(payload, voice_24k(0.8))
    speech = [frame.payload for frame in frames]
    own = steps(decoded(payload, speech))
    silence = payload.silent_frame(20)
    heard = decoded(payload, [*speech[:at], frames[at - 1].tail, silence, silence])
    assert steps(heard[-4 * payload.frame_samples(20) :]) <= own
    # The look-ahead, the fade, and what the filters still ring.
    over = 3 * payload.frame_samples(20) - payload.sample_hz * 14 // 1000
    assert np.abs(heard[-over:]).max() <= 80


@pytest.mark.parametrize("at", [12, 17, 23])
@wide
def test_going_on_after_a_hole_makes_no_click_and_no_noise(payload: Payload, at: int) -> None:
    frames = encoded(payload, voice_24k(0.8))
    speech = [frame.payload for frame in frames]
    whole = decoded(payload, speech)
    hole = [frames[at - 1].tail, *[payload.silent_frame(20)] * 10]
    heard = decoded(payload, [*speech[:at], *hole, frames[at].head, *speech[at + 1 :]])
    count = payload.frame_samples(20)
    after = heard[(at + len(hole)) * count :]
    assert steps(after) <= 1.1 * steps(whole)
    assert np.abs(after).max() <= 1.5 * np.abs(whole).max()
    # A tenth of a second later it is the same sound again.
    product, _ = likeness(whole[(at + 6) * count :], after[6 * count :])
    assert product > 0.9


@pytest.mark.parametrize("ptime", [10, 20, 40, 60])
@pytest.mark.parametrize("silent_ms", [0, 60, 600])
@wide
def test_a_sentence_that_begins_at_once_is_no_blast(
    payload: Payload, silent_ms: int, ptime: int
) -> None:
    lead = [payload.silent_frame(ptime)] * (silent_ms // ptime)
    for begin in (0, 500, 1165, 2250):  # samples of 24 kHz
        spoken = voice(24000, 0.5)[begin:]
        frames = encoded(payload, spoken, ptime)
        heard = decoded(payload, [*lead, *(frame.payload for frame in frames)])
        assert np.abs(heard.astype(int)).max() <= 1.4 * np.abs(spoken.astype(int)).max()


@pytest.mark.parametrize("after", ALL, ids=lambda p: p.name)
@pytest.mark.parametrize("before", ALL, ids=lambda p: p.name)
@pytest.mark.parametrize("at_ms", [10, 173, 400])
def test_a_codec_changed_in_mid_speech_neither_loses_nor_repeats_a_sample(
    before: Payload, after: Payload, at_ms: int
) -> None:
    pcm = voice_24k(0.8)
    cut = at_ms * 24
    encoder = FrameEncoder(24000, before)
    first = encoder.push(to_bytes(pcm[:cut]))
    told = sum(frame.samples for frame in first)
    encoder.resume(after, 20, told, pcm[max(0, told - PAST) : told])
    second = encoder.push(to_bytes(pcm[told:])) + encoder.flush()
    assert told + sum(frame.samples for frame in second) == len(pcm)
    # What the new one says is the rest of the sound, from the sample that was told of on.
    heard = decoded(after, [frame.payload for frame in second])
    rest = decoded(after, [frame.payload for frame in encoded(after, pcm[told:])])
    lead = round(FrameEncoder(24000, after).delay_s * after.sample_hz) if first else 0
    size = min(len(heard), len(rest) - lead)
    product, lag = likeness(heard[:size], np.concatenate((rest[lead:], np.zeros(400, np.int16))))
    assert product > 0.97
    assert lag <= 3


def test_a_change_may_bring_another_length_of_frames() -> None:
    encoder = FrameEncoder(24000, PCMU, 30)
    pcm = voice_24k(0.6)
    first = encoder.push(to_bytes(pcm[:7000]))
    told = sum(frame.samples for frame in first)
    encoder.resume(OPUS, 60, told, pcm[told - PAST : told])
    second = encoder.push(to_bytes(pcm[told:])) + encoder.flush()
    assert sum(frame.samples for frame in first + second) == len(pcm)
    assert {len(OPUS.decoder().decode(frame.payload)) for frame in second} == {1440}


@pytest.mark.parametrize("step", [1, 7, 100, 480])
def test_after_a_change_samples_may_come_in_any_pieces(step: int) -> None:
    pcm = voice_24k(0.3)
    whole, pieces = (FrameEncoder(24000, PCMU), FrameEncoder(24000, PCMU))
    for encoder in (whole, pieces):
        encoder.resume(OPUS, 20, 1000, pcm[100:1000])
    frames = whole.push(to_bytes(pcm[1000:])) + whole.flush()
    cut = []
    for start in range(1000, len(pcm), step):
        cut += pieces.push(to_bytes(pcm[start : start + step]))
    assert cut + pieces.flush() == frames


def test_a_change_at_the_begin_is_as_if_there_was_none() -> None:
    pcm = voice_24k(0.3)
    encoder = FrameEncoder(24000, PCMU)
    encoder.push(to_bytes(pcm[:2000]))
    encoder.resume(OPUS, 20, 0, pcm[:0])
    assert encoder.push(to_bytes(pcm)) + encoder.flush() == encoded(OPUS, pcm)


def test_a_change_that_cannot_be_changes_nothing() -> None:
    pcm = voice_24k(0.3)
    encoder = FrameEncoder(24000, PCMU, 30)
    frames = encoder.push(to_bytes(pcm[:3000]))
    with pytest.raises(UnsupportedPtime):
        encoder.resume(OPUS, 30, 3000, pcm[1000:3000])
    frames += encoder.push(to_bytes(pcm[3000:])) + encoder.flush()
    assert frames == encoded(PCMU, pcm, 30)
