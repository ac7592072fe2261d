"""DTMF as RTP telephone events (RFC 4733): sent slot by slot, received each once."""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from qwen3tts_phone.limits import TokenBucket
from qwen3tts_phone.media.rtp import TIMESTAMP_MODULO

KEYS = "0123456789*#ABCD"
"""Keys by event code, 0 to 15 (RFC 4733 section 3.2)."""
EVENT = struct.Struct("!BBH")
"""Event code, end bit with volume, duration in timestamp units (section 2.3)."""
END = 0x80
VOLUME = 10
"""Level of a sent key, -10 dBm0 (section 2.3.4)."""
DURATION_MOST = 0xFFFF
"""Longest segment of a key, timestamp units."""
END_PACKETS = 3
"""Packets of the end (section 2.5.1.4)."""
LOST_END_S = 0.12
"""A key whose packets stop without an end is released after this time."""
KEYS_PER_S = 20.0
"""Keys of one call accepted in a second: a person is slower, and the shortest keys of gateways, 40
ms and a pause as long, are 12."""
KEYS_BURST = 40
"""Keys accepted in one moment: a stalled network delivers them together."""
REMEMBERED = 16
"""Keys remembered, so that belated packets do not count again."""


class DtmfError(ValueError):
    """Keys that cannot be sent, or a payload that is no event."""


class EventPacket(NamedTuple):
    """Telephone-event payload."""

    event: int
    end: bool
    volume: int
    """Minus dBm0, 0 to 63."""
    duration: int
    """Timestamp units since the event's start."""


def parse(payload: bytes) -> EventPacket:
    """Parse a payload. Raises DtmfError (section 2.3)."""
    if len(payload) < EVENT.size:
        raise DtmfError(f"{len(payload)} bytes are too few for the 4 of a telephone-event")
    event, flags, duration = EVENT.unpack_from(payload)
    return EventPacket(event, flags >= END, flags & 0x3F, duration)


def build(packet: EventPacket) -> bytes:
    flags = (END if packet.end else 0) | packet.volume & 0x3F
    return EVENT.pack(packet.event, flags, min(packet.duration, 0xFFFF))


class OutgoingEvent(NamedTuple):
    """Packet to send in this slot."""

    payload: bytes
    timestamp: int
    """Start of the event: the same for all its packets (section 2.2.2)."""
    marker: bool
    """On the event's first packet (section 2.2.1)."""


def check(keys: str, duration_ms: int, gap_ms: int) -> None:
    if not keys or any(key not in KEYS for key in keys.upper()):
        raise DtmfError(f"{keys[:32]!r} holds something else than the keys {KEYS}")
    if not 40 <= duration_ms <= 6000 or not 40 <= gap_ms <= 6000:
        raise DtmfError(
            f"duration_ms={duration_ms}, gap_ms={gap_ms}: 40 to 6000 each; phones want 100 and 50"
        )


