"""The codec changes in mid-call: nothing is heard as noise, nothing is lost that need not be."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from qwen3tts_pacer import Frame
from qwen3tts_phone.media.control import MediaRefused
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.outbound import table_between
from qwen3tts_phone.media.types import RemoteMedia
from tests.media.peer import PATIENCE_S, Peer, speech
from tests.media.sending import REMOTE, Call, frame, kinds

ULAW, ALAW, OPUS, WIDE = 1, 2, 3, 4
PCMA = replace(REMOTE, payload_type=8, payload_name="PCMA")
OPUS_MEDIA = RemoteMedia(
    "192.0.2.1", 4000, 111, "opus", clock_hz=48_000, silence="f8fffe", ptime_ms=60
)
TO_ALAW = table_between(ULAW, ALAW)
assert TO_ALAW is not None


@pytest.fixture
def call() -> Iterator[Call]:
    call = Call()
    yield call
    call.memory.close()


def spoken(count: int, first: int = 0) -> list[Frame]:
    return [frame(1, n, position=n) for n in range(first, first + count)]


def test_what_waits_is_translated_between_the_two_laws(call: Call) -> None:
    frames = spoken(100)
    call.out.begin(1, 0)
    assert call.out.write(frames[:60], ULAW) == 60
    call.slots(5)  # some wait in the core now, others in the ring
    assert call.out.write(frames[60:], ULAW) == 40
    call.sender.update(PCMA, ALAW)
    packets = call.slots(95)
    assert {packet.payload_type for packet in packets} == {8}
    assert [packet.payload for packet in packets] == [
        each.payload.translate(TO_ALAW) for each in frames[5:]
    ]
    assert not any(packet.marker for packet in packets)
    # The fade of the last one, too.
    tail = frames[-1].tail
    assert tail is not None
    assert call.slots(1)[0].payload == tail.translate(TO_ALAW)


def test_frames_written_in_the_new_law_are_sent_as_they_are(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write(spoken(5), ULAW)
    call.sender.update(PCMA, ALAW)
    call.out.write(spoken(5, 5), ALAW)
    packets = call.slots(10)
    expected = [each.payload.translate(TO_ALAW) for each in spoken(5)]
    expected += [each.payload for each in spoken(5, 5)]
    assert [packet.payload for packet in packets] == expected


def test_frames_of_a_codec_that_is_no_longer_used_go_out_as_silence_never_as_noise(
    call: Call,
) -> None:
    call.out.begin(1, 0)
    call.out.write(spoken(20), ULAW)
    call.slots(5)
    call.sender.update(OPUS_MEDIA, OPUS)
    call.out.write(spoken(5, 20), ULAW)  # a writer that does not know yet
    call.out.write([Frame(b"opus", None, None, 1, 25 * 480, 26 * 480)], OPUS)
    payloads = [packet.payload for packet in call.slots(40)]
    assert set(payloads) == {bytes.fromhex("f8fffe"), b"opus"}
    assert payloads.count(b"opus") == 1


def test_an_interruption_before_the_change_takes_effect_before_the_new_codec(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write(spoken(20), ULAW)
    call.slots(5)
    call.out.interrupt()
    call.sender.update(OPUS_MEDIA, OPUS)
    assert {packet.payload for packet in call.slots(5)} == {bytes.fromhex("f8fffe")}
    assert [epoch for epoch, _ in call.sender.flushed] == [1]


def test_another_packet_duration_goes_on_from_the_slot_that_comes_next(call: Call) -> None:
    before = call.slots(4)
    at = call.sender.timestamp_at(0.0)
    longer = replace(REMOTE, ptime_ms=40)
    call.sender.update(longer, WIDE)
    after = call.slots(3)
    assert len(after[0].payload) == 320
    assert (after[0].timestamp - before[-1].timestamp) % 2**32 == 160
    assert (after[1].timestamp - after[0].timestamp) % 2**32 == 320
    assert after[0].ssrc == before[0].ssrc
    assert not any(packet.marker for packet in after)
    # The clock of the sender reports is the same one.
    assert abs(call.sender.timestamp_at(0.0) - at) % 2**32 <= 1
    call.out.begin(1, 0)
    call.out.write([Frame(b"\x05" * 320, None, None, 1, 0, 960)], WIDE)
    call.out.finish(1)
    assert [packet.payload[0] for packet in call.slots(3)] == [5, 255, 255]


@pytest.mark.network
async def test_a_call_goes_from_one_law_to_the_other_in_mid_sentence(
    leg: MediaLeg, peer: Peer
) -> None:
    frames = speech(30)
    leg.begin(1)
    leg.write(frames[:20])
    await peer.hear_speech()
    assert await leg.update(peer.media(payload_type=8, payload_name="PCMA")) is None
    leg.write([each._replace(payload=each.payload.translate(TO_ALAW)) for each in frames[20:]])
    leg.finish(1)
    heard = [await peer.hear()]
    async with asyncio.timeout(PATIENCE_S):
        while heard[-1].payload != frames[-1].payload.translate(TO_ALAW):
            heard.append(await peer.hear())
    laws = {0: lambda payload: payload.translate(TO_ALAW), 8: bytes}
    said = [laws[packet.payload_type](packet.payload) for packet in heard]
    expected = [each.payload.translate(TO_ALAW) for each in frames]
    assert said == expected[-len(said) :]
    assert len({packet.ssrc for packet in heard}) == 1


@pytest.mark.network
async def test_a_codec_that_cannot_be_translated_interrupts_and_says_what_was_not_sent(
    leg: MediaLeg, peer: Peer
) -> None:
    leg.begin(1)
    leg.write(speech(50))
    await peer.hear_speech()
    opus = peer.media(
        payload_type=111, payload_name="opus", clock_hz=48_000, silence="f8fffe", ptime_ms=60
    )
    epoch = await leg.update(opus)
    assert epoch is not None
    assert leg.remote == opus  # the packet duration changed with it
    (fact,) = (await leg.dropped(epoch)).contexts
    assert (fact.context, fact.samples) == (1, (50 * 480) - fact.played)
    leg.begin(2)
    leg.write([Frame(bytes([n]) * 30, None, None, 2, n * 1440, (n + 1) * 1440) for n in range(5)])
    leg.finish(2)
    heard = [await peer.hear()]
    while heard[-1].payload != b"\x04" * 30:
        heard.append(await peer.hear())
    wide = [packet for packet in heard if packet.payload_type == 111]
    assert {packet.payload for packet in wide} <= {
        b"\xf8\xff\xfe",
        *(bytes([n]) * 30 for n in range(5)),
    }
    assert [packet.payload[0] for packet in wide if len(packet.payload) == 30] == [0, 1, 2, 3, 4]
    gaps = [(b.timestamp - a.timestamp) % 2**32 for a, b in itertools.pairwise(wide)]
    assert all(gap and gap % 2880 == 0 for gap in gaps)


@pytest.mark.network
async def test_the_packet_duration_alone_stays_for_frames_of_it_are_queued(
    leg: MediaLeg, peer: Peer
) -> None:
    assert await leg.update(peer.media(ptime_ms=30)) is None
    assert leg.remote is not None
    assert leg.remote.ptime_ms == 20
    await peer.ticks(1)
    assert len((await peer.hear()).payload) == 160


@pytest.mark.network
async def test_with_nothing_to_say_nothing_is_interrupted(leg: MediaLeg, peer: Peer) -> None:
    wide = peer.media(payload_type=9, payload_name="G722", silence="ff" * 160)
    assert await leg.update(wide) is None
    while (packet := await peer.hear()).payload_type != 9:
        pass
    assert kinds([packet]) == [255]
    with pytest.raises(MediaRefused, match="family"):
        await leg.update(replace(wide, host="2001:db8::1"))
    assert leg.remote == wide
