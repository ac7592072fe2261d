from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media import dtmf
from qwen3tts_phone.media.dtmf import (
    DtmfError,
    DtmfReceiver,
    DtmfSender,
    EventPacket,
    KeyDown,
    KeyUp,
    OutgoingEvent,
)

TICKS = 160


def slots(keys: str, *, start: int = 1000, **timing: int) -> list[tuple[int, OutgoingEvent | None]]:
    """All slots that a row of keys takes: their timestamps and what is sent in them."""
    sender = DtmfSender(keys, ticks=TICKS, **timing)
    seen = []
    timestamp = start
    while not sender.done:
        seen.append((timestamp, sender.slot(timestamp)))
        timestamp = (timestamp + TICKS) % 2**32
    return seen


def event(digit: str, duration: int, *, end: bool = False) -> bytes:
    return dtmf.build(EventPacket(dtmf.KEYS.index(digit), end, 10, duration))


def test_all_packets_of_a_key_carry_its_start_and_only_the_first_the_marker() -> None:
    sent = [outgoing for _, outgoing in slots("5") if outgoing is not None]
    assert {outgoing.timestamp for outgoing in sent} == {1000}
    assert [outgoing.marker for outgoing in sent] == [True] + [False] * (len(sent) - 1)


def test_the_duration_grows_by_a_slot_and_the_end_is_told_three_times() -> None:
    packets = [dtmf.parse(out.payload) for _, out in slots("#", duration_ms=100) if out is not None]
    assert [packet.duration for packet in packets] == [160, 320, 480, 640, 800, 800, 800, 800]
    assert [packet.end for packet in packets] == [False] * 5 + [True] * 3
    assert {packet.event for packet in packets} == {11}


def test_keys_are_apart_by_the_gap() -> None:
    sent = slots("12", duration_ms=100, gap_ms=80)
    starts = [time for time, outgoing in sent if outgoing is not None and outgoing.marker]
    assert (starts[1] - starts[0]) * 1000 // 8000 == 180
    assert len(sent) == 2 * (5 + 4)


def test_a_key_across_the_wrap_of_the_timestamp_keeps_its_start() -> None:
    sent = [out for _, out in slots("9", start=2**32 - 320) if out is not None]
    assert {outgoing.timestamp for outgoing in sent} == {2**32 - 320}


@pytest.mark.parametrize("keys", ["", "E", "1 2", "¼"])
def test_what_is_no_key_is_refused(keys: str) -> None:
    with pytest.raises(DtmfError):
        DtmfSender(keys, ticks=TICKS)


@pytest.mark.parametrize("timing", [(10, 80), (160, 0), (10_000, 80)])
def test_times_that_no_phone_understands_are_refused(timing: tuple[int, int]) -> None:
    with pytest.raises(DtmfError):
        dtmf.check("1", *timing)


def heard(packets: list[tuple[bytes, int]]) -> list[KeyDown | KeyUp]:
    receiver = DtmfReceiver()
    known: list[KeyDown | KeyUp] = []
    for index, (payload, timestamp) in enumerate(packets):
        known += receiver.receive(payload, timestamp, index * 0.02)
    return known + receiver.due(1000.0)


