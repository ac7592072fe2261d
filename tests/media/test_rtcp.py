from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.rtcp import (
    Bye,
    Description,
    Packet,
    ReceiverReport,
    ReportBlock,
    RtcpError,
    SenderReport,
)

words = st.integers(0, 2**32 - 1)
blocks = st.lists(
    st.builds(
        ReportBlock,
        words,
        st.integers(0, 255),
        st.integers(-(2**23), 2**23 - 1),
        words,
        words,
        words,
        words,
    ),
    max_size=5,
).map(tuple)
names = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=60)
compounds = st.lists(
    st.builds(SenderReport, words, st.integers(0, 2**64 - 1), words, words, words, blocks)
    | st.builds(ReceiverReport, words, blocks)
    | st.builds(Description, st.lists(st.tuples(words, names), max_size=3).map(tuple))
    | st.builds(Bye, st.lists(words, min_size=1, max_size=3).map(tuple), st.just("") | names),
    min_size=1,
    max_size=4,
)


@given(compounds)
def test_what_is_built_is_parsed_back(packets: list[Packet]) -> None:
    data = rtcp.build(packets)
    if len(data) < 8:  # an empty description alone is no compound packet
        with pytest.raises(RtcpError):
            rtcp.parse(data)
    else:
        assert rtcp.parse(data) == packets


@given(
    st.integers(200, 204),
    st.integers(0, 63),
    st.binary(min_size=4, max_size=120).map(lambda body: body[: len(body) // 4 * 4]),
)
def test_any_body_of_a_known_type_gives_packets_or_a_typed_error(
    kind: int, flags: int, body: bytes
) -> None:
    data = struct.pack("!BBH", 0x80 | flags, kind, len(body) // 4) + body
    with contextlib.suppress(RtcpError):
        rtcp.parse(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (bytes(9), "whole words"),
        (bytes(1600), "1600 bytes"),
        (b"\x00\xc8\x00\x01" + bytes(4), "version 0"),
        (b"\x80\xc8\x00\x09" + bytes(4), "10 words"),
        (b"\x80\xc8\x00\x01" + bytes(4), "sender report"),
        (b"\x82\xc9\x00\x01" + bytes(4), "2 blocks"),
        (b"\x80\x00\x00\x01" + bytes(4), "type 0"),
        (b"\x81\xca\x00\x01" + bytes(4), "does not end"),
        (b"\x84\xcb\x00\x01" + bytes(4), "4 sources"),
        (b"\xa0\xc9\x00\x01" + bytes(3) + b"\x08", "padding"),
        (b"\x80\xc9\x00\x00" * 40, "receiver report"),
    ],
)
def test_a_datagram_that_is_no_rtcp_says_why(data: bytes, says: str) -> None:
    with pytest.raises(RtcpError, match=says):
        rtcp.parse(data)


def test_many_packets_in_one_datagram_are_refused() -> None:
    with pytest.raises(RtcpError, match="more than 32"):
        rtcp.parse(rtcp.build([Bye((1,))] * 33))


def test_a_type_that_is_not_used_is_passed_over() -> None:
    application = struct.pack("!BBHI4s", 0x80, 204, 2, 7, b"TEST")
    assert rtcp.parse(application + rtcp.build([Bye((7,))])) == [Bye((7,))]


def test_the_round_trip_follows_the_example_of_rfc_3550() -> None:
    # Section 6.4.1: A = 0xb710:8000, last report 0xb705:2000, delay 0x0005:4000 -> 6.125 s.
    block = ReportBlock(1, 0, 0, 0, 0, 0xB7052000, 0x00054000)
    assert rtcp.round_trip_s(block, 0xB7108000) == 6.125


def test_a_report_on_no_report_tells_no_round_trip() -> None:
    assert rtcp.round_trip_s(ReportBlock(1, 0, 0, 0, 0, 0, 0), 0x1234) is None


def test_a_clock_that_went_back_tells_no_round_trip() -> None:
    assert rtcp.round_trip_s(ReportBlock(1, 0, 0, 0, 0, 0x2000_0000, 0), 0x1FFF_0000) is None


def test_ntp_time_counts_from_1900() -> None:
    assert rtcp.ntp_time(0.5) == (2_208_988_800 << 32) + (1 << 31)
