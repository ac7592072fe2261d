"""Payload formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs import (
    L16,
    PCMA,
    PCMU,
    BadSamples,
    Payload,
    UnknownPayload,
    UnsupportedPtime,
    UnsupportedRate,
    l16,
    payload_by_name,
    payload_by_type,
    slin,
)


@pytest.mark.parametrize(
    ("payload", "name", "payload_type", "silence", "frame"),
    [
        (PCMU, "PCMU", 0, b"\xff", 160),
        (PCMA, "PCMA", 8, b"\xd5", 160),
        (l16(16000, 118), "L16", 118, b"\0\0", 640),
        (L16, "L16", 11, b"\0\0", 1764),
    ],
)
def test_a_format_is_what_rfc_3551_says(
    payload: Payload, name: str, payload_type: int, silence: bytes, frame: int
) -> None:
    assert (payload.name, payload.payload_type) == (name, payload_type)
    assert payload.silence == silence
    assert payload.frame_bytes(20) == frame
    assert payload.silent_frame(20) == silence * (frame // payload.sample_bytes)
    assert payload.clock_hz == payload.sample_hz
    assert payload.encode(np.zeros(3, np.int16)) == silence * 3


@pytest.mark.parametrize("ptime", [10, 20, 30, 40, 50, 60])
def test_frames_of_8_khz_are_8_bytes_a_millisecond(ptime: int) -> None:
    assert PCMU.frame_bytes(ptime) == PCMA.frame_bytes(ptime) == 8 * ptime


@pytest.mark.parametrize("ptime", [0, 9, 61, -20, 20.0, "20", None, True])
def test_a_ptime_out_of_bounds_is_refused(ptime: Any) -> None:
    with pytest.raises(UnsupportedPtime, match="ptime"):
        PCMU.frame_bytes(ptime)


def test_a_frame_that_is_not_whole_samples_is_refused() -> None:
    assert l16(22050, 100).frame_samples(20) == 441
    with pytest.raises(UnsupportedPtime, match="take 20 ms"):
        l16(22050, 100).frame_samples(10)


def test_linear_samples_go_in_network_order() -> None:
    pcm = np.array([1, -2, 32767, -32768], np.int16)
    assert L16.encode(pcm) == b"\x00\x01\xff\xfe\x7f\xff\x80\x00"
    assert L16.decode(L16.encode(pcm)).tolist() == pcm.tolist()
    assert L16.decode(L16.encode(pcm)).dtype == np.int16


def test_wrong_linear_samples_are_refused() -> None:
    with pytest.raises(BadSamples, match="3 bytes"):
        L16.decode(b"abc")
    with pytest.raises(BadSamples, match="L16"):
        L16.encode(np.zeros(3, np.float32))


def test_formats_are_found_by_name_and_by_type() -> None:
    assert payload_by_name("pcmu") is PCMU
    assert payload_by_name("PCMA") is PCMA
    assert payload_by_type(0) is PCMU
    assert payload_by_type(8) is PCMA
    assert payload_by_type(11) is L16


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownPayload, match=r"'G729'.*PCMU, PCMA"):
        payload_by_name("G729")
    with pytest.raises(UnknownPayload, match=r"18.*\[0, 8, 9, 11\]"):
        payload_by_type(18)
    with pytest.raises(UnknownPayload, match="96 to 127"):
        l16(16000, 11)
    with pytest.raises(UnsupportedRate, match="sample_hz"):
        l16(100, 96)


def test_linear_samples_of_streams_are_low_byte_first() -> None:
    payload = slin(24_000)
    pcm = np.array([1, -2, 32767, -32768], np.int16)
    assert payload.encode(pcm) == b"\x01\x00\xfe\xff\xff\x7f\x00\x80"
    assert payload.decode(payload.encode(pcm)).tolist() == pcm.tolist()
    assert payload.frame_bytes(20) == 960
    assert payload != l16(24_000, 127)
    with pytest.raises(BadSamples):
        payload.decode(b"abc")
    with pytest.raises(UnsupportedRate):
        slin(100)
