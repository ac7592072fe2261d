from __future__ import annotations

import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.streams.carriers.adapter import (
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.audiosocket import AUDIO, RATE_WAIT_S, AudioSocketAdapter

CALL = uuid.UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
ID = b"\x01\x00\x10" + CALL.bytes
FRAME_8 = b"\x10\x01\x40" + bytes(320)
FRAME_24 = b"\x13\x03\xc0" + bytes(960)
HANG_UP = b"\x00\x00\x00"


def took(*messages: bytes, adapter: AudioSocketAdapter | None = None) -> list[StreamEvent]:
    adapter = adapter or AudioSocketAdapter()
    return [event for message in messages for event in adapter.receive(message, 100.0)]


def test_the_uuid_of_the_dialplan_is_the_call() -> None:
    start, audio = took(ID + FRAME_8)
    assert isinstance(start, StreamStarted)
    assert start.call_id == str(CALL)
    assert audio == StreamAudio(bytes(320))


@pytest.mark.parametrize(("kind", "rate_hz"), AUDIO.items())
def test_it_is_spoken_to_at_the_rate_of_its_own_sound(kind: int, rate_hz: int) -> None:
    size = rate_hz // 50 * 2
    adapter = AudioSocketAdapter()
    message = bytes([kind]) + size.to_bytes(2, "big") + bytes(size)
    took(ID, message, adapter=adapter)
    assert adapter.payload.sample_hz == adapter.payload_in.sample_hz == rate_hz
    assert adapter.payload.frame_bytes(20) == size
    assert adapter.audio(adapter.payload.silent_frame(20)) == (message,)


def test_speech_at_24_khz_is_not_resampled() -> None:
    adapter = AudioSocketAdapter()
    took(ID, FRAME_24, adapter=adapter)
    assert adapter.payload.sample_hz == 24_000
    assert adapter.audio(b"\x01\x02" * 480)[0] == b"\x13\x03\xc0" + b"\x01\x02" * 480


def test_samples_are_low_byte_first() -> None:
    adapter = AudioSocketAdapter()
    assert adapter.payload.decode(b"\x01\x00\x00\x80").tolist() == [1, -32768]


def test_a_far_end_without_sound_is_spoken_to_at_8_khz_after_a_moment() -> None:
    adapter = AudioSocketAdapter()
    assert took(ID, adapter=adapter) == []
    assert adapter.tick(100.0 + RATE_WAIT_S / 2) == []
    (start,) = adapter.tick(100.0 + RATE_WAIT_S)
    assert isinstance(start, StreamStarted)
    assert adapter.payload.sample_hz == 8000
    assert adapter.tick(200.0) == []


def test_sound_at_another_rate_later_is_heard_at_its_own() -> None:
    adapter = AudioSocketAdapter()
    took(ID, FRAME_8, adapter=adapter)
    assert took(FRAME_24, adapter=adapter) == [StreamAudio(bytes(960))]
    assert (adapter.payload.sample_hz, adapter.payload_in.sample_hz) == (8000, 24_000)


def test_a_key_and_the_hang_up() -> None:
    assert took(ID, b"\x03\x00\x015", HANG_UP) == [StreamKey("5"), StreamStopped()]


def test_our_hang_up_is_three_zero_bytes() -> None:
    assert AudioSocketAdapter().hang_up() == (HANG_UP,)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (FRAME_8, "sound before the start"),
        (b"\x01\x00\x02ab", "a malformed UUID"),
        (ID + ID, "a second start"),
        (ID + b"\x03\x00\x01x", "an unknown key"),
        (ID + b"\x03\x00\x0212", "an unknown key"),
        (ID + b"\xff\x00\x01\x02", "error 2"),
        (ID + b"\xff\x00\x00", "error 0"),
        (ID + b"\x77\x00\x01?", "a message of type 0x77"),
    ],
)
def test_what_is_no_message_of_its_is_told_and_the_stream_goes_on(
    message: bytes, what: str
) -> None:
    adapter = AudioSocketAdapter()
    assert StreamOddity(what) in took(message, adapter=adapter)
    assert StreamAudio(bytes(320)) in took(ID, FRAME_8, adapter=adapter)


def test_half_a_sample_is_left_out() -> None:
    events = took(ID, b"\x10\x00\x03\x01\x02\x03", b"\x10\x00\x00")
    assert StreamAudio(b"\x01\x02") in events
    assert events.count(StreamOddity("sound that is no whole samples")) == 2


def test_that_the_caller_has_hung_up_is_the_end() -> None:
    assert took(ID, b"\xff\x00\x01\x01") == [StreamStopped("the caller has hung up")]


@given(st.lists(st.integers(0, 400), max_size=12))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int]) -> None:
    whole = ID + FRAME_8 * 3 + b"\x03\x00\x01#" + FRAME_24 + HANG_UP
    edges = sorted({0, len(whole), *(cut * len(whole) // 400 for cut in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    assert took(*pieces) == took(whole)
