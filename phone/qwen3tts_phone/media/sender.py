"""RTP sender of one call in the media process."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from qwen3tts_pacer.memory import CallMemory, MediaWord, ParentWord
from qwen3tts_pacer.policy import FillingPolicy, FillingSettings
from qwen3tts_pacer.sender_core import SenderCore
from qwen3tts_pacer.slot import Frame, Slot
from qwen3tts_phone.media.dtmf import DtmfSender
from qwen3tts_phone.media.ducking import Ducking
from qwen3tts_phone.media.outbound import OutboundPacer, codec_number
from qwen3tts_phone.media.rtp import FIRST_BYTE, HEADER, MARKER
from qwen3tts_phone.media.source import NOWHERE, Address
from qwen3tts_phone.media.srtp import RtpTransport
from qwen3tts_phone.media.types import LegSpec, RemoteMedia

NOISE_EVERY_S = 1.0
"""Interval of comfort noise in a pause: its first packet may have been lost."""
OTHER_CODEC = 255
"""Number of any codec that has none."""

# Plain integers, for an enum's attribute costs as much as the access itself.
_EPOCH = int(ParentWord.EPOCH)
_DUCK = int(ParentWord.DUCK)
_OUT_HEAD = int(ParentWord.OUT_HEAD)
_SENT = int(MediaWord.SENT)
_SPEECH_SENT = int(MediaWord.SPEECH_SENT)
_FIRST = FIRST_BYTE


class Sender:
    """RTP sender of one call: sends the slots of its `SenderCore` (RFC 3550, 3551).

    Sequence numbers rise by one a packet and timestamps by a slot's ticks a slot, sent or not.
    Another clock begins another stream, for the timestamps of one have one clock (RFC 3550 section
    5.2).
    """

    def __init__(
        self,
        transport: RtpTransport,
        memory: CallMemory,
        spec: LegSpec,
        remote: RemoteMedia,
        origin_s: float,
        learnt: Mapping[str, Any] | None = None,
        codec: int = 0,
    ) -> None:
        self._transport = transport
        self._words = memory.words
        self._spec = spec
        self.ptime_ms = remote.ptime_ms
        self._ptime_s = remote.ptime_ms / 1000
        self._origin = origin_s  # of slot 0
        self._codec = codec or codec_number(remote.payload_name) or OTHER_CODEC
        self.policy = FillingPolicy(
            FillingSettings(pinned_s=spec.pinned_s),
            ptime_s=self._ptime_s,
            learnt=learnt,
        )
        self._core = SenderCore(
            self._ptime_s,
            self.policy,
            silence=remote.silent_frame(),
            continuous=spec.continuous and remote.comfort_noise_pt is None,
        )
        self.outbound = OutboundPacer(memory, self._core, origin_s, self._codec)
        self._reader = self.outbound.reader
        self._ducking = Ducking(memory, self.outbound, remote.payload_name)
        self._ducked = 0  # the command that was applied last
        self._slot: Slot | None = None  # sent, and not yet noted
        self._ahead: Slot | None = None  # the next one, or the silence of all that follow
        self._repeated = 0  # how often that silence was sent
        self._last: Frame | None = None  # the frame before it
        self._sent_ns = 0
        self.first_ns = 0
        """When the first packet was sent (CLOCK_MONOTONIC); 0 = not yet."""
        self._next = 0  # the next slot's number
        self._started = False
        self._sending = remote.send
        self._paused = self._fading = False
        self._dtmf: DtmfSender | None = None
        self._noise: bytes | None = None  # payload of comfort noise, where it was agreed
        self._noise_at = 0  # slot of the next comfort noise
        self.sent = 0
        self.speech_sent = 0
        self.octets = 0
        self.noise_sent = 0
        self.skipped = 0
        self.errors = 0
        self.last_error = 0
        self.dtmf_sent = 0
        self.dtmf_done = False
        """Set when the last key was sent; the caller clears it."""
        self.flushed, self.played = self.outbound.flushed, self.outbound.played
        self.address: Address | None = None
        """Destination; None = none yet."""
        self._target: Address | None = None  # the same, as the socket wants it
        self.ssrc = self.sequence = self._timestamp = 0
        self.sent_before = self.octets_before = 0
        """Parts of ``sent`` and ``octets`` of earlier streams."""
        self._new_stream(remote)
        self._agree(remote)

    def update(self, remote: RemoteMedia, codec: int = 0) -> None:
        """Apply a renegotiation: destination, format, direction.

        ``codec`` is the number of the codec in the ring. What waits is transcoded, or goes out as
        silence. For a new clock or packet time the parent has interrupted the queue.
        """
        self._take_back()
        self._flush(self._next)
        self._codec = codec or codec_number(remote.payload_name) or OTHER_CODEC
        if remote.ptime_ms != self.ptime_ms:
            self._change_grid(remote)
        if remote.clock_hz != self.clock_hz:
            self._new_stream(remote)
        self.outbound.change_codec(self._codec, remote.silent_frame())
        self._ducking.change_codec(remote.payload_name, self._origin + self._next * self._ptime_s)
        self._agree(remote)

    def aim(self, address: Address | None) -> None:
        if address is None or address[0] in NOWHERE:
            self.address = self._target = None
        else:
            self.address, self._target = address, self._transport.target(address)

    def press(self, keys: str, duration_ms: int, gap_ms: int) -> None:
        """Send keys (RFC 4733) from the next slot; speech waits."""
        self._dtmf = DtmfSender(
            keys,
            ticks=self._event_hz * self.ptime_ms // 1000,
            stream_ticks=self.ticks,
            ptime_ms=self.ptime_ms,
            duration_ms=duration_ms,
            gap_ms=gap_ms,
        )

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self, paused: bool) -> None:
        """Fade out and stop sending, or continue with a marker; no frame is lost."""
        self._paused = paused
        self._fading = paused and self._sending
        self._sending = self._agreed and not paused

    @property
    def starvations(self) -> int:
        return self._core.starvations

    @property
    def pressing(self) -> bool:
        return self._dtmf is not None

    def timestamp_at(self, now: float) -> int:
        return (self._timestamp + int((now - self._origin) * self.clock_hz)) & 0xFFFF_FFFF

    def skip(self, slots: int) -> None:
        self._take_back()
        self._next += slots
        if self._started and self._sending:
            self.skipped += slots

    def slot(self) -> None:
        """Send the slot whose time has come; `prepare` must follow.

        All calls of a group are sent before any is prepared, so that none delays the others'
        packets.
        """
        number = self._next
        self._next = number + 1
        if self._words[_EPOCH] != self._reader.epoch:
            self._take_back()
            self._flush(number)
        if self._words[_DUCK] != self._ducked:
            self._take_back()
            self._ducked = self._words[_DUCK]
            self._ducking.command(self._ducked, self._origin + number * self._ptime_s)
        target = self._target
        if not self._sending or target is None:
            self._take_back()
            self._send_nothing(number)
            return
        if self._dtmf is not None:
            self._take_back()
            self._send_key(number, self._dtmf)
            return
        slot = self._ahead
        records = self._words[_OUT_HEAD] != self._reader.tail
        if records and slot is not None and slot.frame is None:
            self._take_back()
            slot = None
        if slot is None:
            at = self._origin + number * self._ptime_s  # the core's own expression, equal floats
            if records:
                self.outbound.take(at)
            slot = self._core.due(at)
            if slot is None:  # a pause
                if self._noise is not None and number >= self._noise_at:
                    self._send_noise(number, self._noise)
                return
            self._slot = slot
            self._noise_at = number  # a pause follows only such a slot
        elif slot.frame is None:
            self._repeated += 1
        else:
            self._ahead = None
            self._slot = slot
        self.sequence = sequence = self.sequence + 1 & 0xFFFF
        second = self._payload_type | MARKER if slot.marker else self._payload_type
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        payload = self._ducking.scaled(slot) if self._ducking.active else slot.payload
        try:
            self._sendto(
                HEADER.pack(_FIRST, second, sequence, timestamp, self.ssrc) + payload, target
            )
        except OSError as error:
            self._failed(error)
        self._sent_ns = time.monotonic_ns()
        if not self._started:
            self._began()
        self.sent += 1
        self.octets += len(payload)

    def prepare(self) -> None:
        """Publish what `slot` sent, and fetch the next slot if it is certain."""
        words = self._words
        words[_SENT] = self.sent
        slot = self._slot
        if slot is None:
            return
        self._slot = None
        frame = slot.frame
        if frame is None:
            self._ahead = self._core.silence_ahead()
            return
        self.speech_sent += 1
        words[_SPEECH_SENT] = self.speech_sent
        self._last = frame
        self._ahead = self.outbound.sent(
            frame, slot.missed, self._sent_ns, self._origin + self._next * self._ptime_s
        )

    def _take_back(self) -> None:
        """Bring the core to what was sent: before anything but the slot ahead is asked of it."""
        ahead = self._ahead
        self._ahead = None
        if ahead is None:
            return
        if ahead.frame is None:
            self._core.repeated(self._repeated)
            self._repeated = 0
        elif self._last is not None:
            self._core.take_back(self._last)

    def _send_nothing(self, number: int) -> None:
        at = self._origin + number * self._ptime_s
        if self._fading:
            self._fading = False
            slot = self._core.fade(at)
            if slot is not None:
                timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
                self._send(self._payload_type, timestamp, self._ducking.scaled(slot))
                return
        self._core.pass_slot(at)

    def _agree(self, remote: RemoteMedia) -> None:
        self._sendto = self._transport.sendto
        self.aim((remote.host, remote.port) if remote.port else None)
        self._payload_type = remote.payload_type
        self._event_type = remote.telephone_event_pt
        self._event_hz = remote.telephone_event_hz
        self._agreed = remote.send
        self._sending = remote.send and not self._paused
        # RFC 3389 section 4: the level alone; the far end shapes the noise.
        noise = remote.comfort_noise_pt
        if noise is not None and self._noise is None:
            self._noise_at = self._next
        self._noise = None if noise is None else bytes([remote.comfort_noise_level])
        self._noise_type = noise or 0
        self._noise_every = max(1, round(NOISE_EVERY_S / self._ptime_s))
        continuous = self._spec.continuous and noise is None
        self._core.set_continuous(continuous, self._origin + self._next * self._ptime_s)

    def _new_stream(self, remote: RemoteMedia) -> None:
        """Begin a stream: SSRC, sequence and timestamp are random (RFC 3550 section 5.1)."""
        self.clock_hz, self.ticks = remote.clock_hz, remote.ticks
        self.ssrc = random.getrandbits(32)
        # With SRTP (RFC 3711 section 3.3.1) the first packets may be lost and the receiver must
        # not take the count for wrapped: the upper half stays free.
        self.sequence = random.getrandbits(15)
        self._timestamp = random.getrandbits(32)  # of slot 0
        if self._started:
            self._core.mark()
        self.sent_before, self.octets_before = self.sent, self.octets

    def _change_grid(self, remote: RemoteMedia) -> None:
        self._origin += self._next * self._ptime_s
        self._timestamp = self._timestamp + self._next * self.ticks & 0xFFFF_FFFF
        self._next = self._noise_at = 0
        self.ptime_ms, self.ticks = remote.ptime_ms, remote.ticks
        self._ptime_s = remote.ptime_ms / 1000
        self.outbound.change_grid(self._ptime_s, self._origin)

    def _flush(self, number: int) -> None:
        self.outbound.flush(self._origin + number * self._ptime_s)

    def _send_noise(self, number: int, noise: bytes) -> None:
        self._noise_at = number + self._noise_every
        self.noise_sent += 1
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        self._send(self._noise_type, timestamp, noise)

    def _send_key(self, number: int, dtmf: DtmfSender) -> None:
        event = dtmf.slot(self._timestamp + number * self.ticks & 0xFFFF_FFFF)
        if event is not None and self._event_type is not None:
            self.dtmf_sent += event.marker
            second = self._event_type | (MARKER if event.marker else 0)
            self._send(second, event.timestamp, event.payload)
        if dtmf.done:
            self._dtmf = None
            self.dtmf_done = self.outbound.news = True
        self._core.pass_slot(self._origin + number * self._ptime_s)
        self._core.mark()

    def _send(self, second: int, timestamp: int, payload: bytes) -> None:
        self.sequence = sequence = self.sequence + 1 & 0xFFFF
        packet = HEADER.pack(_FIRST, second, sequence, timestamp, self.ssrc) + payload
        try:
            if self._target is not None:
                self._sendto(packet, self._target)
        except OSError as error:
            self._failed(error)
        self._sent_ns = time.monotonic_ns()
        if not self._started:
            self._began()
        self.sent += 1
        self.octets += len(payload)

    def _began(self) -> None:
        self._started = True
        self.first_ns = self._sent_ns

    def _failed(self, error: OSError) -> None:
        self.errors += 1
        self.last_error = error.errno or 0
