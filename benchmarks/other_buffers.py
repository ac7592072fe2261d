"""Other telephones' jitter buffers, for the benchmark of impairment: a fixed one, and aiortc's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs import Payload
from qwen3tts_phone.media import rtp

Samples = NDArray[np.int16]

FIXED_S = 0.06


def fixed_buffer(packets: list[tuple[float, bytes]], payload: Payload) -> Samples:
    """A telephone that plays each packet 60 ms after it comes on a line at rest, or silence."""
    decoder, count = payload.decoder(), payload.frame_samples(20)
    parsed = [(at, rtp.parse(data)) for at, data in packets]
    first = parsed[0][1].timestamp
    numbers = [(packet.timestamp - first) // payload.frame_ticks(20) for _, packet in parsed]
    # What is reckoned from a first packet that is late itself is luck.
    rest = min(at - number * 0.02 for (at, _), number in zip(parsed, numbers, strict=True))
    in_time = {}
    for (at, packet), number in zip(parsed, numbers, strict=True):
        if at <= rest + number * 0.02 + FIXED_S:
            in_time[number] = bytes(packet.payload)
    silence = np.zeros(count, np.int16)
    return np.concatenate(
        [
            decoder.decode(in_time[number]) if number in in_time else silence
            for number in range(min(in_time), max(in_time) + 1)
        ]
    )


def aiortc_buffer(packets: list[tuple[float, bytes]], payload: Payload) -> Samples:
    """Play through the jitter buffer of aiortc, as its receiver makes it.

    It has 16 packets, 4 before the first; a player takes a frame each 20 ms and plays silence
    when there is none.
    """
    from aiortc.jitterbuffer import JitterBuffer
    from aiortc.rtp import RtpPacket

    buffer, decoder = JitterBuffer(capacity=16, prefetch=4), payload.decoder()
    ready: list[tuple[float, Samples]] = []
    for at, data in packets:
        packet = RtpPacket.parse(data)
        vars(packet)["_data"] = packet.payload  # its receiver does so
        _, frame = buffer.add(packet)
        if frame is not None:
            ready.append((at, decoder.decode(frame.data)))
    silence = np.zeros(payload.frame_samples(20), np.int16)
    played: list[Samples] = []
    clock = ready[0][0]
    while ready:
        played.append(ready.pop(0)[1] if ready[0][0] <= clock else silence)
        clock += 0.02
    return np.concatenate(played)