@given(
    st.text(dtmf.KEYS, min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_each_key_is_heard_once_whichever_packets_are_lost_or_doubled(
    keys: str, start: int, data: st.DataObject
) -> None:
    by_key: list[list[tuple[bytes, int]]] = []
    for _, outgoing in slots(keys, start=start):
        if outgoing is None:
            continue
        if outgoing.marker:
            by_key.append([])
        by_key[-1].append((outgoing.payload, outgoing.timestamp))
    arrived: list[tuple[bytes, int]] = []
    for packets in by_key:
        kept = data.draw(st.lists(st.sampled_from(packets), min_size=1, max_size=20))
        arrived += sorted(kept, key=lambda packet: dtmf.parse(packet[0]).duration)
    downs = [known for known in heard(arrived) if isinstance(known, KeyDown)]
    ups = [known for known in heard(arrived) if isinstance(known, KeyUp)]
    assert "".join(known.digit for known in downs) == keys.upper()
    assert "".join(known.digit for known in ups) == keys.upper()


def test_a_key_of_which_only_the_end_comes_counts_once() -> None:
    end = (event("7", 1280, end=True), 4000)
    known = heard([end, end, end])
    assert known == [KeyDown("7", 0.0), KeyUp("7", 1280, 0.0)]


def test_a_key_without_an_end_is_let_go_after_a_while() -> None:
    receiver = DtmfReceiver()
    receiver.receive(event("3", 160), 0, 1.0)
    receiver.receive(event("3", 320), 0, 1.02)
    assert receiver.due(1.1) == []
    assert receiver.due(1.2) == [KeyUp("3", 320, 1.0)]
    assert receiver.due(9.0) == []


def test_a_belated_packet_of_an_ended_key_is_not_another_key() -> None:
    known = heard([(event("3", 800, end=True), 0), (event("3", 160), 0)])
    assert [type(each) for each in known] == [KeyDown, KeyUp]


def test_the_same_digit_twice_is_two_keys() -> None:
    known = heard([(event("3", 800, end=True), 0), (event("3", 800, end=True), 1600)])
    assert len([each for each in known if isinstance(each, KeyDown)]) == 2


def test_a_very_long_key_in_segments_is_one_key() -> None:
    # RFC 4733 section 2.5.1.3: the duration is full, the next segment starts where it ends.
    known = heard(
        [
            (event("0", 160), 0),
            (event("0", 0xFFFF), 0),
            (event("0", 160), 0xFFFF),
            (event("0", 8000, end=True), 0xFFFF),
        ]
    )
    assert known == [KeyDown("0", 0.0), KeyUp("0", 0xFFFF + 8000, 0.0)]


def test_a_key_too_long_for_one_duration_is_told_in_segments_and_heard_as_one() -> None:
    # RFC 4733 section 2.5.1.3; 6 s of 48 kHz are 288 000 units, a duration holds 65 535.
    ticks = 960
    sender = DtmfSender("9", ticks=ticks, duration_ms=6000, gap_ms=80)
    receiver = DtmfReceiver()
    heard: list[KeyDown | KeyUp] = []
    starts: list[int] = []
    markers = 0
    full: set[int] = set()
    for slot in range(310):
        if sender.done:
            break
        sent = sender.slot((2**32 - 9600 + slot * ticks) % 2**32)
        if sent is None:
            continue
        packet = dtmf.parse(sent.payload)
        markers += sent.marker
        if sent.timestamp not in starts:
            starts.append(sent.timestamp)
        if packet.duration == 0xFFFF:
            assert not packet.end
            full.add(sent.timestamp)
        heard += receiver.receive(sent.payload, sent.timestamp, slot * 0.02)
    assert [(b - a) % 2**32 for a, b in itertools.pairwise(starts)] == 4 * [0xFFFF]
    assert full == set(starts[:-1])  # each was told to its full length
    assert markers == 1
    assert heard == [KeyDown("9", 0.0), KeyUp("9", 6000 * 48, 0.0)]


def test_durations_may_count_in_another_clock_than_the_streams_timestamps() -> None:
    sender = DtmfSender("1", ticks=160, stream_ticks=960, duration_ms=100)
    sent = [sender.slot(960 * n) for n in range(8)]
    assert {each.timestamp for each in sent if each is not None} == {0}
    assert max(dtmf.parse(each.payload).duration for each in sent if each is not None) == 800


def test_events_that_are_no_keys_are_ignored_and_counted() -> None:
    receiver = DtmfReceiver()
    assert receiver.receive(b"\x10\x0a\x00\xa0", 0, 0.0) == []  # flash
    assert receiver.receive(b"\x01\x0a", 0, 0.0) == []
    assert receiver.ignored == 2
