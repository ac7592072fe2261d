"""One call's incoming half in the media process: packet to frame in the inbound ring."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.ring import InboundFrame, InboundWriter
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.dtmf import DtmfReceiver, KeyDown, KeyUp
from qwen3tts_phone.media.jitter import JitterBuffer
from qwen3tts_phone.media.reception import Reception
from qwen3tts_phone.media.source import Address, SourceLock, Verdict
from qwen3tts_phone.media.types import (
    CLOCK_HZ,
    SILENCE,
    Dtmf,
    DtmfStarted,
    LegSpec,
    MediaEvent,
    MediaStarted,
    RemoteMedia,
)

DATAGRAM_MOST = 2048
"""Longer datagrams are cut by the socket and then refused as malformed or oversized."""
SO_TIMESTAMPNS = 35
"""Linux: arrival times of datagrams from the kernel, as control messages of the same number."""
STAMP = struct.Struct("@qq")
ANCILLARY = socket.CMSG_SPACE(STAMP.size)


class Receiver:
    """Judges each datagram, keeps the statistics, and hands frames on in play order."""

    def __init__(
        self,
        memory: CallMemory,
        spec: LegSpec,
        remote: RemoteMedia,
        tell: Callable[[MediaEvent], None],
    ) -> None:
        self._tell = tell
        self._inbound = InboundWriter(memory)
        self._spec = spec
        self.lock = SourceLock()
        self.reception = Reception(CLOCK_HZ)
        self.lost_before = 0
        """Packets lost of the streams before the one that is received now."""
        self.keys = DtmfReceiver()
        self.jitter = JitterBuffer(SILENCE[remote.payload_name], max_wait_s=spec.jitter_max_s)
        self.received = 0
        self.malformed = 0
        self.unknown_payload = 0
        self.overrun = 0
        self.dtmf_in = 0
        self.handed = 0
        """Frames put into the ring."""
        self.waiting = False
        """Whether `due` is to be called at every slot."""
        self.latched = False
        """Set when a source was latched, or the old one again; the caller clears it."""
        self._receiving = True
        self._audio_types: frozenset[int] = frozenset()
        self._event_type: int | None = None
        self.update(remote)

    def update(self, remote: RemoteMedia) -> None:
        """Renegotiated: payload types, direction, and another source may come."""
        self._receiving = remote.receive
        self._audio_types = frozenset({remote.payload_type, *remote.also_receive})
        self._event_type = remote.telephone_event_pt
        self.lock.update((remote.host, remote.port))

    def datagram(self, data: bytes, address: Address, at: float) -> None:
        """Take one datagram of the RTP port that arrived at ``at`` (RTCP excluded)."""
        try:
            packet = rtp.parse(data)
        except rtp.RtpError:
            self.malformed += 1
            return
        kind = packet.payload_type
        if kind != self._event_type and kind not in self._audio_types:
            self.unknown_payload += 1
            return
        reopened = self.lock.open
        verdict = self.lock.offer(address, packet.ssrc, packet.sequence, at)
        if verdict is Verdict.ACCEPTED:
            self.latched = self.latched or reopened
        elif verdict is Verdict.LOCKED:
            self._restart()
            self.latched = True
            self._tell(MediaStarted(address, packet.ssrc, at))
        else:
            return
        reception = self.reception
        before = reception.received
        extended = reception.accept(packet.sequence)
        if extended < 0:
            self.malformed += 1
            return
        if reception.received == 1 and before:  # RFC 3550 A.1: the sender restarted
            self._hand(self.jitter.reset())
        self.received += 1
        if kind == self._event_type:
            self._known(self.keys.receive(packet.payload, packet.timestamp, at))
            # Its place in the sequence is no hole of the audio.
            self._hand(self.jitter.skip(extended, at))
            self.waiting = True
            return
        jitter_s = reception.arrived(packet.timestamp, at)
        if not self._receiving:
            return
        self._hand(
            self.jitter.push(
                extended,
                packet.timestamp,
                packet.payload,
                kind,
                packet.marker,
                at,
                jitter_s,
            )
        )
        if self.jitter.pending:
            self.waiting = True

    def due(self, now: float) -> None:
        """Give up holes and keys whose time is over."""
        if self.jitter.pending:
            self._hand(self.jitter.due(now))
        if self.keys.pressed:
            self._known(self.keys.due(now))
        self.waiting = bool(self.jitter.pending) or self.keys.pressed

    @property
    def lost(self) -> int:
        """Packets that never came, of all streams so far."""
        return max(0, self.lost_before + self.reception.lost)

    def _restart(self) -> None:
        self._hand(self.jitter.reset())
        self.lost_before += max(0, self.reception.lost)
        self.reception = Reception(CLOCK_HZ)

    def _hand(self, frames: Iterable[InboundFrame]) -> None:
        for frame in frames:
            if self._inbound.write(frame):
                self.handed += 1
            else:
                self.overrun += 1

    def _known(self, changes: list[KeyDown | KeyUp]) -> None:
        for change in changes:
            if isinstance(change, KeyDown):
                self.dtmf_in += 1
                self._tell(DtmfStarted(change.digit, change.at))
            else:
                duration_ms = change.duration * 1000 // CLOCK_HZ
                self._tell(Dtmf(change.digit, duration_ms, change.at))
