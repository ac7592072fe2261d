"""The rules of what goes on the wire, each with the section that says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from qwen3tts_phone.media import dtmf
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.types import RemoteMedia
from tests.media.sending import HELD, REMOTE, SILENCE, Call, frame, number_of

NOISY = replace(REMOTE, comfort_noise_pt=13)
OPUS = RemoteMedia("192.0.2.1", 4000, 111, "opus", clock_hz=48_000, silence="f8fffe")


@pytest.fixture
def call() -> Iterator[Call]:
    call = Call()
    yield call
    call.memory.close()


def steps(packets: list[RtpPacket]) -> list[int]:
    """Ticks from each packet to the next."""
    return [
        (later.timestamp - earlier.timestamp) % 2**32
        for earlier, later in itertools.pairwise(packets)
    ]


def test_the_sequence_rises_by_one_a_packet_and_the_timestamp_by_160_a_slot(call: Call) -> None:
    # RFC 3550 section 5.1.
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(10)])
    packets = call.slots(30)
    for earlier, later in itertools.pairwise(packets):
        assert later.sequence == (earlier.sequence + 1) % 2**16
    assert set(steps(packets)) == {160}


def test_sequence_and_timestamp_wrap_without_a_break(call: Call) -> None:
    call.sender.sequence = 65_533
    call.sender._timestamp = 2**32 - 3 * 160
    packets = call.slots(6)
    assert [packet.sequence for packet in packets] == [65_534, 65_535, 0, 1, 2, 3]
    assert packets[3].timestamp == 0
    assert set(steps(packets)) == {160}


def test_sequence_timestamp_and_ssrc_begin_anywhere() -> None:
    # RFC 3550 section 5.1: random, lest a known text be decrypted and two streams be mixed up.
    calls = [Call() for _ in range(6)]
    first = [call.slots(1)[0] for call in calls]
    for call in calls:
        call.memory.close()
    assert len({packet.ssrc for packet in first}) == 6
    assert len({packet.timestamp for packet in first}) == 6
    assert len({packet.sequence for packet in first}) > 3


def test_a_slot_in_which_nothing_is_sent_moves_the_timestamp_all_the_same(call: Call) -> None:
    before = call.slots(1)[0]
    call.sender.update(HELD)
    assert call.slots(7) == []
    call.sender.update(REMOTE)
    after = call.slots(1)[0]
    assert steps([before, after]) == [8 * 160]
    assert after.sequence == (before.sequence + 1) % 2**16  # sequence counts what is sent


def test_the_ssrc_is_kept_across_a_hold_another_address_and_another_codec(call: Call) -> None:
    ssrcs = {call.slots(1)[0].ssrc}
    call.sender.update(HELD)
    call.slots(3)
    for remote in (
        REMOTE,
        replace(REMOTE, host="192.0.2.9", port=5000),
        replace(REMOTE, payload_type=8, payload_name="PCMA"),
        replace(REMOTE, payload_type=9, payload_name="G722", silence="00" * 160),
    ):
        call.sender.update(remote)
        ssrcs |= {packet.ssrc for packet in call.slots(3)}
    assert len(ssrcs) == 1


def test_another_clock_never_shares_a_streams_timestamps(call: Call) -> None:
    # RFC 3550 section 5.2: another SSRC, whose three numbers begin anywhere.
    before = call.slots(3)
    call.sender.update(OPUS)
    after = call.slots(3)
    assert {packet.ssrc for packet in before}.isdisjoint({packet.ssrc for packet in after})
    assert set(steps(after)) == {960}
    assert after[0].marker
    call.sender.update(REMOTE)
    back = call.slots(3)
    assert back[0].ssrc not in {packet.ssrc for packet in before + after}
    assert set(steps(back)) == {160}


def test_without_a_break_no_packet_has_the_marker(call: Call) -> None:
    # RFC 3551 section 4.1: without silence suppression the marker is 0, speech or not.
    packets = call.slots(5)
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(5)])
    call.out.finish(1)
    packets += call.slots(10)
    assert not any(packet.marker for packet in packets)


def test_where_sending_stops_in_silence_the_next_talkspurt_is_marked_and_moved() -> None:
    call = Call(continuous=False)
    packets: list[RtpPacket] = []
    for context in (1, 2):
        call.out.begin(context, context)
        call.out.write([frame(context, n, position=n) for n in range(3)])
        call.out.finish(context)
        packets += call.slots(20)
    call.memory.close()
    assert [packet.marker for packet in packets] == 2 * [True, False, False, False]
    assert steps(packets)[3] == 17 * 160
    assert all(step > 0 and step % 160 == 0 for step in steps(packets))


def test_a_jump_always_has_the_marker_and_no_timestamp_stands_still(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(60)])
    call.slots(3)
    call.sender.skip(4)
    call.slots(3)
    call.sender.update(HELD)
    call.slots(5)
    call.sender.update(REMOTE)
    call.slots(3)
    call.sender.press("5", 100, 60)
    call.slots(20)
    audio = [packet for packet in call.wire.packets if packet.payload_type == 0]
    for step, packet in zip(steps(audio), audio[1:], strict=True):
        assert step > 0
        assert packet.marker == (step != 160)


def test_late_audio_is_never_sent_faster_than_real_time(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(40)])
    call.slots(2)
    call.sender.skip(10)  # the machine stood still for 200 ms
    packets = call.slots(5)
    assert [number_of(packet) for packet in packets] == [2, 3, 4, 5, 6]  # one a slot, none twice
    assert set(steps(packets)) == {160}


@pytest.mark.parametrize(("name", "number", "idle"), [("PCMU", 0, b"\xff"), ("PCMA", 8, b"\xd5")])
def test_silence_is_the_idle_code_of_the_law(name: str, number: int, idle: bytes) -> None:
    call = Call(replace(REMOTE, payload_name=name, payload_type=number))
    packets = call.slots(3)
    call.memory.close()
    assert {packet.payload for packet in packets} == {idle * 160}
    assert {packet.payload_type for packet in packets} == {number}


def test_silence_of_another_codec_is_the_frame_that_was_agreed() -> None:
    call = Call(OPUS)
    packets = call.slots(3)
    call.memory.close()
    assert {packet.payload for packet in packets} == {bytes.fromhex("f8fffe")}


def test_comfort_noise_is_sent_only_where_it_was_agreed(call: Call) -> None:
    call.slots(100)
    assert {packet.payload_type for packet in call.wire.packets} == {0}
    assert call.sender.noise_sent == 0


def test_keys_are_one_event_each_as_rfc_4733_wants_it(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(80)])
    call.slots(2)
    call.sender.press("1#", 160, 80)
    keyed = call.slots(24)
    events = [packet for packet in keyed if packet.payload_type == 101]
    # No audio meanwhile, and 80 ms apart.
    assert keyed == events
    starts = sorted(
        {packet.timestamp for packet in events}, key=[p.timestamp for p in events].index
    )
    assert len(starts) == 2
    assert (starts[1] - starts[0]) % 2**32 == (8 + 4) * 160
    for start, digit in zip(starts, (1, 11), strict=True):
        packets = [packet for packet in events if packet.timestamp == start]
        told = [dtmf.parse(packet.payload) for packet in packets]
        assert {each.event for each in told} == {digit}
        assert [packet.marker for packet in packets] == [True] + [False] * (len(packets) - 1)
        assert [each.duration for each in told] == [160 * n for n in range(1, 9)] + 3 * [8 * 160]
        assert [each.end for each in told] == 8 * [False] + 3 * [True]
    # The audio's time has gone on, and its first packet shows the break.
    after = call.slots(1)[0]
    assert after.marker
    assert number_of(after) == 2
    assert (after.timestamp - starts[0]) % 2**32 == 2 * 12 * 160


def test_keys_last_at_least_100_ms_and_are_50_to_100_ms_apart_unless_asked_otherwise() -> None:
    sender = dtmf.DtmfSender("12", ticks=160)
    slots = [sender.slot(160 * n) for n in range(60) if not sender.done]
    on = [s for s in slots if s is not None and not dtmf.parse(s.payload).end]
    per_key = len(on) // 2
    assert per_key * 20 >= 100
    assert 50 <= (len(slots) // 2 - per_key) * 20 <= 100


@pytest.mark.parametrize("ptime_ms", [10, 20, 30, 40, 60])
def test_every_packet_duration_has_its_own_ticks_and_bytes(ptime_ms: int) -> None:
    call = Call(replace(REMOTE, ptime_ms=ptime_ms))
    packets = call.slots(4)
    call.memory.close()
    assert set(steps(packets)) == {8 * ptime_ms}
    assert {len(packet.payload) for packet in packets} == {8 * ptime_ms}


def test_a_pause_is_told_by_comfort_noise_once_and_then_now_and_again() -> None:
    # RFC 3389 section 4: a payload of the level alone; the marker opens the next talkspurt.
    call = Call(replace(NOISY, comfort_noise_level=63))
    opening = call.slots(3)
    assert [(packet.payload_type, packet.payload) for packet in opening] == [(13, b"\x3f")]
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(5)])
    call.out.finish(1)
    packets = call.slots(110)
    call.memory.close()
    speech, pause = packets[:6], packets[6:]  # the sixth is the fade of the fifth
    assert [packet.payload_type for packet in speech] == 6 * [0]
    assert [packet.marker for packet in speech] == [True] + 5 * [False]
    assert {packet.payload_type for packet in pause} == {13}
    assert not any(packet.marker for packet in pause)
    assert steps([speech[-1], *pause]) == [160, 50 * 160, 50 * 160]
    assert call.sender.noise_sent == 4
    sequences = [packet.sequence for packet in opening + packets]
    assert sequences == [(sequences[0] + n) % 2**16 for n in range(len(sequences))]


def test_comfort_noise_ends_with_the_agreement() -> None:
    call = Call(NOISY)
    call.slots(10)
    call.sender.update(REMOTE)
    packets = call.slots(3)
    call.sender.update(NOISY)
    again = call.slots(3)
    call.memory.close()
    assert [packet.payload for packet in packets] == 3 * [SILENCE]
    assert [packet.marker for packet in packets] == [True, False, False]
    assert [packet.payload_type for packet in again] == [13]
