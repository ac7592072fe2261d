"""Bytes to samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs import BadSamples, CodecError, Framer, Int16Reader, from_bytes, to_bytes
from tests.codecs.signals import cut, noise, places


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_any_cut_of_the_bytes_gives_the_same_samples(chunks: list[bytes]) -> None:
    reader = Int16Reader()
    samples = [reader.push(chunk) for chunk in chunks]
    data = b"".join(chunks)
    left = reader.flush()
    assert left == len(data) % 2
    assert np.concatenate([*samples, np.zeros(0, np.int16)]).tolist() == [
        int.from_bytes(data[at : at + 2], "little", signed=True)
        for at in range(0, len(data) - left, 2)
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_bytes_is_taken(kind: Any) -> None:
    assert Int16Reader().push(kind(b"\x01\x02\xff\xff")).tolist() == [0x0201, -1]


def test_samples_do_not_change_when_the_caller_writes_to_its_buffer_again() -> None:
    buffer = bytearray(b"\x01\x00")
    samples = Int16Reader().push(buffer)
    buffer[:] = b"\xff\xff"
    assert samples.tolist() == [1]


def test_memory_of_other_items_than_bytes_is_read_as_bytes() -> None:
    reader = Int16Reader()
    assert reader.push(np.array([1, -2], "<i2").data).tolist() == [1, -2]
    assert reader.push(memoryview(b"\x01\x77\x00\x77")[::2]).tolist() == [1]


def test_an_odd_byte_waits_and_is_counted() -> None:
    reader = Int16Reader()
    assert reader.push(b"\x01").tolist() == []
    assert reader.waiting == 1
    assert reader.push(b"\x02\x03").tolist() == [0x0201]
    assert reader.waiting == 1
    assert reader.flush() == 1
    assert reader.flush() == 0
    assert reader.push(b"\x05\x00").tolist() == [5]


@pytest.mark.parametrize("data", ["text", None, 7, [1, 2], np.zeros(2, np.int16)])
def test_what_is_not_bytes_is_refused(data: Any) -> None:
    with pytest.raises(BadSamples, match="come as bytes"):
        Int16Reader().push(data)


def test_half_a_sample_is_refused_where_nothing_more_can_come() -> None:
    with pytest.raises(CodecError, match="3 bytes"):
        from_bytes(b"abc")


@given(st.lists(st.integers(-32768, 32767)))
def test_samples_come_back_from_their_bytes(samples: list[int]) -> None:
    assert from_bytes(to_bytes(np.array(samples, np.int16))).tolist() == samples


@pytest.mark.parametrize(
    ("pcm", "why"),
    [
        ([1, 2], "list"),
        (np.zeros(3), "float64"),
        (np.zeros(3, ">i2"), ">i2"),
        (np.zeros((3, 2), np.int16), r"\[3, 2\]"),
        (np.int16(3), "int16"),
    ],
)
def test_wrong_arrays_are_refused_with_what_is_wrong(pcm: Any, why: str) -> None:
    with pytest.raises(BadSamples, match=why):
        to_bytes(pcm)


@given(samples=st.integers(0, 700), frame_samples=st.sampled_from([1, 7, 80, 160]), where=places())
def test_frames_do_not_depend_on_the_cut(
    samples: int, frame_samples: int, where: list[int]
) -> None:
    pcm = noise(samples)
    framer = Framer(frame_samples)
    frames = [frame for portion in cut(pcm, where) for frame in framer.push(portion)]
    assert [len(frame) for frame in frames] == [frame_samples] * (samples // frame_samples)
    assert framer.waiting == samples % frame_samples
    last = framer.flush()
    assert (last.real if last else 0) == samples % frame_samples
    joined = np.concatenate([*frames, last.samples if last else pcm[:0], pcm[:0]])
    assert joined[:samples].tolist() == pcm.tolist()
    assert not joined[samples:].any()
    assert framer.flush() is None


def test_frames_do_not_change_with_the_callers_array() -> None:
    framer = Framer(2)
    pcm = np.array([1, 2, 3], np.int16)
    frames = framer.push(pcm)
    pcm[:] = 9
    frames += framer.push(np.array([4], np.int16))
    assert [frame.tolist() for frame in frames] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("frame_samples", [0, -1, 1.5, None, True])
def test_a_frame_of_no_samples_is_refused(frame_samples: Any) -> None:
    with pytest.raises(BadSamples, match="frame"):
        Framer(frame_samples)


@pytest.mark.parametrize("pcm", [b"\0\0", np.zeros(2), np.zeros((2, 2), np.int16)])
def test_wrong_samples_are_refused(pcm: Any) -> None:
    with pytest.raises(BadSamples, match="Framer"):
        Framer(160).push(pcm)
