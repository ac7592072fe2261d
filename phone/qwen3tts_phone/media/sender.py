"""One call's outgoing half in the media process: ring to pacer core to packet, a slot at a time."""

from __future__ import annotations

import random
import socket
import time

from qwen3tts_pacer import PacerCore, State
from qwen3tts_pacer.frame import Frame, Kind
from qwen3tts_pacer.memory import CallMemory, ContextSent, ContextTable, MediaWord, ParentWord
from qwen3tts_pacer.policy import FillingPolicy, FillingSettings
from qwen3tts_pacer.ring import OutboundReader, RecordKind
from qwen3tts_phone.media.dtmf import DtmfSender
from qwen3tts_phone.media.rtp import FIRST_BYTE, HEADER, MARKER
from qwen3tts_phone.media.source import Address
from qwen3tts_phone.media.types import CLOCK_HZ, SILENCE, LegSpec, RemoteMedia

TAKE_MOST = 8
"""Records taken from the ring in one slot: a full ring must not delay the other calls."""
CORE_FRAMES = 100
"""Frames that wait in the core; the rest wait in the ring."""

# Plain integers: an enum's attribute costs 40 ns each time it is looked up.
_EPOCH = int(ParentWord.EPOCH)
_OUT_HEAD = int(ParentWord.OUT_HEAD)
_SENT = int(MediaWord.SENT)
_LAST_SEQUENCE = int(MediaWord.LAST_SEQUENCE)
_LAST_SENT_NS = int(MediaWord.LAST_SENT_NS)
_SPEECH_SENT = int(MediaWord.SPEECH_SENT)
_FIRST = FIRST_BYTE


class _Live:
    """A context that is being sent."""

    __slots__ = ("context", "entry", "first_ns", "frames")

    def __init__(self, context: int, entry: int) -> None:
        self.context = context
        self.entry = entry
        self.frames = 0
        self.first_ns = 0


