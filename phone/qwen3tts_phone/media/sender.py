"""One call's outgoing half in the media process: ring to pacer core to packet, a slot at a time."""

from __future__ import annotations

import random
import socket
import time

from qwen3tts_pacer import PacerCore, State
from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import CallMemory, ContextTable, MediaWord, ParentWord
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

# Plain integers, for an enum's attribute costs as much as the access itself.
_EPOCH = int(ParentWord.EPOCH)
_OUT_HEAD = int(ParentWord.OUT_HEAD)
_SENT = int(MediaWord.SENT)
_SPEECH_SENT = int(MediaWord.SPEECH_SENT)
_FIRST = FIRST_BYTE


class _Live:
    """A context that is being sent."""

    __slots__ = ("audible_ns", "entry", "first_ns", "frames", "longest", "starvations", "starved")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.frames = 0
        self.first_ns = 0
        self.audible_ns = 0
        self.starvations = 0
        self.starved = 0
        self.longest = 0


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
        self.ptime_ms = remote.ptime_ms
        self._ptime_s = remote.ptime_ms / 1000
        self.ticks = CLOCK_HZ * remote.ptime_ms // 1000
        self._origin = origin_s
        settings = FillingSettings(pinned_s=spec.pinned_s)
        self.policy = FillingPolicy(settings, ptime_s=self._ptime_s, learnt=learnt)
        self._silence = SILENCE[remote.payload_name] * self.ticks
        self._core = PacerCore(self._ptime_s, self.policy, silence=self._silence)
        self._core.start(origin_s, origin_s)
        self._starved_slots = 0
        self._quiet = True  # the core has nothing to say
        self._broken = True  # the last slot was not speech
        self._last: Frame | None = None  # the last frame sent
        self._fresh: Frame | None = None  # the same, until it is published
        self._prepared: Frame | None = None  # the next one, taken out of the core already
        self._sent_ns = 0
        self._live: dict[int, _Live] = {}
        self._next = 0  # the next slot's number
        self._continuous = spec.continuous
        self._gap = not spec.continuous  # the next packet follows a break
        self._started = False
        self._dtmf: DtmfSender | None = None
        self.ssrc = random.getrandbits(32)
        self.sequence = random.getrandbits(16)
        self._timestamp = random.getrandbits(32)  # of slot 0
        self.sent = 0
        self.speech_sent = 0
        self.octets = 0
        self.skipped = 0
        self.errors = 0
        self.last_error = 0
        self.dtmf_sent = 0
        self.news = False
        """Set when one of the following has something; the caller clears it."""
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
        if self._sending and not self._broken and self._last is not None:
            live = self._live.get(self._last.context)
            if live is not None:
                self._hole(live, slots)
        if self._started:
            self._gap = self._broken = True
            if self._sending:
                self.skipped += slots

    def slot(self) -> None:
        """Send what belongs into the slot whose time has come; `prepare` must follow.

        All calls of a group are sent before any is prepared, so that the work of one does not
        delay the packets of the others.
        """
        number = self._next
        self._next = number + 1
        if self._words[_EPOCH] != self._reader.epoch:
            self._flush(self._origin + number * self._ptime_s)
        address = self.address
        if not self._sending or address is None:
            self._gap = self._started or self._gap
            self._broken = True
            return
        if self._dtmf is not None:
            self._send_key(number, self._dtmf, address)
            return
        frame = self._prepared
        if frame is None:
            frame = self._next_frame(self._origin + number * self._ptime_s)
        if frame is not None:
            last = self._last
            if last is not None and last.context == frame.context and self._broken:
                payload = frame.head or frame.payload
            else:
                payload = frame.payload
            self._broken = False
            self._last = self._fresh = frame
            self._prepared = None
        elif not self._broken:  # the slot after speech
            payload = (self._last.tail if self._last is not None else None) or self._silence
            self._broken = True
        elif self._continuous:
            payload = self._silence
        else:
            self._gap = True
            return
        second = self._payload_type
        if self._gap:
            second |= MARKER
            self._gap = False
        self.sequence = sequence = self.sequence + 1 & 0xFFFF
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        try:
            self._sendto(
                HEADER.pack(_FIRST, second, sequence, timestamp, self.ssrc) + payload, address
            )
        except OSError as error:
            self._failed(error)
        self._sent_ns = time.monotonic_ns()
        self._started = True
        self.sent += 1
        self.octets += len(payload)

    def prepare(self) -> None:
        """After `slot`: publish what was sent, and fetch the next frame if that is sure."""
        words = self._words
        words[_SENT] = self.sent
        frame = self._fresh
        if frame is None:
            return
        self._fresh = None
        now_ns = self._sent_ns
        self.speech_sent += 1
        words[_SPEECH_SENT] = self.speech_sent
        live = self._live[frame.context]
        live.frames += 1
        if live.first_ns == 0:
            live.first_ns = now_ns
        self._table.store(
            live.entry, frame.context, live.frames, frame.start, frame.end, live.first_ns, now_ns
        )
        core = self._core
        if (live.audible_ns == 0 and not frame.silent) or core.starved_slots != self._starved_slots:
            self._seldom(live, frame, now_ns)
        if core.drained:
            self._drained(now_ns)
        at = self._origin + self._next * self._ptime_s
        if words[_OUT_HEAD] != self._reader.tail:
            self._take(min(at, now_ns / 1e9))
        # In mid-utterance with frames at hand nothing that may still come changes what is next.
        if len(self._live) == 1 and frame.context in self._live and core.queued:
            slot = core.due(at)
            if slot is not None:
                self._prepared = slot.frame

    def _seldom(self, live: _Live, frame: Frame, now_ns: int) -> None:
        """The first sound of a context, or the end of a dry spell."""
        core = self._core
        if live.audible_ns == 0 and not frame.silent:
            live.audible_ns = now_ns
        dry = core.starved_slots - self._starved_slots
        if dry:
            self._starved_slots = core.starved_slots
        self._hole(live, dry)

    def _hole(self, live: _Live, slots: int) -> None:
        """So many slots of silence in the middle of a context: it ran dry, or we were late."""
        if slots:
            live.starvations += 1
            live.starved += slots
            live.longest = max(live.longest, slots)
        self._table.store_seldom(
            live.entry, live.audible_ns, live.starvations, live.starved, live.longest
        )

    def _next_frame(self, at: float) -> Frame | None:
        """The frame to play now, if there is one and the policy agrees."""
        if self._words[_OUT_HEAD] != self._reader.tail:
            self._take(at)
        if self._quiet:
            return None
        # The time is the same expression as the core's own, so the floats are equal.
        slot = self._core.due(at)
        if slot is not None and slot.frame is not None:
            return slot.frame
        self._quiet = self._broken and self._core.state is State.IDLE
        return None

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
                self._live[context] = _Live(entry)
                self._table.store(entry, context, 0, 0, 0, 0, 0)
                self._table.store_seldom(entry, 0, 0, 0, 0)
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
        self._core.drained.clear()
        self._prepared = None
        self._live.clear()
        self._words[int(MediaWord.APPLIED_EPOCH)] = reader.epoch
        self.flushed.append((reader.epoch, now))
        self.news = True

    def _drained(self, now_ns: int) -> None:
        drained = self._core.drained
        while drained:
            context = drained.popleft()
            self._live.pop(context, None)
            self.played.append((context, now_ns / 1e9))
            self.news = True

    def _send_key(self, number: int, dtmf: DtmfSender, address: Address) -> None:
        timestamp = self._timestamp + number * self.ticks & 0xFFFF_FFFF
        event = dtmf.slot(timestamp)
        if event is not None and self._event_type is not None:
            second = self._event_type | (MARKER if event.marker else 0)
            self.dtmf_sent += event.marker
            self.sequence = sequence = self.sequence + 1 & 0xFFFF
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
        self._gap = self._broken = True
        self._started = True
        if dtmf.done:
            self._dtmf = None
            self.dtmf_done = self.news = True

    def _failed(self, error: OSError) -> None:
        """A packet that could not be sent is lost like one on the way; the call goes on."""
        self.errors += 1
        self.last_error = error.errno or 0
