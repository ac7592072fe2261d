from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_wire.errors import BadRequest, ProtocolError
from qwen3tts_wire.formats import FORMATS, HEADER, AudioFormat, AudioFrame


@settings(deadline=None)
@given(
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=50),
    st.integers(0, 255),
)
def test_a_frame_comes_back_as_it_was(no: int, offset: int, data: bytes, flags: int) -> None:
    frame = AudioFrame(no, offset, data, flags)
    assert AudioFrame.from_bytes(frame.to_bytes()) == frame


def test_the_header_is_the_sixteen_bytes_of_the_contract() -> None:
    message = AudioFrame(0x01020304, 0x1112131415161718, b"\xaa\xbb", 1).to_bytes()
    assert HEADER.size == 16
    assert message.hex() == "01010000" + "04030201" + "1817161514131211" + "aabb"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    try:
        assert AudioFrame.from_bytes(data).to_bytes()[4:] == data[4:]
    except ProtocolError:
        assert len(data) < 16 or data[0] != 1


def test_what_is_served_is_accepted_and_the_rest_is_refused_by_name() -> None:
    for each in FORMATS:
        assert each.checked() is each
    with pytest.raises(BadRequest, match="mulaw at 16000 Hz is not served"):
        AudioFormat("mulaw", 16000).checked()


@pytest.mark.parametrize("form", FORMATS)
def test_milliseconds_to_samples_and_back_is_exact(form: AudioFormat) -> None:
    for samples in range(0, 100_000, 37):
        assert form.samples(1000 * samples / form.sample_rate) == samples
