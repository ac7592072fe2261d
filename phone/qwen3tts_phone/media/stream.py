"""One call in the media process: sockets, memory, sender, receiver, reports."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from qwen3tts_pacer.memory import CallMemory, MediaWord, ParentWord, Want
from qwen3tts_phone.limits import TokenBucket
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.receiver import ANCILLARY, DATAGRAM_MOST, STAMP, Receiver
from qwen3tts_phone.media.rtcp import Reporter, RtcpError
from qwen3tts_phone.media.sender import Sender
from qwen3tts_phone.media.source import NOWHERE, SendPermission
from qwen3tts_phone.media.srtp import RtpTransport, canonical_host
from qwen3tts_phone.media.types import (
    FROM_FAR_END,
    ContextPlayed,
    KeysIgnored,
    LegSpec,
    MediaEvent,
    MediaTimeout,
    RemoteBye,
    RemoteMedia,
    SendingPaused,
    SendingResumed,
    SourceRejected,
)

MAINTENANCE_S = 0.5
"""Interval of reports, time limits and counters."""
_STALE_S = 1.0
"""Kernel time stamps further off are ignored: the wall clock was set."""

EVENTS_PER_S = 60.0
"""Events of one call that its far end may cause in a second; a key is two."""
EVENTS_BURST = 100

SendMessage = Callable[[dict[str, Any]], bool]
"""Sends a message to the parent; False = dropped."""


class LegEvents:
    """Sends one call's events to the parent; those of the far end are bounded."""

    def __init__(self, leg: int, tell: SendMessage, now: float) -> None:
        self.dropped = 0
        """Events of the far end that were dropped."""
        self._leg = leg
        self._tell = tell
        self._rate = TokenBucket(EVENTS_PER_S, EVENTS_BURST, now)

    def send(self, event: MediaEvent) -> None:
        name = type(event).__name__
        fields = {each: getattr(event, each) for each in event.__dataclass_fields__}
        message = {"type": "event", "leg": self._leg, "name": name, **fields}
        if (name in FROM_FAR_END and not self._rate.take(event.at)) or not self._tell(message):
            self.dropped += 1


