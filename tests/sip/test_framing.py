from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.message import MAX_HEAD_BYTES, StreamFramer

ONE = b"OPTIONS sip:a SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 4\r\n\r\nbody"
TWO = b"BYE sip:a SIP/2.0\r\nCall-ID: 2\r\nl : 0\r\n\r\n"
THREE = b"SIP/2.0 200 OK\r\nCall-ID: 3\r\n\r\n"


def test_messages_are_cut_by_their_length() -> None:
    assert StreamFramer().push(ONE + TWO + THREE) == [ONE, TWO, THREE]


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1), st.integers(0, 5))
def test_however_the_bytes_arrive_the_messages_are_the_same(cuts: list[int], blank: int) -> None:
    stream = b"\r\n" * blank + ONE + b"\r\n" + TWO + b"\r\n\r\n" + THREE + ONE
    framer, got, at = StreamFramer(), [], 0
    for cut in cuts:
        got += framer.push(stream[at : at + cut])
        at += cut
    got += framer.push(stream[at:])
    assert got == [ONE, TWO, THREE, ONE]


def test_a_blank_line_before_a_message_loses_nothing() -> None:
    framer = StreamFramer()
    assert framer.push(b"\r\n") == []
    assert framer.push(b"\r\n" + ONE) == [ONE]


def test_keep_alives_are_counted() -> None:
    framer = StreamFramer()
    assert framer.push(b"\r\n\r\n" + ONE + b"\r\n\r\n") == [ONE]
    assert framer.pings == 2


@pytest.mark.parametrize("cut", range(1, 8))
def test_keep_alives_are_counted_wherever_they_are_cut(cut: int) -> None:
    framer = StreamFramer()
    stream = b"\r\n\r\n\r\n\r\n"
    assert framer.push(stream[:cut]) == []
    assert framer.push(stream[cut:]) == []
    assert framer.pings == 2


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("cut", range(4))
def test_the_bound_on_headers_is_the_same_wherever_the_stream_is_cut(cut: int, over: int) -> None:
    stream = b"x" * (MAX_HEAD_BYTES + over) + b"\r\n\r\n"
    framer = StreamFramer()

    def push() -> list[bytes]:
        return framer.push(stream[: len(stream) - cut]) + framer.push(stream[len(stream) - cut :])

    if over:
        with pytest.raises(BadSip):
            push()
    else:
        assert push() == [stream]


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 20_000,
        b"A: b\r\n" * 4000 + b"\r\n",
        b"X: y\r\nContent-Length: 100000\r\n\r\n",
        b"X: y\r\nContent-Length: 99999999999\r\n\r\n",
        b"X: y\r\nContent-Length: -1\r\n\r\n",
        b"X: y\r\nContent-Length: x\r\n\r\n",
        b"X: y\r\nContent-Length: 4\r\nl: 5\r\n\r\n",
    ],
    ids=range(7),
)
def test_a_stream_that_cannot_be_cut_is_bad_sip(data: bytes) -> None:
    with pytest.raises(BadSip):
        StreamFramer().push(data)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_give_messages_or_bad_sip(pieces: list[bytes]) -> None:
    framer = StreamFramer()
    try:
        for piece in pieces:
            framer.push(piece)
    except BadSip:
        return


def test_a_flood_of_single_bytes_is_not_searched_again_and_again() -> None:
    import time

    framer = StreamFramer()
    start = time.process_time()
    for _ in range(16_000):
        framer.push(b"x")
    assert time.process_time() - start < 1.0
