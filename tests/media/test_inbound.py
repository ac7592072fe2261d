"""What a leg makes of what comes: frames, keys, strangers, nonsense."""

from __future__ import annotations

import asyncio
import random

import pytest

from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.media import dtmf, rtcp
from qwen3tts_phone.media.control import MediaRefused
from qwen3tts_phone.media.dtmf import EventPacket
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.stats import LegStats
from qwen3tts_phone.media.types import (
    Dtmf,
    DtmfStarted,
    LegSpec,
    MediaStarted,
    MediaTimeout,
    RemoteBye,
    SourceRejected,
)
from tests.media.peer import PATIENCE_S, Peer, event_of, numbers, speech, until

pytestmark = pytest.mark.network


async def frames(leg: MediaLeg, count: int) -> list[InboundFrame]:
    """The next frames that come in."""
    got: list[InboundFrame] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            await leg.wait_inbound()
            got += leg.read_inbound()
    return got


async def settled(leg: MediaLeg, datagrams: int) -> LegStats:
    """The figures once so many datagrams have been judged, one way or the other."""
    return await until(
        leg,
        lambda stats: (
            stats.received + stats.malformed + stats.strangers + stats.unknown_payload >= datagrams
        ),
    )


async def test_what_the_far_end_says_comes_in_order(leg: MediaLeg, peer: Peer) -> None:
    for number in range(20):
        peer.say(bytes([number]) * 160)
    got = await frames(leg, 20)
    assert [frame.payload for frame in got] == [bytes([number]) * 160 for number in range(20)]
    assert [frame.timestamp - got[0].timestamp for frame in got] == [n * 160 for n in range(20)]
    assert not any(frame.concealed for frame in got)
    started = await event_of(leg, MediaStarted)
    assert started.source == ("127.0.0.1", peer.port)
    assert started.ssrc == peer.ssrc


async def test_a_lost_packet_is_handed_on_as_a_hole_and_counted(leg: MediaLeg, peer: Peer) -> None:
    peer.say(b"\x01" * 160)
    peer.sequence += 1
    peer.timestamp += 160
    for _ in range(3):
        peer.say(b"\x02" * 160)
    got = await frames(leg, 5)
    assert [(frame.payload[:1], frame.concealed) for frame in got] == [
        (b"\x01", False),
        (b"", True),
        (b"\x02", False),
        (b"\x02", False),
        (b"\x02", False),
    ]
    assert [frame.timestamp - got[0].timestamp for frame in got] == [n * 160 for n in range(5)]
    assert {frame.payload_type for frame in got} == {0}
    stats = await leg.measure()
    assert (stats.lost, stats.concealed, stats.loss_bursts, stats.burst_lost) == (1, 1, 1, 1)
    assert stats.fraction_lost == 1 / 5


async def test_strangers_are_dropped_counted_and_told(leg: MediaLeg, peer: Peer) -> None:
    stranger = Peer()
    stranger.dial(leg)
    peer.say(b"\x01" * 160)
    await frames(leg, 1)
    for _ in range(10):
        stranger.say(b"\x66" * 160)
    peer.say(b"\x02" * 160)
    assert (await frames(leg, 1))[0].payload == b"\x02" * 160
    stats = await settled(leg, 12)
    assert (stats.strangers, stats.received) == (10, 2)
    rejected = await event_of(leg, SourceRejected)
    assert rejected.source == ("127.0.0.1", stranger.port)
    # What we send still goes to the peer.
    await peer.hear_many(3)
    stranger.hang_up()


async def test_media_is_sent_to_where_it_comes_from(process: MediaProcess, peer: Peer) -> None:
    behind_nat = Peer()
    leg = await process.open()
    behind_nat.dial(leg)
    await leg.start(peer.media())
    await peer.hear()
    for _ in range(3):
        behind_nat.say()
    await behind_nat.hear_many(3)
    behind_nat.hang_up()