class Stream:
    """Media of one call, driven by the loop: ``slot`` on the grid, ``readable`` when packets wait.

    ``origin_s`` is the time of slot 0, ``learnt`` the knowledge of earlier filling policies.
    """

    def __init__(
        self,
        leg: int,
        spec: LegSpec,
        memory: CallMemory,
        sockets: tuple[socket.socket, socket.socket],
        tell: SendMessage,
        remote: RemoteMedia,
        origin_s: float,
        learnt: dict[str, Any] | None,
        codec: int = 0,
    ) -> None:
        now = time.monotonic()
        remote = _normal(remote)
        self.leg = leg
        self.ptime_ms = remote.ptime_ms
        self.wants_notice = False
        """Set when the parent waits for what happened; the loop clears it."""
        self._spec = spec
        self._words = memory.words
        self._tell = tell
        self._remote = remote
        self._transport = RtpTransport(*sockets)
        self._transport.update(remote, now)
        self._recvmsg = sockets[0].recvmsg
        self.sender = Sender(self._transport, memory, spec, remote, origin_s, learnt, codec)
        self._outbound = self.sender.outbound
        self._permission = SendPermission()
        self._permission.update(remote.host, _confirm_within_s(remote), now)
        # No method of its own: that would be a cycle, which this process would never collect.
        self._events = LegEvents(leg, tell, now)
        self._event = self._events.send
        self._receiver = Receiver(memory, spec, remote, self._event)
        self._reporter = Reporter(self.sender, self._receiver, spec.rtcp_interval_s, now)
        self.slot = self.sender.slot
        """Sends the slot whose time has come."""
        self.skip = self.sender.skip
        """Skips slots that the machine was too late for."""
        self._maintain_at = now + MAINTENANCE_S
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._heard_at = now
        self._timed_out = False
        self._strangers_reported = 0
        self._strangers_at = 0.0
        self._dtmf_reply = 0
        self._keys_told = False

    def update(self, remote: RemoteMedia, codec: int = 0) -> None:
        """Apply a renegotiation. Raises ValueError, and then nothing has changed."""
        remote = _normal(remote)
        self._transport.update(remote, time.monotonic())
        before, self._remote = self._remote, remote
        self.sender.update(remote, codec)
        self.ptime_ms = remote.ptime_ms
        self._receiver.update(remote)
        self._permission.update(remote.host, _confirm_within_s(remote), time.monotonic())
        heard = self._receiver.lock.address
        same = (before.host, before.port) == (remote.host, remote.port)
        if heard is not None and same and self._spec.symmetric:
            self.sender.aim(heard)  # behind the same NAT as before
            self._permission.aimed(heard[0], time.monotonic())
        self._permit(time.monotonic())
        self._heard_at = time.monotonic()
        self._timed_out = False

    def press(self, reply: int, keys: str, duration_ms: int, gap_ms: int) -> None:
        """Send keys; the reply is sent when the last is done."""
        if self._remote.telephone_event_pt is None:
            raise ValueError("the far end did not offer telephone-event (RFC 4733)")
        if self.sender.pressing:
            raise ValueError("keys are being sent already; wait for them")
        self.sender.press(keys, duration_ms, gap_ms)
        self._dtmf_reply = reply

    def after_slot(self, now: float) -> None:
        """Prepare the next slot, send news to the parent, and do the periodic work."""
        sender, receiver = self.sender, self._receiver
        sender.prepare()
        if self._outbound.news:
            self._outbound.news = False
            self._tell_news()
        if self._spec.impairment is not None:  # delayed packets wake no poll
            while self.readable():
                pass
        if receiver.waiting:
            receiver.due(now)
        want = self._words[_WANT]
        if want and (want & _ROOM or self._words[_IN_HEAD] != self._words[_IN_TAIL]):
            self.wants_notice = True
        if now >= self._maintain_at:
            self._maintain(now)

    def _tell_news(self) -> None:
        sender = self.sender
        for epoch, at in sender.flushed:
            self._tell({"type": "flushed", "leg": self.leg, "epoch": epoch, "at": at})
        sender.flushed.clear()
        for context, at in sender.played:
            self._event(ContextPlayed(context, at))
        sender.played.clear()
        if sender.dtmf_done:
            sender.dtmf_done = False
            self._tell({"type": "reply", "to": self._dtmf_reply, "leg": self.leg})

    def was_late(self, late_ns: int) -> None:
        if late_ns > self._words[MediaWord.LATENESS_MAX_NS]:
            self._words[MediaWord.LATENESS_MAX_NS] = late_ns

    def readable(self) -> bool:
        """Take one datagram of the RTP port; False = none waits."""
        try:
            data, ancillary, _, address = self._recvmsg(DATAGRAM_MOST, ANCILLARY)
        except BlockingIOError:
            return False
        except OSError:  # an ICMP error of an earlier packet; nothing of this call is lost by it
            return True
        now = time.monotonic()
        at = now
        if ancillary:
            seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
            at = (seconds * 1_000_000_000 + nanoseconds - self._wall_offset_ns) / 1e9
            if not now - _STALE_S < at <= now:
                at = now
        if rtp.is_rtcp(data):
            self._report_came(data, address, at)
        else:
            receiver = self._receiver
            if not self._transport.direct:
                opened = self._transport.open(data, address, now, report=False)
                if opened is None:
                    return True
                data, address = opened
            receiver.datagram(data, address, at)
            if receiver.latched:
                receiver.latched = False
                if self._spec.symmetric:
                    self.sender.aim(address)
                    self._permission.aimed(address[0], now)
                else:
                    self._permission.heard(address[0], now)
                self._permit(now)
            if self._words[_WANT] & _INBOUND:
                self.wants_notice = True
        return True

    def rtcp_readable(self) -> bool:
        """Take one datagram of the RTCP port; False = none waits."""
        try:
            data, address = self._transport.rtcp.recvfrom(DATAGRAM_MOST)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._report_came(data, address, time.monotonic())
        return True

    def end(self, now: float) -> dict[str, Any]:
        """Send BYE, publish the last counters; return the knowledge of the filling policy."""
        if self.sender.pressing:
            self._tell(
                {
                    "type": "reply",
                    "to": self._dtmf_reply,
                    "leg": self.leg,
                    "error": "the leg was closed before all keys were out",
                    "refused": True,
                }
            )
        if self._spec.rtcp_interval_s:
            self._send_report(self._reporter.report(now, bye=True))
        self.publish()
        return self.sender.policy.export()

    def publish(self) -> None:
        sender, receiver, reporter = self.sender, self._receiver, self._reporter
        words = self._words
        words[MediaWord.SKIPPED] = sender.skipped
        words[MediaWord.STARVED] = sender.starvations
        words[MediaWord.SEND_ERRORS] = sender.errors
        words[MediaWord.DTMF_OUT] = sender.dtmf_sent
        words[MediaWord.RECEIVED] = receiver.received
        words[MediaWord.LOST] = receiver.lost
        words[MediaWord.LATE] = receiver.jitter.late
        words[MediaWord.DUPLICATES] = receiver.jitter.duplicates
        words[MediaWord.CONCEALED] = receiver.jitter.concealed
        words[MediaWord.STRANGERS] = receiver.lock.rejected
        words[MediaWord.MALFORMED] = receiver.malformed
        words[MediaWord.UNKNOWN_PAYLOAD] = receiver.unknown_payload
        words[MediaWord.INBOUND_OVERRUN] = receiver.overrun
        words[MediaWord.DTMF_IN] = receiver.dtmf_in
        words[MediaWord.JITTER_NS] = int(receiver.reception.jitter_s * 1e9)
        words[MediaWord.DEPTH_NS] = int(receiver.jitter.wait_s * 1e9)
        words[MediaWord.RTCP_IN] = reporter.received
        words[MediaWord.RTCP_OUT] = reporter.sent
        words[MediaWord.REMOTE_LOST] = reporter.remote_lost
        words[MediaWord.REMOTE_FRACTION] = reporter.remote_fraction
        words[MediaWord.REMOTE_JITTER_NS] = int(reporter.remote_jitter_s * 1e9)
        # 0 stands for "not known"; a round trip of less than a nanosecond does not exist.
        words[MediaWord.ROUND_TRIP_NS] = int((reporter.round_trip_s or 0.0) * 1e9)
        words[MediaWord.ROUND_TRIP_MAX_NS] = int(reporter.round_trip_max_s * 1e9)
        words[MediaWord.REMOTE_FRACTION_MAX] = reporter.remote_fraction_max
        words[MediaWord.OCTETS_SENT] = sender.octets
        words[MediaWord.OCTETS_RECEIVED] = receiver.octets
        words[MediaWord.LOSS_BURSTS] = receiver.jitter.bursts
        words[MediaWord.BURST_LOST] = receiver.jitter.burst_lost
        words[MediaWord.SRTP_FAILED] = self._transport.failed
        words[MediaWord.SRTP_REPLAYED] = self._transport.replayed
        words[MediaWord.NOISE_IN] = receiver.noise_in
        words[MediaWord.NOISE_OUT] = sender.noise_sent
        words[MediaWord.FIRST_SENT_NS] = sender.first_ns
        words[MediaWord.FIRST_RECEIVED_NS] = int(receiver.first_at * 1e9)
        words[MediaWord.LAST_RECEIVED_NS] = int(receiver.lock.heard_at * 1e9)
        words[MediaWord.SOURCES] = receiver.sources
        words[MediaWord.KEYS_IGNORED] = receiver.keys.too_fast
        words[MediaWord.EVENTS_DROPPED] = self._events.dropped

    def _maintain(self, now: float) -> None:
        self._maintain_at = now + MAINTENANCE_S
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()
        receiver, reporter, remote = self._receiver, self._reporter, self._remote
        self._permit(now)
        report = reporter.due(now)
        if report is not None:
            self._send_report(report)
        rejected = receiver.lock.rejected
        if rejected != self._strangers_reported and now >= self._strangers_at:
            self._strangers_reported = rejected
            self._strangers_at = now + 1.0
            self._event(SourceRejected(receiver.lock.last_rejected, rejected, now))
        if receiver.keys.too_fast and not self._keys_told:
            self._keys_told = True
            self._event(KeysIgnored(now))
        heard_at = max(self._heard_at, receiver.lock.heard_at)
        if heard_at > self._heard_at:
            self._heard_at = heard_at
            self._timed_out = False
        limit = self._spec.timeout_s
        if limit and remote.receive and not self._timed_out and now - heard_at >= limit:
            self._timed_out = True
            self._event(MediaTimeout(now - heard_at, now))
        self.publish()

    def _report_came(self, data: bytes, address: tuple[Any, ...], at: float) -> None:
        receiver, reporter, remote = self._receiver, self._reporter, self._remote
        opened = self._transport.open(data, address, time.monotonic(), report=True)
        if opened is None:
            return
        data, address = opened
        heard = receiver.lock.address
        if address[0] not in (remote.host, heard[0] if heard else remote.host):
            receiver.lock.reject(address)
            return
        try:
            bye = reporter.take(data, at)
        except RtcpError:
            receiver.malformed += 1
            return
        self._permission.heard(address[0], at)
        self._permit(at)
        if bye:
            self._event(RemoteBye(at))

    def _permit(self, now: float) -> None:
        sender = self.sender
        paused = sender.address is not None and not self._permission.is_given(now)
        if paused != sender.paused:
            sender.pause(paused)
            host = self._remote.host
            self._event(SendingPaused(host, now) if paused else SendingResumed(now))

    def _send_report(self, data: bytes) -> None:
        sender, remote = self.sender, self._remote
        if sender.address is None or sender.paused:
            return
        host, port = sender.address
        if not remote.rtcp_mux:
            announced = (host, port) == (remote.host, remote.port)
            if announced and remote.rtcp_port is not None:
                port = remote.rtcp_port
            else:
                port = min(port + 1, 65535)
        try:
            self._transport.send_report(data, (host, port), muxed=remote.rtcp_mux)
        except OSError:
            sender.errors += 1


def _confirm_within_s(remote: RemoteMedia) -> float:
    sends = remote.send and remote.host not in NOWHERE
    return remote.confirm_within_s if sends else 0.0


def _normal(remote: RemoteMedia) -> RemoteMedia:
    return replace(
        remote,
        host=canonical_host(remote.host),
        signalling_host=canonical_host(remote.signalling_host),
    )


_WANT = int(ParentWord.WANT)
_ROOM = int(Want.ROOM)
_INBOUND = int(Want.INBOUND)
_IN_TAIL = int(ParentWord.IN_TAIL)
_IN_HEAD = int(MediaWord.IN_HEAD)
