"""Inbound jitter buffer: packets in as they come, frames out in play order.

Packets in order are passed on immediately. A hole holds back what follows for as long as the
missing packet is expected; then each missing packet is passed on as an empty frame, for packet loss
concealment. The wait adapts to the interarrival jitter and to packets that came after they were
given up.
"""

from __future__ import annotations

from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.media.rtp import Unwrapper

CONCEAL_MOST = 50
"""Empty frames for one hole; a longer one is a pause."""
PACKET_MOST_S = 0.12
PENDING_MOST = 64
"""Packets held behind a hole; more give the hole up."""
FORGET = 0.999
"""Decay of a packet's lateness with each packet after it (half in 14 s of 20 ms)."""


class JitterBuffer:
    """Jitter buffer of one stream; times in seconds, extended ``sequence`` (`Reception.accept`)."""

    def __init__(self, *, min_wait_s: float = 0.02, max_wait_s: float = 0.2) -> None:
        self._min_wait = min(min_wait_s, max_wait_s)
        self._max_wait = max_wait_s
        self._floor = 0.0
        self._given_up: dict[int, float] = {}  # sequence -> when it was first missed
        self._unwrapper = Unwrapper()
        self._next = -1
        self._last: InboundFrame | None = None  # handed on, neither concealed nor passed over
        self._before: InboundFrame | None = None  # handed on before it
        self.clock_hz = 8000
        self.noise_type = -1
        """Payload type of comfort noise; settable."""
        self.pending: dict[int, InboundFrame] = {}
        """Packets behind a hole, by extended sequence number; type -1 = no audio."""
        self.wait_s = self._min_wait
        """Present wait for a missing packet."""
        self.late = 0
        self.duplicates = 0
        self.concealed = 0
        self.bursts = 0
        """Runs of lost or late packets."""
        self.burst_lost = 0

    def push(
        self,
        sequence: int,
        timestamp: int,
        payload: bytes,
        payload_type: int,
        marker: bool,
        at: float,
        jitter_s: float = 0.0,
    ) -> list[InboundFrame]:
        """Take a packet that arrived at ``at``; return what may be played, in order."""
        packet = InboundFrame(
            payload,
            payload_type,
            self._unwrapper.unwrap(timestamp),
            at,
            sequence & 0xFFFF,
            marker,
            False,
        )
        self._floor *= FORGET
        wait = self._min_wait + 4.0 * jitter_s
        self.wait_s = min(self._max_wait, wait if wait > self._floor else self._floor)
        if sequence == self._next or self._next < 0:
            if not self.pending:
                return [self._play(packet, sequence)]
            self.pending[sequence] = packet
        elif sequence < self._next:
            self._belated(sequence, at)
            return []
        elif sequence in self.pending:
            self.duplicates += 1
            return []
        else:
            self.pending[sequence] = packet
        return self.due(at)

    def skip(self, sequence: int, at: float) -> list[InboundFrame]:
        """Take a packet that is no audio; return what may be played."""
        if self._next < 0:
            return []
        if sequence >= self._next and sequence not in self.pending:
            self.pending[sequence] = InboundFrame(b"", -1, 0, at, sequence & 0xFFFF, False, False)
        return self.due(at) if self.pending else []

    def due(self, now: float) -> list[InboundFrame]:
        """Return what may be played at ``now``: frames in order, empty ones for holes given up."""
        frames: list[InboundFrame] = []
        pending = self.pending
        while pending:
            number = self._next
            packet = pending.pop(number, None)
            if packet is None:
                number = min(pending)
                # Held up since the first packet behind the hole came.
                if len(pending) <= PENDING_MOST and now < self._held_since() + self.wait_s:
                    break
                packet = pending.pop(number)
                frames += self._conceal(packet, number, now)
            if packet.payload_type < 0:
                self._next = number + 1
            else:
                frames.append(self._play(packet, number))
        return frames

    def next_deadline(self) -> float | None:
        """Return when `due` has something if nothing more comes; None = never."""
        return self._held_since() + self.wait_s if self.pending else None

    def reset(self) -> list[InboundFrame]:
        rest = self.pause()
        self._unwrapper.reset()
        return rest

    def pause(self) -> list[InboundFrame]:
        """Begin a pause in which nothing counts as missing; return what was held back."""
        held = sorted(self.pending.items())
        rest = [self._play(packet, number) for number, packet in held if packet.payload_type >= 0]
        self.pending.clear()
        self._given_up.clear()
        self._next = -1
        self._last = None
        return rest

    def _held_since(self) -> float:
        return min(packet.at for packet in self.pending.values())

    def _play(self, packet: InboundFrame, sequence: int) -> InboundFrame:
        self._before = self._last
        self._next = sequence + 1
        self._last = packet
        return packet

    def _conceal(self, following: InboundFrame, number: int, now: float) -> list[InboundFrame]:
        last = self._last
        missing = number - self._next
        self.bursts += 1
        self.burst_lost += missing
        for lost in range(self._next, number)[-PENDING_MOST:]:
            self._given_up[lost] = now
        while len(self._given_up) > 4 * PENDING_MOST:
            del self._given_up[next(iter(self._given_up))]
        if last is None or not last.payload or following.payload_type != last.payload_type:
            return []
        if last.payload_type == self.noise_type:
            return []
        # As long as the packets before it, else it was a pause of the sender: not to be guessed.
        ticks, rest = divmod(following.timestamp - last.timestamp, missing + 1)
        most = PACKET_MOST_S * self.clock_hz
        before = self._before
        usual = 0
        if before is not None and before.sequence + 1 & 0xFFFF == last.sequence:
            usual = last.timestamp - before.timestamp
        if rest or not 0 < ticks <= most or (0 < usual <= most and ticks != usual):
            return []
        frames = []
        for index in range(min(missing, CONCEAL_MOST)):
            self.concealed += 1
            frames.append(
                InboundFrame(
                    b"",
                    last.payload_type,
                    last.timestamp + (index + 1) * ticks,
                    now,
                    self._next + index & 0xFFFF,
                    False,
                    True,
                )
            )
        return frames

    def _belated(self, sequence: int, at: float) -> None:
        given_up = self._given_up.pop(sequence, None)
        if given_up is None:
            self.duplicates += 1
            return
        self.late += 1
        self._floor = max(self._floor, min(self._max_wait, 1.2 * (self.wait_s + at - given_up)))
