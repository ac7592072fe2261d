"""The incoming half on any datagrams: judged, counted, never an exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.ring import InboundReader
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.receiver import Receiver
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.types import LegSpec, MediaEvent, MediaStarted, RemoteMedia

PEER = ("192.0.2.1", 4000)
STRANGER = ("203.0.113.9", 6000)
REMOTE = RemoteMedia(*PEER, telephone_event_pt=101)

likely = st.builds(
    RtpPacket,
    payload_type=st.sampled_from([0, 0, 0, 8, 13, 101]),
    sequence=st.integers(0, 40) | st.integers(0, 65535),
    timestamp=st.integers(0, 40).map(lambda slot: slot * 160) | st.integers(0, 2**32 - 1),
    ssrc=st.sampled_from([1, 1, 1, 2]),
    payload=st.binary(max_size=8) | st.just(b"\x55" * 160),
    marker=st.booleans(),
    csrcs=st.just(()),
    extension=st.none(),
).map(rtp.build)
datagrams = st.tuples(
    likely | st.binary(max_size=60),
    st.sampled_from([PEER, PEER, PEER, STRANGER]),
    st.sampled_from([0.0, 0.02, 0.02, 0.3, 2.0]),
)


@given(st.lists(datagrams, max_size=80))
@settings(deadline=None)
def test_any_datagrams_are_judged_and_frames_come_out_in_order(
    arrivals: list[tuple[bytes, tuple[str, int], float]],
) -> None:
    memory = CallMemory.create(128, 4096, 128, 65536)
    events: list[MediaEvent] = []
    receiver = Receiver(memory, LegSpec(), REMOTE, events.append)
    reader = InboundReader(memory)
    now = 0.0
    judged = 0
    for data, address, step in arrivals:
        now += step
        receiver.due(now)
        before = (
            receiver.received
            + receiver.malformed
            + receiver.unknown_payload
            + receiver.lock.rejected
        )
        receiver.datagram(data, address, now)
        after = (
            receiver.received
            + receiver.malformed
            + receiver.unknown_payload
            + receiver.lock.rejected
        )
        assert after - before in (0, 1)  # 0: a candidate's first packet
        judged += after - before
    receiver.due(now + 10.0)
    frames = reader.read()
    assert len(frames) == receiver.handed
    assert receiver.lost >= 0
    assert sum(isinstance(event, MediaStarted) for event in events) <= len(arrivals)
    assert not receiver.jitter.pending
    assert not receiver.keys.pressed
    memory.close()


def test_a_sender_that_restarts_after_its_first_packet_is_heard() -> None:
    memory = CallMemory.create(128, 4096, 128, 65536)
    receiver = Receiver(memory, LegSpec(), REMOTE, lambda _: None)
    for index, sequence in enumerate([50_000, 100, 101, 102]):  # two in a row are believed
        packet = RtpPacket(0, sequence, 160 * index, 1, b"\x55" * 160)
        receiver.datagram(rtp.build(packet), PEER, 0.02 * index)
    assert [frame.sequence for frame in InboundReader(memory).read()] == [50_000, 101, 102]
    memory.close()