async def test_a_far_end_behind_a_nat_is_still_found_after_a_renegotiation(
    process: MediaProcess, peer: Peer
) -> None:
    behind_nat = Peer()
    leg = await process.open()
    behind_nat.dial(leg)
    await leg.start(peer.media())
    for _ in range(3):
        behind_nat.say()
    await behind_nat.hear()
    await leg.update(peer.media(send=False))
    await leg.update(peer.media())
    await behind_nat.ticks(2)
    elsewhere = Peer()  # announced now, but what it sends comes from where it came before
    await leg.update(elsewhere.media())
    await elsewhere.hear()
    behind_nat.say()
    await behind_nat.ticks(2)
    for each in (behind_nat, elsewhere):
        each.hang_up()


async def test_nothing_is_sent_while_there_is_nowhere_to_send(
    process: MediaProcess, peer: Peer
) -> None:
    leg = await process.open()
    peer.dial(leg)
    await leg.start(peer.media().__class__("0.0.0.0", 0))
    for _ in range(3):
        peer.say()
    assert not (await peer.hear()).marker  # the very first packet of an unbroken stream


async def test_nonsense_is_counted_and_ignored(leg: MediaLeg, peer: Peer) -> None:
    nonsense = [
        b"",
        b"\x80",
        bytes(11),
        b"\x00" * 172,
        b"\x40" + bytes(171),
        b"\xc0" + bytes(171),
        b"\x8f\x00" + bytes(20),
        b"\x90" + bytes(11) + b"\xff\xff\xff\xff",
        b"\xa0" + bytes(11) + b"\xff" * 9,
        bytes([0x80, 200, 0, 99]) + bytes(8),
    ]
    for data in nonsense:
        peer.raw(data)
    for data in (b"", b"\x81", b"\x81\xc8\x00\x06" + bytes(20), b"\x9f\xc9\x00\x01" + bytes(4)):
        peer.raw_report(data)
    peer.say(b"\x05" * 160, payload_type=35)
    peer.say(b"\x05" * 160)
    assert [frame.payload[0] for frame in await frames(leg, 1)] == [5]
    stats = await settled(leg, len(nonsense) + 6)
    assert stats.malformed == len(nonsense) + 4
    assert (stats.unknown_payload, stats.received) == (1, 1)


