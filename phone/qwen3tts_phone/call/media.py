"""Media of a SIP call: leg, sink, inbound audio, codec, liveness."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from qwen3tts_codecs.table import agreed_payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.inbound import LegReceiver
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.events import CallHeld, CallResumed
from qwen3tts_phone.errors import BadSdp, CallError, NoCommonFamily
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import SILENCE, RemoteMedia
from qwen3tts_phone.sdp.addresses import AddressScope, address_scope, same_address
from qwen3tts_phone.sdp.session import Negotiated
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

CONFIRM_WITHIN_S = 5.0
"""A host other than the signalling's must send something within this time, or nothing more is sent
to it. Media servers of carriers send with the answer; a far end that only listens sends its first
report within 3.75 s (RFC 3550 section 6.2: the half of 5 s, times 0.5 to 1.5)."""
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


class CallMedia:
    """Media of one call.

    ``trusts``: whether a signalling host may describe any other host for its media.
    """

    def __init__(
        self, leg: MediaLeg, core: CallCore, trusts: Callable[[str], bool] = lambda host: False
    ) -> None:
        self.leg = leg
        self.receiver = LegReceiver(leg, core.inbound)
        self.sink: RtpSink | None = None
        """None before the first agreement."""
        self.agreed: Negotiated | None = None
        self._core = core
        self._trusts = trusts
        self._clock = core.clock
        self._facts = core.facts
        self._held_since: float | None = None
        self._holding_since: float | None = None
        self._agreeing = asyncio.Lock()

    async def agree(self, agreed: Negotiated) -> bool:
        """Apply an agreement; True for the first one.

        Raises BadSdp (an address that cannot be sent to), MediaRefused (the media process cannot do
        it); nothing has changed then.
        """
        async with self._agreeing:
            remote = self._remote(agreed)
            first = self.sink is None
            if first:
                await self.leg.start(remote)
                self.receiver.agree(agreed)
                self.begin(agreed)
            else:
                # What comes in another format may be here before the media process says it is done.
                self.receiver.agree(agreed)
                if agreed.payload_name != self._payload_name:
                    await self._change(agreed, remote)
                else:
                    await self.leg.update(remote)
            self._note(agreed)
            return first

    async def pause(self, paused: bool) -> None:
        async with self._agreeing:
            if self.agreed is not None:
                remote = self._remote(self.agreed)
                await self.leg.update(replace(remote, send=remote.send and not paused))

    def begin(self, agreed: Negotiated) -> None:
        payload = agreed_payload(agreed.payload_name, agreed.payload_type, agreed.parameters)
        self.sink = RtpSink(self.leg, agreed.ptime_ms, payload)
        self._core.begin(payload, self.sink, agreed.ptime_ms)

    async def close(self) -> None:
        self._facts.media.stats = stats = self.leg.stats()
        self._facts.keys_ignored += stats.keys_ignored
        self._facts.first_rtp_out_at = self._facts.first_rtp_out_at or stats.first_sent_at
        self._count_holds(self._clock.now())
        await self.leg.close()

    # --- inside

    @property
    def _payload_name(self) -> str:
        return self._core.payload.name if self._core.payload is not None else ""

    async def _change(self, agreed: Negotiated, remote: RemoteMedia) -> None:
        core = self._core
        assert self.sink is not None
        payload = agreed_payload(agreed.payload_name, agreed.payload_type, agreed.parameters)

        def switched() -> None:
            core.change(payload, agreed.ptime_ms)

        await self.sink.change(remote, payload, switched)
        core.changed()

    def _remote(self, agreed: Negotiated) -> RemoteMedia:
        payload = agreed_payload(agreed.payload_name, agreed.payload_type, agreed.parameters)
        ptime_ms = agreed.ptime_ms
        peer = self._facts.media.peer_host
        return RemoteMedia(
            host=checked_media_host(agreed.host, self.leg.local_host, peer),
            port=agreed.port,
            payload_type=agreed.payload_type,
            payload_name=agreed.payload_name,
            ptime_ms=ptime_ms,
            telephone_event_pt=agreed.telephone_event_pt,
            send=agreed.send,
            receive=agreed.receive,
            rtcp_port=agreed.rtcp_port,
            also_receive=self._also_receive(agreed),
            rtcp_mux=agreed.rtcp_mux,
            clock_hz=agreed.clock_hz,
            silence="" if payload.name in SILENCE else payload.silent_frame(ptime_ms).hex(),
            telephone_event_hz=agreed.telephone_event_hz,
            telephone_event_in=agreed.telephone_event_in,
            comfort_noise_pt=agreed.comfort_noise_pt,
            srtp_send=agreed.srtp_send,
            srtp_receive=agreed.srtp_receive,
            signalling_host=peer,
            confirm_within_s=confirm_within_s(agreed.host, peer, trusted=self._trusts(peer)),
        )

    def _also_receive(self, agreed: Negotiated) -> tuple[tuple[int, int], ...]:
        also = {each.payload_type: each.clock_hz for each in agreed.also_receive}
        if self.agreed is not None:
            # RFC 3264 section 8.3.2: packets of the format before are on their way.
            also.setdefault(self.agreed.payload_type, self.agreed.clock_hz)
        also.pop(agreed.payload_type, None)
        return tuple(also.items())

    def _note(self, agreed: Negotiated) -> None:
        now, media = self._clock.now(), self._facts.media
        self.agreed = agreed
        self._count_holds(now)
        media.codec = agreed.payload_name
        media.ptime_ms = agreed.ptime_ms
        media.srtp = agreed.srtp_send.suite if agreed.srtp_send is not None else ""
        media.telephone_events = agreed.telephone_event_pt is not None
        media.send, media.receive = agreed.send, agreed.receive
        media.remote = (agreed.host, agreed.port)
        held = not agreed.send
        self._held_since = now if held else None
        self._holding_since = None if agreed.receive else now
        if held != self._core.held:
            self._core.held = held
            self._core.publish(CallHeld(now) if held else CallResumed(now))

    def _count_holds(self, now: float) -> None:
        media = self._facts.media
        if self._held_since is not None:
            media.held_s += now - self._held_since
            self._held_since = now
        if self._holding_since is not None:
            media.holding_s += now - self._holding_since
            self._holding_since = now


def confirm_within_s(host: str, peer: str, *, trusted: bool) -> float:
    """Return how long ``host`` is sent to without an answer; 0 = no limit."""
    return 0.0 if trusted or same_address(host, peer) else CONFIRM_WITHIN_S


def checked_media_host(host: str, local: str, peer: str = "") -> str:
    address = ipaddress.ip_address(host)
    ours = ipaddress.ip_address(local)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    kind = _forbidden(address)
    if kind and not (address.is_loopback and address_scope(peer) is AddressScope.MACHINE):
        raise BadSdp(
            f"The far end at {peer[:64] or 'an unknown address'} describes {kind} {host[:64]!r} "
            "for its sound; nothing is sent there.",
            remedy="Let it describe an address of its own that can be reached from here.",
        )
    if address.version != ours.version and str(ours) != "::" and not address.is_unspecified:
        family = {4: "an IPv4", 6: "an IPv6"}
        raise NoCommonFamily(
            f"The far end's media address {host[:64]!r} is not {family[ours.version]} address.",
            remedy=f"Let it describe its media with {family[ours.version]} address, or let this "
            "phone listen at one of the other family as well.",
        )
    return str(address)


def _forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if address.is_loopback:
        return "the loopback address"
    if address.is_multicast:
        return "the multicast address"
    if isinstance(address, ipaddress.IPv4Address):
        if str(address) == "255.255.255.255":
            return "the broadcast address"
        if address.is_reserved or (address in _THIS_NETWORK and not address.is_unspecified):
            return "the reserved address"
    return ""


class LivenessProbe:
    """Probe of a far end without media, every ``vanished_s`` seconds (0 = off)."""

    def __init__(
        self,
        clock: Clock,
        ask: Callable[[], Awaitable[bool]],
        received: Callable[[], int],
        vanished_s: float,
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._received = received
        self._vanished_s = vanished_s

    async def lost(self, silent_s: float) -> bool:
        """Wait until the far end, silent for ``silent_s``, is gone (True) or back (False)."""
        if not self._vanished_s:
            return False
        received, due = self._received(), self._clock.now() - silent_s
        while True:
            due += self._vanished_s
            await self._clock.sleep_until(due)
            if self._received() != received:
                return False
            try:
                there = await self._ask()
            except CallError as error:
                logger.debug(
                    "a far end could not be asked whether it is there: %s", log_text(error)
                )
                return False
            if self._received() != received:
                return False
            if not there:
                return True
            due = self._clock.now()
