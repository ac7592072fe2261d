from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.rtp import RtpError, RtpPacket

words = st.integers(0, 2**32 - 1)
packets = st.builds(
    RtpPacket,
    payload_type=st.integers(0, 127),
    sequence=st.integers(0, 65535),
    timestamp=words,
    ssrc=words,
    payload=st.binary(max_size=400),
    marker=st.booleans(),
    csrcs=st.lists(words, max_size=15).map(tuple),
    extension=st.none()
    | st.tuples(st.integers(0, 65535), st.binary(max_size=40).map(lambda b: b[: len(b) // 4 * 4])),
)


@given(packets, st.integers(0, 255))
def test_what_is_built_is_parsed_back(packet: RtpPacket, padding: int) -> None:
    assert rtp.parse(rtp.build(packet, padding)) == packet


@given(st.binary(min_size=11, max_size=80).map(lambda rest: bytes([0x80 | rest[0] & 0x3F]) + rest))
def test_version_two_with_any_flags_gives_a_packet_or_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(RtpError):
        rtp.parse(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"\x80" + bytes(10), "11 bytes"),
        (b"\x40" + bytes(11), "version 1"),
        (b"\x00" + bytes(171), "version 0"),
        (b"\x8f" + bytes(20), "15 contributing sources"),
        (b"\x90" + bytes(12), "extension is cut off"),
        (b"\x90" + bytes(11) + b"\xbe\xde\x00\x05" + bytes(8), "5 words"),
        (b"\xa0" + bytes(11), "padding"),
        (b"\xa0" + bytes(12), "0 bytes of padding"),
        (b"\xa0" + bytes(11) + b"\x00\x09", "9 bytes of padding"),
    ],
)
def test_a_datagram_that_is_no_rtp_says_why(data: bytes, says: str) -> None:
    with pytest.raises(RtpError, match=says):
        rtp.parse(data)


def test_the_header_is_laid_out_as_rfc_3550_draws_it() -> None:
    packet = RtpPacket(8, 0x1234, 0x89ABCDEF, 0xDEADBEEF, b"\x55", marker=True)
    assert rtp.build(packet) == bytes.fromhex("80 88 1234 89abcdef deadbeef 55")


@pytest.mark.parametrize(
    ("packet", "padding"),
    [
        (RtpPacket(128, 0, 0, 0, b""), 0),
        (RtpPacket(0, 0, 0, 0, b"", csrcs=(1,) * 16), 0),
        (RtpPacket(0, 0, 0, 0, b"", extension=(1, b"abc")), 0),
        (RtpPacket(0, 0, 0, 0, b""), 256),
    ],
)
def test_what_cannot_be_written_is_refused(packet: RtpPacket, padding: int) -> None:
    with pytest.raises(RtpError):
        rtp.build(packet, padding)


def test_rtcp_on_the_same_port_is_told_apart() -> None:
    assert rtp.is_rtcp(bytes([0x81, 200, 0, 6]))
    assert not rtp.is_rtcp(bytes([0x80, 0]))
    assert not rtp.is_rtcp(b"\x80")


@given(words, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_timestamps_are_unwrapped_step_by_step(first: int, steps: list[int]) -> None:
    unwrapper = rtp.Unwrapper()
    expected = unwrapper.unwrap(first)
    for step in steps:
        expected += step
        assert unwrapper.unwrap(expected % 2**32) == expected
