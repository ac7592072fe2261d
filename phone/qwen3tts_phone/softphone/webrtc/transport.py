"""Media path to a browser: its connection, inbound packets and the watchdog."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.errors import CalleeUnreachable, CallError, StreamLost
from qwen3tts_phone.facts import EndFacts
from qwen3tts_phone.media.receiver import ReportFigures
from qwen3tts_phone.softphone.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.media import AudioPacket, InboundRtp
from qwen3tts_phone.softphone.webrtc.offer import Offer, OfferedCodec
from qwen3tts_phone.softphone.webrtc.statistics import RemoteQuality

if TYPE_CHECKING:
    from qwen3tts_phone.softphone.webrtc.peer import PacketTrack, Peer


REPORTS_S = 8.0
"""Where the browser sends no sound, a report of its is due every five seconds or so (RFC 3550)."""
NETWORK = (
    "Check the network of the device that the page is on (Wi-Fi, mobile network, VPN), then call "
    "again."
)

NO_WAY = (
    "Let UDP pass between the device that the page is on and this machine: firewalls, VPNs, a "
    "guest Wi-Fi and containers without the host's network are in the way most often."
)


class TransportWatchdog:
    """One call's, from the connection on. Times are seconds of the clock."""

    def __init__(self, settings: WebRtcSettings, now: float) -> None:
        self._settings = settings
        self._sound_at = self._any_at = now
        self._told = False
        self._any_sound = False

    def sound(self, now: float) -> bool:
        """A packet of sound came; True: the first, or the first after a silence that was told."""
        news = self._told or not self._any_sound
        self._sound_at = self._any_at = now
        self._any_sound, self._told = True, False
        return news

    def report(self, now: float) -> bool:
        """Something else came; True: the first after a silence that was told."""
        news, self._told = self._told, False
        self._any_at = now
        return news

    @property
    def lost(self) -> bool:
        """Whether a silence was told, and lasts."""
        return self._told

    def silent_s(self, now: float) -> float:
        """For how long nothing at all has come."""
        return max(0.0, now - self._any_at)

    def news(self, now: float) -> float | None:
        """For how long nothing has come, where that is to be told now: once each time."""
        silent_s = self.silent_s(now)
        if self._told or silent_s < self._most_s():
            return None
        self._told = True
        return silent_s

    def vanished(self, now: float) -> CallError | None:
        """Why nobody waits any longer; None = all is well."""
        silent_s = self.silent_s(now)
        if silent_s < self._settings.vanished_s:
            return None
        return StreamLost(
            f"The connection to the browser is lost: nothing has come for {silent_s:.0f} s.",
            remedy=NETWORK,
        )

    def _most_s(self) -> float:
        """How long nothing may come before that is worth a word."""
        short_s = self._settings.silent_s
        # What sends its sound still and stops with all at once has lost the network; what has
        # stopped its sound before (a microphone that is off) is heard of by its reports alone.
        alone = self._any_at - self._sound_at
        steady = self._any_sound and alone < short_s
        return short_s if steady else max(short_s, REPORTS_S)


CHECK_INTERVAL_S = 0.5
"""How often it is looked whether the browser is still there."""
LONG_S = 8.0
"""A connection that closes after a silence of this length was lost, not closed by the browser."""


class TransportListener(Protocol):
    """Who is told what happens on the line; at once, and in no time."""

    def line_up(self) -> None:
        """The connection is made."""

    def line_heard(self, frame: HeardFrame) -> None:
        """The browser's sound."""

    def line_silent(self, silent_s: float) -> None:
        """Nothing has come for so long."""

    def line_back(self, now: float) -> None:
        """Something comes, for the first time or again."""

    def line_over(self, end: EndFacts, cause: str) -> None:
        """It has ended, or never came about; may be told more than once."""


