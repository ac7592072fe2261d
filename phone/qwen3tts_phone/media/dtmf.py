"""Keys of a telephone as RTP events (RFC 4733): sent slot by slot, received each once."""

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
"""The longest that one segment of a key may last, timestamp units."""
END_PACKETS = 3
"""The end is told three times (section 2.5.1.4)."""
LOST_END_S = 0.12
"""A key whose packets stop without an end counts as let go after this time."""
KEYS_PER_S = 20.0
"""Keys of one call that are taken in a second: a person presses fewer, and the shortest keys that
gateways send, 40 ms with a pause as long, are 12."""
KEYS_BURST = 40
"""Keys taken in one moment, for a network that stalled delivers what was pressed meanwhile."""
REMEMBERED = 16
"""Keys remembered, so that belated packets of one do not count as another."""


class DtmfError(ValueError):
    """Keys that cannot be sent, or a payload that is no event."""


class EventPacket(NamedTuple):
    """What one telephone-event payload says."""

    event: int
    end: bool
    volume: int
    """Minus dBm0, 0 to 63."""
    duration: int
    """Timestamp units since the event's start."""


def parse(payload: bytes) -> EventPacket:
    """Read a payload; `DtmfError` when it is too short (section 2.3)."""
    if len(payload) < EVENT.size:
        raise DtmfError(f"{len(payload)} bytes are too few for the 4 of a telephone-event")
    event, flags, duration = EVENT.unpack_from(payload)
    return EventPacket(event, flags >= END, flags & 0x3F, duration)


def build(packet: EventPacket) -> bytes:
    """Write a payload."""
    flags = (END if packet.end else 0) | packet.volume & 0x3F
    return EVENT.pack(packet.event, flags, min(packet.duration, 0xFFFF))


class OutgoingEvent(NamedTuple):
    """A packet to send in this slot."""

    payload: bytes
    timestamp: int
    """The event's start: the same for all its packets (section 2.2.2)."""
    marker: bool
    """On the event's first packet (section 2.2.1)."""


def check(keys: str, duration_ms: int, gap_ms: int) -> None:
    """`DtmfError` when these keys cannot be sent so."""
    if not keys or any(key not in KEYS for key in keys.upper()):
        raise DtmfError(f"{keys[:32]!r} holds something else than the keys {KEYS}")
    if not 40 <= duration_ms <= 6000 or not 40 <= gap_ms <= 6000:
        raise DtmfError(
            f"duration_ms={duration_ms}, gap_ms={gap_ms}: 40 to 6000 each; phones want 100 and 50"
        )


class DtmfSender:
    """Keys one after the other, one slot at a time.

    Each key lasts ``duration_ms`` and is followed by at least ``gap_ms`` of nothing. The end is
    told in the three slots that follow the key. ``ticks`` is what a slot adds to a duration, and
    ``stream_ticks`` what it adds to a timestamp, where the stream's clock is another one.
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
        """Whether the next slot may have audio again."""
        return not self._keys

    def slot(self, timestamp: int) -> OutgoingEvent | None:
        """What to send in the slot of this timestamp; None = nothing, a gap."""
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
    """A key went down."""

    digit: str
    at: float


class KeyUp(NamedTuple):
    """A key was let go, or its packets stopped."""

    digit: str
    duration: int
    """Timestamp units."""
    at: float
    """When its first packet came."""


class _Key(NamedTuple):
    timestamp: int
    event: int
    duration: int
    began: float
    heard: float


class DtmfReceiver:
    """Events of one stream: each key once, by its timestamp and code, whichever packets were lost.

    The marker says nothing that is relied on, and a key of which only the end came counts.
    """

    def __init__(self) -> None:
        self._rate: TokenBucket | None = None
        self._key: _Key | None = None
        self._ended: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self.ignored = 0
        """Events that are no keys, and payloads too short."""
        self.too_fast = 0
        """Keys beyond `KEYS_PER_S`, not taken."""

    def receive(self, payload: bytes, timestamp: int, now: float) -> list[KeyDown | KeyUp]:
        """Take a packet; what has become known by it."""
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
        """The key whose end packets were all lost, once enough time has passed."""
        if self._key is None or now < self._key.heard + LOST_END_S:
            return []
        return self._end()

    @property
    def pressed(self) -> bool:
        """Whether a key is down."""
        return self._key is not None

    def _admits(self, now: float) -> bool:
        """Whether one more key is within the rate."""
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