class DtmfSender:
    """Sends keys one after the other, slot by slot.

    Each end is sent in the three slots after the key.

    ``ticks`` is a slot's duration in events, ``stream_ticks`` its timestamp advance if the stream's
    clock is another.
    """

    def __init__(
        self,
        keys: str,
        *,
        ticks: int,
        stream_ticks: int | None = None,
        ptime_ms: int = 20,
        duration_ms: int = 160,
        gap_ms: int = 80,
    ) -> None:
        check(keys, duration_ms, gap_ms)
        self._keys = deque(KEYS.index(key) for key in keys.upper())
        self._ticks = ticks
        self._stream_ticks = ticks if stream_ticks is None else stream_ticks
        self._on = max(1, -(-duration_ms // ptime_ms))
        self._slots = self._on + max(END_PACKETS, -(-gap_ms // ptime_ms))
        self._slot = 0
        self._start = 0

    @property
    def done(self) -> bool:
        return not self._keys

    def slot(self, timestamp: int) -> OutgoingEvent | None:
        """Return the packet of the slot with this timestamp; None = a gap."""
        if self._slot == 0:
            self._start = timestamp
        index = self._slot
        event = self._keys[0]
        self._slot += 1
        if self._slot == self._slots:
            self._slot = 0
            self._keys.popleft()
        if index < self._on:
            return self._event(event, index * self._ticks, (index + 1) * self._ticks, end=False)
        if index < self._on + END_PACKETS:
            length = self._on * self._ticks
            return self._event(event, length - 1, length, end=True)
        return None

    def _event(self, event: int, before: int, length: int, *, end: bool) -> OutgoingEvent:
        # Section 2.5.1.3: a duration has 16 bits. What is longer goes on in another segment, once
        # the full length of the one before was told; ``before`` is what was told so far.
        passed = before // DURATION_MOST * DURATION_MOST
        duration = min(length - passed, DURATION_MOST)
        start = self._start + passed * self._stream_ticks // self._ticks
        return OutgoingEvent(
            build(EventPacket(event, end, VOLUME, duration)),
            start % TIMESTAMP_MODULO,
            before == 0,
        )


class KeyDown(NamedTuple):
    """Key pressed."""

    digit: str
    at: float


class KeyUp(NamedTuple):
    """Key released, or its packets stopped."""

    digit: str
    duration: int
    """Timestamp units."""
    at: float


class _Key(NamedTuple):
    timestamp: int
    event: int
    duration: int
    began: float
    heard: float


class DtmfReceiver:
    """Receiver of one stream's events, each once, by timestamp and code, despite packet loss.

    The marker is not relied on; a key of which only the end came counts.
    """

    def __init__(self) -> None:
        self._rate: TokenBucket | None = None
        self._key: _Key | None = None
        self._ended: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self.ignored = 0
        """Events that are no keys, and payloads too short."""
        self.too_fast = 0
        """Keys beyond `KEYS_PER_S`."""

    def receive(self, payload: bytes, timestamp: int, now: float) -> list[KeyDown | KeyUp]:
        try:
            packet = parse(payload)
        except DtmfError:
            self.ignored += 1
            return []
        if packet.event >= len(KEYS):
            self.ignored += 1
            return []
        known: list[KeyDown | KeyUp] = []
        key = self._key
        if key is not None and self._same(key, packet.event, timestamp):
            # A key longer than 65535 units goes on in segments (section 2.5.1.3).
            before = (timestamp - key.timestamp) % TIMESTAMP_MODULO
            duration = max(key.duration, before + packet.duration)
            key = key._replace(duration=duration, heard=now)
        elif (timestamp, packet.event) in self._ended:
            return []
        else:
            known += self._end()
            if not self._admits(now):
                self._ended.append((timestamp, packet.event))
                return known
            key = _Key(timestamp, packet.event, packet.duration, now, now)
            known.append(KeyDown(KEYS[packet.event], now))
        self._key = key
        if packet.end:
            self._ended.append((timestamp, packet.event))
            known += self._end()
        return known

    def due(self, now: float) -> list[KeyDown | KeyUp]:
        """Return the release of a key whose end packets were all lost, after `LOST_END_S`."""
        if self._key is None or now < self._key.heard + LOST_END_S:
            return []
        return self._end()

    @property
    def pressed(self) -> bool:
        return self._key is not None

    def _admits(self, now: float) -> bool:
        if self._rate is None:
            self._rate = TokenBucket(KEYS_PER_S, KEYS_BURST, now)
        if self._rate.take(now):
            return True
        self.too_fast += 1
        return False

    def _end(self) -> list[KeyDown | KeyUp]:
        key = self._key
        if key is None:
            return []
        self._key = None
        self._ended.append((key.timestamp, key.event))
        return [KeyUp(KEYS[key.event], key.duration, key.began)]

    @staticmethod
    def _same(key: _Key, event: int, timestamp: int) -> bool:
        if event != key.event:
            return False
        if timestamp == key.timestamp:
            return True
        ahead = (timestamp - key.timestamp) % TIMESTAMP_MODULO
        return key.duration >= 0xFFFF and 0xFFFF <= ahead <= key.duration
