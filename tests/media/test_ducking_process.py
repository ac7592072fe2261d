"""Ducking through a real media process: what the far end hears, and what the parent knows."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer import Frame
from qwen3tts_pacer.gain import scale_of
from qwen3tts_phone.audio.frames import OutboundAudio, SentAudio
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import ContextPlayed
from tests.media.peer import PATIENCE_S, Peer, event_of

pytestmark = pytest.mark.network
COUNT = 150
scale = scale_of("PCMU") or (lambda payload, before, after: b"")


def voice(context: int = 1) -> list[Frame]:
    time = np.arange(160 * COUNT) / 8000
    sound = np.round(9000 * np.sin(2 * np.pi * 313.7 * time)).astype(np.int16)
    return [
        Frame(PCMU.encode(each), None, None, context, 480 * n, 480 * (n + 1))
        for n, each in enumerate(sound.reshape(COUNT, 160))
    ]


def level(payload: bytes) -> float:
    return float(10 * np.log10(np.mean(PCMU.decode(payload).astype(float) ** 2)))


async def test_the_far_end_hears_12_db_less_from_the_next_frame_on(
    leg: MediaLeg, peer: Peer
) -> None:
    """All 150 frames are in the ring when the command comes."""
    spoken = voice()
    leg.begin(1)
    assert leg.write(spoken) == COUNT
    leg.finish(1)
    await peer.hear_speech()
    await peer.hear_many(20)
    gone = leg.sent(1)
    leg.duck(120)
    at_command = leg.sent(1)
    assert gone is not None
    assert at_command is not None
    packets = [await peer.hear() for _ in range(60)]
    leg.duck(0)
    packets += [await peer.hear() for _ in range(COUNT - 81)]
    await event_of(leg, ContextPlayed)
    levels = [leg.attenuation(1, number) for number in range(COUNT)]
    first, last = levels.index((0, 120)), levels.index((120, 0))
    # One frame may have been on its way while the word was written.
    assert gone.frames <= first <= at_command.frames + 1
    assert levels[first + 1 : last] == [(120, 120)] * (last - first - 1)
    assert levels[last + 1 :] == [(0, 0)] * (COUNT - last - 1)
    heard = [packet.payload for packet in packets]
    assert heard == [
        scale(frame.payload, *each) for frame, each in zip(spoken[21:], levels[21:], strict=True)
    ]
    full = level(spoken[0].payload)
    assert full - level(heard[first + 1 - 21]) == pytest.approx(12, abs=1)
    whole = leg.sent(1)
    assert whole is not None
    assert (whole.end, whole.starvations) == (480 * COUNT, 0)


async def test_taps_carry_what_the_far_end_heard(leg: MediaLeg, peer: Peer) -> None:
    sink = RtpSink(leg, 20)
    outbound = OutboundAudio()
    outbound.begin(sink, PCMU)
    reader = SentAudio(outbound)
    sink.begin(1, "")
    sink.write(voice())
    sink.finish(1)
    heard = [(await peer.hear_speech()).payload]
    for command in (12, 0, 6, 40, 0, 12):
        assert sink.duck(command) == "duck"
        heard += [(await peer.hear()).payload for _ in range(4)]
    sink.interrupt()
    async with asyncio.timeout(PATIENCE_S):
        await sink.interrupted()
    sent = reader.take()
    known = np.concatenate([PCMU.decode(each) for each in heard])
    tapped = np.concatenate([each.samples for each in sent])
    assert np.array_equal(tapped[: len(known)], known)
    assert 0 <= len(tapped) - len(known) <= 480

    sink.begin(2, "")
    spoken = voice(2)
    sink.write(spoken)
    assert (await peer.hear_speech()).payload != b""
    following = [(await peer.hear()).payload for _ in range(5)]
    assert set(following) <= {frame.payload for frame in spoken}


async def test_a_leg_that_is_closed_keeps_its_levels(leg: MediaLeg, peer: Peer) -> None:
    leg.begin(1)
    leg.write(voice())
    await peer.hear_speech()
    leg.duck(120)
    await peer.hear_many(5)
    await leg.close()
    sent = leg.sent(1)
    assert sent is not None
    assert leg.attenuation(1, sent.frames - 1) == (120, 120)
