"""From an engine's bytes to the frames of a call."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_codecs import (
    PCMA,
    PCMU,
    BadSamples,
    EncodedFrame,
    FrameEncoder,
    Payload,
    Pcm,
    Resampler,
    UnsupportedPtime,
    UnsupportedRate,
    l16,
    to_bytes,
)
from tests.codecs.signals import noise, places, resampled, tone

FORMATS = [PCMU, PCMA, l16(16000, 96), l16(24000, 97)]
formats = pytest.mark.parametrize("payload", FORMATS, ids=lambda p: f"{p.name}-{p.sample_hz}")


def encoded(encoder: FrameEncoder, pcm: Pcm) -> list[EncodedFrame]:
    return encoder.push(to_bytes(pcm)) + encoder.flush()


def portions(data: bytes, where: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in where), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("from_hz", [24000, 22050, 8000])
@formats
@given(
    size=st.integers(0, 9000),
    where=places(),
    ptime=st.sampled_from([10, 20, 30, 40, 50, 60]),
)
@settings(max_examples=20, deadline=None)
def test_any_cut_of_the_bytes_gives_the_same_frames(
    from_hz: int, payload: Payload, size: int, where: list[int], ptime: int
) -> None:
    data = noise(size // 2 + 1).tobytes()[:size]
    at_once = FrameEncoder(from_hz, payload, ptime)
    whole = at_once.push(data) + at_once.flush()
    encoder = FrameEncoder(from_hz, payload, ptime)
    frames = [frame for part in portions(data, where) for frame in encoder.push(part)]
    frames += encoder.flush()
    assert frames == whole
    assert sum(frame.samples for frame in frames) == size // 2
    assert encoder.cut_off == bool(size % 2)
    for frame in frames:
        assert len(frame.payload) == len(frame.tail) == len(frame.head)
        assert len(frame.payload) == payload.frame_bytes(ptime)


@formats
def test_the_frames_are_the_resampled_stream_and_silence_at_its_end(payload: Payload) -> None:
    pcm = noise(2000)
    stream = resampled([pcm], Resampler(24000, payload.sample_hz))
    frames = encoded(FrameEncoder(24000, payload), pcm)
    length = payload.frame_samples(20)
    assert len(frames) == -(-len(stream) // length)
    padded = payload.encode(stream) + payload.silence * (len(frames) * length - len(stream))
    assert b"".join(frame.payload for frame in frames) == padded


def test_20_ms_in_give_a_frame_at_once() -> None:
    encoder = FrameEncoder(24000, PCMU)
    for _ in range(50):
        assert len(encoder.push(bytes(960))) == 1


def test_samples_follow_the_ear_and_not_the_filter() -> None:
    encoder = FrameEncoder(24000, PCMU)
    assert encoder.delay_s == 0.003
    frames = encoded(encoder, noise(4 * 480))
    # 3 ms of delay: the first frame brings 17 ms of the stream, one more frame brings the rest.
    assert [frame.samples for frame in frames] == [408, 480, 480, 480, 72]


def test_without_resampling_a_frame_brings_what_it_holds() -> None:
    frames = encoded(FrameEncoder(8000, PCMU), noise(400))
    assert [frame.samples for frame in frames] == [160, 160, 80]


def test_an_utterance_of_nothing_has_no_frames() -> None:
    encoder = FrameEncoder(24000, PCMU)
    assert encoder.push(b"") == []
    assert encoder.flush() == []
    assert encoder.push(b"\x01") == []
    assert encoder.flush() == []
    assert encoder.cut_off


@pytest.mark.parametrize("samples", [*range(1, 12), 71, 72, 73, 479, 480, 481])
def test_the_shortest_utterance_is_heard(samples: int) -> None:
    pcm = np.full(samples, 20000, np.int16)
    frames = encoded(FrameEncoder(24000, PCMU), pcm)
    assert sum(frame.samples for frame in frames) == samples
    heard = np.concatenate([PCMU.decode(frame.payload) for frame in frames]).astype(int)
    # A third of the samples; where they end between two outputs, less than one of them is missing.
    assert heard.sum() == pytest.approx(20000 * samples / 3, rel=0.02, abs=7000)
    assert heard.sum() >= 0.6 * 20000 * samples / 3


@pytest.mark.parametrize("ending", ["flush", "reset"])
def test_the_next_utterance_knows_nothing_of_the_last(ending: str) -> None:
    pcm = noise(1500)
    encoder = FrameEncoder(24000, PCMU)
    first = encoded(encoder, pcm)
    encoder.push(noise(1111, seed=3).tobytes() + b"\x01")
    getattr(encoder, ending)()
    assert encoded(encoder, pcm) == first


@formats
@pytest.mark.parametrize("ptime", [10, 20, 60])
def test_the_tail_goes_on_from_the_last_sample_and_is_silent_after_5_ms(
    payload: Payload, ptime: int
) -> None:
    rate = payload.sample_hz
    fade = rate * 5 // 1000
    for frame in encoded(FrameEncoder(rate, payload, ptime), tone(180, rate, 0.4, 16000)):
        end = payload.decode(frame.payload).astype(int)
        tail = payload.decode(frame.tail).astype(int)
        largest_step = np.abs(np.diff(end)).max() + 0.05 * np.abs(end).max() + 16
        assert abs(tail[0] - end[-1]) <= largest_step
        assert np.abs(np.diff(tail)).max() <= 2 * largest_step
        assert np.abs(tail[:fade]).max() <= np.abs(end).max()
        assert frame.tail[fade * payload.sample_bytes :] == payload.silence * (len(tail) - fade)


@formats
def test_the_head_rises_from_silence_and_is_the_frame_after_5_ms(payload: Payload) -> None:
    rate = payload.sample_hz
    fade = rate * 5 // 1000
    for frame in encoded(FrameEncoder(rate, payload), tone(180, rate, 0.4, 16000)):
        plain = payload.decode(frame.payload).astype(int)
        head = payload.decode(frame.head).astype(int)
        assert abs(head[0]) <= 0.002 * np.abs(plain).max() + 8
        assert np.all(np.abs(head[:fade]) <= np.abs(plain[:fade]) * 1.04 + 8)
        size = payload.sample_bytes
        assert frame.head[fade * size :] == frame.payload[fade * size :]


@formats
def test_a_break_makes_no_click(payload: Payload) -> None:
    """Frame, tail, silence, head: no step larger than the tone's own by more than the codec's."""
    rate = payload.sample_hz
    pcm = tone(100, rate, 0.2, 12000)
    frames = encoded(FrameEncoder(rate, payload), pcm)
    silence = payload.silent_frame(20)
    wire = [frames[2].payload, frames[2].tail, silence, frames[3].head, frames[4].payload]
    heard = payload.decode(b"".join(wire)).astype(int)
    own = np.abs(np.diff(payload.decode(b"".join(f.payload for f in frames)).astype(int))).max()
    assert np.abs(np.diff(heard)).max() <= 1.25 * own


@formats
def test_silence_is_called_silent_and_a_whisper_is_not(payload: Payload) -> None:
    rate = payload.sample_hz
    encoder = FrameEncoder(rate, payload)
    quiet = np.zeros(rate // 50, np.int16)
    whisper = quiet.copy()
    whisper[5] = -40
    faint = quiet.copy()
    faint[5] = -8
    frames = encoded(encoder, np.concatenate([quiet, whisper, faint]))
    assert [frame.silent for frame in frames] == [True, False, True]
    assert frames[0].payload == frames[0].tail == frames[0].head == payload.silent_frame(20)


def test_the_lowest_sample_is_loud() -> None:
    frame = encoded(FrameEncoder(8000, PCMU), np.full(160, -32768, np.int16))[0]
    assert not frame.silent


@pytest.mark.parametrize(
    ("from_hz", "ptime", "error"),
    [(100, 20, UnsupportedRate), (24000, 5, UnsupportedPtime), (24000, 70, UnsupportedPtime)],
)
def test_what_cannot_be_done_is_refused_at_once(
    from_hz: int, ptime: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        FrameEncoder(from_hz, PCMU, ptime)


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(BadSamples, match="come as bytes"):
        FrameEncoder(24000, PCMU).push("text")  # type: ignore[arg-type]