class Sender:
    """Sends one packet a slot (RFC 3550, 3551); see `slot`.

    Sequence numbers rise by one a packet and timestamps by a slot's ticks a slot, sent or not. The
    marker opens what follows a break in the sending: slots skipped, a hold, keys (RFC 3551 4.1).
    """

    def __init__(
        self,
        sock: socket.socket,
        memory: CallMemory,
        spec: LegSpec,
        remote: RemoteMedia,
        origin_s: float,
        learnt: dict[str, object] | None = None,
    ) -> None:
        self._sendto = sock.sendto
        self._words = memory.words
        self._reader = OutboundReader(memory)
        self._table = ContextTable(memory)
        self._spec = spec
        self.ptime_ms = remote.ptime_ms
        self._ptime_s = remote.ptime_ms / 1000
        self.ticks = CLOCK_HZ * remote.ptime_ms // 1000
        self._origin = origin_s
        settings = FillingSettings(pinned_s=spec.pinned_s)
        self.policy = FillingPolicy(settings, ptime_s=self._ptime_s, learnt=learnt)
        self._silence = SILENCE[remote.payload_name] * self.ticks
        self._core = PacerCore(self._ptime_s, self.policy, silence=self._silence)
        self._core.start(origin_s, origin_s)
        self._quiet = True  # the core has nothing to say
        self._live: dict[int, _Live] = {}
        self._next = 0  # the next slot's number
        self._gap = not spec.continuous  # the next packet follows a break
        self._started = False
        self._dtmf: DtmfSender | None = None
        self.ssrc = random.getrandbits(32)
        self.sequence = random.getrandbits(16)
        self._timestamp = random.getrandbits(32)  # of slot 0
        self.sent = 0
        self.octets = 0
        self.skipped = 0
        self.errors = 0
        self.last_error = 0
        self.dtmf_sent = 0
        self.dtmf_done = False
        """Set when the last key of a row is out; the caller clears it."""
        self.flushed: list[tuple[int, float]] = []
        """Epochs applied and when; the caller takes them out."""
        self.played: list[tuple[int, float]] = []
        """Contexts fully sent and when; the caller takes them out."""
        self.address: Address | None = None
        self._sending = False
        self._payload_type = 0
        self.update(remote)

    def update(self, remote: RemoteMedia) -> None:
        """Renegotiated: where to send, what, and whether; the packet duration stays."""
        self.aim((remote.host, remote.port) if remote.port else None)
        self._payload_type = remote.payload_type
        self._silence = SILENCE[remote.payload_name] * self.ticks
        self._event_type = remote.telephone_event_pt
        self._sending = remote.send

    def aim(self, address: Address | None) -> None:
        """Send there from now on; None or 0.0.0.0 = nowhere."""
        self.address = None if address is None or address[0] in ("", "0.0.0.0") else address

    def press(self, keys: str, duration_ms: int, gap_ms: int) -> None:
        """Send keys (RFC 4733) from the next slot; speech waits and nothing of it is lost."""
        self._dtmf = DtmfSender(
            keys,
            ticks=self.ticks,
            ptime_ms=self.ptime_ms,
            duration_ms=duration_ms,
            gap_ms=gap_ms,
        )

    @property
    def starvations(self) -> int:
        """Dry spells in mid-utterance."""
        return self._core.starvations

    @property
    def pressing(self) -> bool:
        """Whether keys are being sent."""
        return self._dtmf is not None

    def timestamp_at(self, now: float) -> int:
        """The RTP timestamp of an instant (for sender reports)."""
        return (self._timestamp + int((now - self._origin) * CLOCK_HZ)) & 0xFFFF_FFFF

    def skip(self, slots: int) -> None:
        """Slots have passed: nothing is sent for them, time moves on."""
        self._next += slots
        if self._started and self._sending:
            self.skipped += slots
            self._gap = True

    def slot(self) -> None:
        """Send what belongs into the slot whose time has come."""
        number = self._next
        self._next = number + 1
        words = self._words
        reader = self._reader
        if words[_EPOCH] != reader.epoch:
            self._flush(self._origin + number * self._ptime_s)
        address = self.address
        if not self._sending or address is None:
            self._gap = self._started or self._gap
            return
        if self._dtmf is not None:
            self._send_key(number, self._dtmf, address)
            return
        frame: Frame | None = None
        if words[_OUT_HEAD] != reader.tail:
            self._take(self._origin + number * self._ptime_s)
        if self._quiet:
            payload = self._silence
            if not self._spec.continuous:
                self._gap = True
                return
        else:
            # The same expression as the core's own, so the floats are equal.
            slot = self._core.due(self._origin + number * self._ptime_s)
            if slot is None:
                payload = self._silence
            else:
                payload = slot.payload
                frame = slot.frame
                if frame is None and slot.kind is Kind.SILENCE:
                    self._quiet = self._core.state is State.IDLE
                    payload = self._silence
                    if not self._spec.continuous:
                        self._gap = True
                        return
        second = self._payload_type
        if self._gap:
            second |= MARKER
            self._gap = False
        sequence = self.sequence
        self.sequence = sequence + 1 & 0xFFFF
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        try:
            self._sendto(
                HEADER.pack(_FIRST, second, sequence, timestamp, self.ssrc) + payload, address
            )
        except OSError as error:
            self._failed(error)
        now_ns = time.monotonic_ns()
        self._started = True
        self.sent = sent = self.sent + 1
        self.octets += len(payload)
        words[_SENT] = sent
        words[_LAST_SEQUENCE] = sequence
        words[_LAST_SENT_NS] = now_ns
        if frame is not None:
            words[_SPEECH_SENT] += 1
            live = self._live[frame.context]
            live.frames += 1
            if live.first_ns == 0:
                live.first_ns = now_ns
            self._table.store(
                live.entry,
                ContextSent(
                    frame.context, live.frames, frame.start, frame.end, live.first_ns, now_ns
                ),
            )
            if self._core.drained:
                self._drained(now_ns)

    def _take(self, now: float) -> None:
        """Move records from the ring into the core, as of when they were written."""
        core = self._core
        if core.queued >= CORE_FRAMES:
            return
        self._quiet = False
        batch: list[Frame] = []
        batch_ns = 0
        for kind, context, frame, written_ns, entry, key in self._reader.read(TAKE_MOST):
            if batch and (frame is None or written_ns != batch_ns or context != batch[0].context):
                core.push(batch, min(now, batch_ns / 1e9))
                batch = []
            if frame is not None:
                batch.append(frame)
                batch_ns = written_ns
            elif kind == RecordKind.BEGIN:
                self._live[context] = _Live(context, entry)
                self._table.store(entry, ContextSent(context, 0, 0, 0, 0, 0))
                core.begin(context, min(now, written_ns / 1e9), f"{key:x}")
            else:
                core.finish(context, min(now, written_ns / 1e9))
        if batch:
            core.push(batch, min(now, batch_ns / 1e9))
        if core.drained:  # a context without a frame
            self._drained(time.monotonic_ns())

    def _flush(self, now: float) -> None:
        reader = self._reader
        if not reader.flushed():
            return
        self._core.interrupt(now, through=reader.through if reader.through >= 0 else None)
        self._live.clear()
        self._quiet = False  # the fade is still to come
        self._words[int(MediaWord.APPLIED_EPOCH)] = reader.epoch
        self.flushed.append((reader.epoch, now))

    def _drained(self, now_ns: int) -> None:
        drained = self._core.drained
        while drained:
            context = drained.popleft()
            self._live.pop(context, None)
            self.played.append((context, now_ns / 1e9))

    def _send_key(self, number: int, dtmf: DtmfSender, address: Address) -> None:
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        event = dtmf.slot(timestamp)
        if event is not None and self._event_type is not None:
            second = self._event_type | (MARKER if event.marker else 0)
            self.dtmf_sent += event.marker
            sequence = self.sequence
            self.sequence = sequence + 1 & 0xFFFF
            try:
                self._sendto(
                    HEADER.pack(_FIRST, second, sequence, event.timestamp, self.ssrc)
                    + event.payload,
                    address,
                )
            except OSError as error:
                self._failed(error)
            self.sent += 1
            self.octets += len(event.payload)
            self._words[_SENT] = self.sent
            self._words[_LAST_SEQUENCE] = sequence
            self._words[_LAST_SENT_NS] = time.monotonic_ns()
        self._gap = True
        self._started = True
        if dtmf.done:
            self._dtmf = None
            self.dtmf_done = True

    def _failed(self, error: OSError) -> None:
        """A packet that could not be sent is lost like one on the way; the call goes on."""
        self.errors += 1
        self.last_error = error.errno or 0
