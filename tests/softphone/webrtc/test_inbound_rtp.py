from __future__ import annotations

import numpy as np

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.opus import opus
from qwen3tts_phone.softphone.webrtc.media import AudioPacket, InboundRtp

LOUD = PCMU.encode(np.full(160, 4000, np.int16))


def packet(number: int, *, ssrc: int = 1, kind: int = 0, payload: bytes = LOUD) -> AudioPacket:
    return AudioPacket(ssrc, number & 0xFFFF, number * 160 & 0xFFFFFFFF, kind, payload)


def at(number: int) -> float:
    return 100.0 + number * 0.02


def test_what_comes_in_order_is_heard_at_once() -> None:
    sound = InboundRtp(PCMU)
    for number in range(65_530, 65_545):  # over the end of the sequence numbers
        (heard,) = sound.take(packet(number), at(number))
        assert (heard.concealed, len(heard.samples), heard.at) == (False, 160, at(number))
    assert (sound.received, sound.lost) == (15, 0)


def test_two_that_changed_places_are_put_right() -> None:
    sound = InboundRtp(PCMU)
    sound.take(packet(0), at(0))
    assert sound.take(packet(2), at(1)) == []
    both = sound.take(packet(1), at(1) + 0.001)
    assert [heard.timestamp for heard in both] == [160, 320]
    assert sound.lost == 0


def test_a_lost_packet_is_made_up_after_a_short_wait() -> None:
    sound = InboundRtp(PCMU)
    sound.take(packet(0), at(0))
    sound.take(packet(1), at(1))
    assert sound.take(packet(3), at(3)) == []
    deadline = sound.next_deadline()
    assert deadline is not None
    assert deadline - at(3) < 0.2
    made_up, heard = sound.due(deadline)
    assert (made_up.concealed, heard.concealed) == (True, False)
    assert (sound.lost, sound.concealed) == (1, 1)
    assert sound.next_deadline() is None
    # The delay does not stay: what follows is heard immediately again.
    assert len(sound.take(packet(4), at(4))) == 1


def test_another_stream_takes_over_and_the_losses_are_added() -> None:
    sound = InboundRtp(PCMU)
    for number in (0, 1, 3):
        sound.take(packet(number), at(number))
    assert len(sound.take(packet(9000, ssrc=2), at(4))) == 2  # what was held back, and its first
    assert (sound.ssrc, sound.streams, sound.lost) == (2, 2, 1)
    told = sound.report()
    assert told.cumulative_lost == 0


def test_what_is_no_sound_of_the_call_is_counted_and_not_heard() -> None:
    sound = InboundRtp(PCMU)
    assert sound.take(packet(0, kind=111), at(0)) == []
    assert (sound.unknown, sound.received, sound.ssrc) == (1, 0, None)
    assert sound.take(packet(1, payload=b""), at(1)) == []


def test_a_packet_that_is_no_opus_is_made_up() -> None:
    payload = opus(111)
    sound = InboundRtp(payload)
    encoder = payload.encoder(20)
    for number in range(5):
        frame = encoder.encode(np.zeros(480, np.int16))
        sound.take(AudioPacket(1, number, number * 960, 111, frame), at(number))
    (heard,) = sound.take(AudioPacket(1, 5, 5 * 960, 111, b"\xff\xff\xff"), at(5))
    assert heard.concealed
    assert sound.undecodable == 1