class WebRtcTransport:
    """One call's; `open` begins to connect, and `look_after` goes on to the end."""

    def __init__(
        self,
        owner: TransportListener,
        offer: Offer,
        payload: Payload,
        settings: WebRtcSettings,
        clock: Clock,
    ) -> None:
        self.sound = InboundRtp(payload)
        self.far = RemoteQuality()
        self.up = asyncio.Event()
        """Set when the connection is made."""
        self._owner = owner
        self._offer = offer
        self._settings = settings
        self._clock = clock
        self._watch: TransportWatchdog | None = None
        self._peer: Peer | None = None
        self._hole = asyncio.Event()
        self._closed = False

    async def open(self, codec: OfferedCodec, track: PacketTrack) -> str:
        """Begin to connect; our answer's SDP. Raises BadSdp, CallError."""
        from qwen3tts_phone.softphone.webrtc.peer import Peer

        self._peer = await Peer.answering(
            self._offer,
            codec,
            track,
            self._settings,
            take=self._hear,
            report=self._reception,
            changed=self._changed,
        )
        return self._peer.answer_sdp

    @property
    def lost(self) -> bool:
        """Whether nothing has come for a while."""
        return self._watch is not None and self._watch.lost

    def silent_s(self) -> float:
        """For how long nothing has come, seconds; 0 before the connection."""
        return self._watch.silent_s(self._clock.now()) if self._watch is not None else 0.0

    async def look_after(self) -> None:
        """Wait for the connection, and see what becomes of it."""
        settings, clock = self._settings, self._clock
        timer = asyncio.ensure_future(clock.sleep_until(clock.now() + settings.connect_s))
        up = asyncio.ensure_future(self.up.wait())
        try:
            await asyncio.wait((timer, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            up.cancel()
        if self._watch is None:
            message = f"The browser was not reached within {settings.connect_s:g} s."
            error = CalleeUnreachable(message, remedy=NO_WAY, why="session")
            self._owner.line_over(EndFacts(by="timeout", error=error), message)
            return
        await self._look(self._watch)

    async def fill_holes(self) -> None:
        """Hand on what a hole holds up, when the missing packet is waited for no longer."""
        while True:
            await self._hole.wait()
            self._hole.clear()
            while (deadline := self.sound.next_deadline()) is not None:
                await self._clock.sleep_until(deadline)
                for heard in self.sound.due(self._clock.now()):
                    self._owner.line_heard(heard)

    async def close(self) -> None:
        """End the connection, and tell the browser. Harmless when it is over."""
        self._closed = True
        if self._peer is not None:
            await self._peer.close()

    # --- inside

    def _changed(self, state: str) -> None:
        """The connection has another state."""
        if self._closed:
            return
        if state == "connected" and self._watch is None:
            self._watch = TransportWatchdog(self._settings, self._clock.now())
            self.up.set()
            self._owner.line_up()
        elif state == "failed":
            message = "No connection to the browser came about."
            error = CalleeUnreachable(message, remedy=NO_WAY, why="session")
            self._owner.line_over(EndFacts(by="error", error=error), message)
        elif state == "closed" and self.silent_s() >= LONG_S:
            message = "The connection to the browser broke off."
            lost = StreamLost(message, remedy=NETWORK)
            self._owner.line_over(EndFacts(by="error", error=lost), message)
        elif state == "closed":
            self._owner.line_over(EndFacts(by="remote"), "the browser hung up")

    async def _look(self, watch: TransportWatchdog) -> None:
        """Tell of a silence, and end what nothing comes from any more."""
        assert self._peer is not None
        origin, count, before = self._clock.now(), 0, 0
        while True:
            figures = await self._peer.figures()
            self.far.figures(figures)
            now = self._clock.now()
            if figures.packets != before:
                before = figures.packets
                if watch.report(now):
                    self._owner.line_back(now)
            silent_s = watch.news(now)
            if silent_s is not None:
                self._owner.line_silent(silent_s)
            lost = watch.vanished(now)
            if lost is not None:
                self._owner.line_over(EndFacts(by="timeout", error=lost), lost.message)
                return
            count += 1
            await self._clock.sleep_until(origin + count * CHECK_INTERVAL_S)

    def _hear(self, packet: AudioPacket) -> None:
        """A packet of the browser."""
        watch = self._watch
        if watch is None or self._closed:
            return
        now = self._clock.now()
        heard = self.sound.take(packet, now)
        if watch.sound(now):
            self._owner.line_back(now)
        for each in heard:
            self._owner.line_heard(each)
        if self.sound.next_deadline() is not None:
            self._hole.set()

    def _reception(self) -> tuple[int, ReportFigures] | None:
        ssrc = self.sound.ssrc
        return None if ssrc is None else (ssrc, self.sound.report())