async def test_random_bytes_disturb_neither_this_call_nor_another(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    noise = random.Random(7)
    other_peer = Peer()
    other = await process.open(LegSpec(pinned_s=0.0))
    await other.start(other_peer.media())
    other.begin(1)
    other.write(speech(30))
    count = 600
    for number in range(count):
        data = bytearray(noise.randbytes(noise.randrange(1, 60)))
        if number % 2:
            data[0] = 0x80 | data[0] & 0x3F
        peer.raw(bytes(data))
        peer.raw_report(bytes(data))
        if number % 50 == 49:
            await other_peer.hear()
    heard = await peer.hear_many(3)
    assert len({packet.ssrc for packet in heard}) == 1
    assert (await other.measure()).skipped_slots <= 5
    assert process.cause is None
    assert len(process.legs) == 2
    other_peer.hang_up()


async def test_keys_pressed_at_the_far_end_are_told_once_each(leg: MediaLeg, peer: Peer) -> None:
    peer.say()
    for digit in "1#":
        start = peer.timestamp
        for slot in range(5):
            packet = EventPacket(dtmf.KEYS.index(digit), slot >= 2, 10, 160 * min(slot + 1, 3))
            peer.say(dtmf.build(packet), payload_type=101, timestamp=start)
    peer.say()
    assert (await event_of(leg, DtmfStarted)).digit == "1"
    key = await event_of(leg, Dtmf)
    assert (key.digit, key.duration_ms) == ("1", 60)
    assert (await event_of(leg, Dtmf)).digit == "#"
    assert [frame.concealed for frame in await frames(leg, 2)] == [False, False]
    assert (await leg.measure()).dtmf_in == 2


async def test_keys_are_sent_as_events_and_speech_goes_on_after_them(
    leg: MediaLeg, peer: Peer
) -> None:
    leg.begin(1)
    leg.write(speech(200))
    await peer.hear_speech()
    pressing = asyncio.create_task(leg.send_dtmf("4*", duration_ms=100, gap_ms=80))
    packets: list[RtpPacket] = []
    while not packets or packets[-1].payload_type != 101:
        packets.append(await peer.hear())
    before = packets[-2] if len(packets) > 1 else None
    events = [packets[-1]]
    while (packet := await peer.hear()).payload_type == 101:
        events.append(packet)
    async with asyncio.timeout(PATIENCE_S):
        await pressing
    digits = [dtmf.parse(each.payload) for each in events]
    assert [dtmf.KEYS[each.event] for each, sent in zip(digits, events, strict=True) if sent.marker]
    assert len({each.timestamp for each in events}) == 2
    assert sum(each.end for each in digits) == 6
    # Speech waited: the next frame follows the last one, at the time it is now, with the marker.
    assert packet.marker
    slots = (packet.timestamp - events[0].timestamp) % 2**32 // 160
    assert slots == 2 * (5 + 4)
    if before is not None:
        assert numbers([before, packet]) == [before.payload[1], before.payload[1] + 1]
    sequences = [each.sequence for each in [*events, packet]]
    assert sequences == [(sequences[0] + n) % 65536 for n in range(len(sequences))]


async def test_keys_that_cannot_be_sent_are_refused(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    with pytest.raises(MediaRefused, match="something else than the keys"):
        await leg.send_dtmf("1x")
    await leg.update(peer.media(telephone_event_pt=None))
    with pytest.raises(MediaRefused, match="did not offer"):
        await leg.send_dtmf("1")


async def test_keys_wait_for_the_end_of_a_hold_and_a_closed_leg_refuses_them(
    leg: MediaLeg, peer: Peer
) -> None:
    await leg.update(peer.media(send=False))
    pressing = asyncio.create_task(leg.send_dtmf("1"))
    await leg.measure()
    assert not pressing.done()
    with pytest.raises(MediaRefused, match="already"):
        await leg.send_dtmf("2")
    await leg.close()
    with pytest.raises(MediaRefused, match="closed before all keys"):
        await pressing


async def test_a_leg_that_does_not_receive_drops_what_comes(leg: MediaLeg, peer: Peer) -> None:
    await leg.update(peer.media(receive=False))
    for _ in range(5):
        peer.say()
    assert (await settled(leg, 5)).received == 5
    assert leg.read_inbound() == []
    await leg.update(peer.media())
    peer.say()
    assert len(await frames(leg, 1)) == 1


async def test_a_far_end_that_says_nothing_is_told_once(process: MediaProcess, peer: Peer) -> None:
    leg = await process.open(LegSpec(timeout_s=0.2))
    peer.dial(leg)
    await leg.start(peer.media())
    timeout = await event_of(leg, MediaTimeout)
    assert 0.2 <= timeout.silent_s < PATIENCE_S


async def test_a_goodbye_of_the_far_end_is_told(leg: MediaLeg, peer: Peer) -> None:
    peer.say()
    await frames(leg, 1)
    peer.raw_report(rtcp.build([rtcp.ReceiverReport(peer.ssrc), rtcp.Bye((peer.ssrc,))]))
    await event_of(leg, RemoteBye)


async def test_frames_that_nobody_reads_are_counted_not_kept_for_ever(
    leg: MediaLeg, peer: Peer
) -> None:
    for number in range(400):
        peer.say(bytes([number % 256]) * 160)
        if number % 40 == 39:
            await settled(leg, number + 1)
    stats = await settled(leg, 400)
    assert stats.inbound_overrun > 0
    assert len(leg.read_inbound()) + stats.inbound_overrun == 400
    peer.say(b"\x09" * 160)
    assert (await frames(leg, 1))[0].payload == b"\x09" * 160


async def test_what_came_before_the_start_is_not_played(
    process: MediaProcess, peer: Peer, metronome: Peer
) -> None:
    leg = await process.open()
    peer.dial(leg)
    for _ in range(20):
        peer.say(b"\x01" * 160)
    await metronome.ticks(3)
    await leg.start(peer.media())
    peer.say(b"\x02" * 160)
    assert [frame.payload[0] for frame in await frames(leg, 1)] == [2]
