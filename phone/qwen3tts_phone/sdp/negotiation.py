"""SDP codecs, and the outcome of offer and answer (RFC 3264 section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qwen3tts_codecs.payload import CodecSpec
from qwen3tts_phone.errors import NoCommonCodec
from qwen3tts_phone.sdp.crypto import SrtpKey
from qwen3tts_phone.sdp.description import Direction, Media, PayloadOffer

DEFAULT_PTIME_MS = 20
EVENT_PTS = {8000: 101, 48000: 102}
"""Payload types that our offers give to telephone-event, by its clock (RFC 4733 fixes none); other
clocks get the numbers above."""
COMFORT_NOISE_PT = 13
"""RFC 3389 section 4."""


def event_payload_types(codecs: Sequence[CodecSpec]) -> dict[int, int]:
    taken = {codec.payload_type for codec in codecs} | set(EVENT_PTS.values())
    free = (number for number in range(103, 128) if number not in taken)
    clocks = dict.fromkeys((*(codec.clock_hz for codec in codecs), 8000))
    return {hz: EVENT_PTS[hz] if hz in EVENT_PTS else next(free) for hz in clocks}


def fits(codec: CodecSpec, offer: PayloadOffer) -> bool:
    # RFC 7587 section 7 wants two channels; some phones leave them out.
    channels = (1, 2) if codec.channels == 2 else (1,)
    return (
        offer.name == codec.name.upper()
        and offer.clock_hz == codec.clock_hz
        and offer.channels in channels
    )


@dataclass(frozen=True, slots=True)
class AgreedPayload:
    payload_type: int
    name: str
    clock_hz: int


def common_codecs(theirs: Media, ours: Sequence[CodecSpec]) -> list[tuple[PayloadOffer, CodecSpec]]:
    found = []
    for offer in theirs.payloads:
        codec = next((codec for codec in ours if fits(codec, offer)), None)
        if codec is not None:
            found.append((offer, codec))
    return found


def ptime_for(codec: CodecSpec, wanted: int | None, most: int | None, ours: int) -> int:
    """Return the packet time to send with: theirs where possible, else ours.

    ``most`` is their maxptime (RFC 8866 section 6.4).
    """
    ptime = wanted if wanted is not None else ours
    if ptime not in codec.ptimes_ms and (most is None or ptime <= most):
        ptime = DEFAULT_PTIME_MS
    if most and ptime > most:
        ptime = max((each for each in codec.ptimes_ms if each <= most), default=codec.ptimes_ms[0])
    return ptime


@dataclass(frozen=True, slots=True)
class Negotiated:
    """Agreement of both ends, for our sender and receiver."""

    host: str
    """Destination."""
    port: int
    payload_type: int
    """Outbound payload type."""
    payload_name: str
    """Encoding name, such as PCMU."""
    ptime_ms: int
    """Length of the packets we send."""
    telephone_event_pt: int | None
    """Outbound payload type of telephone events; None = the far end takes none."""
    send: bool
    """True if we may send (False while the far end holds us)."""
    receive: bool
    """True if the far end may send."""
    clock_hz: int = 8000
    """RTP clock of what we send."""
    telephone_event_hz: int = 8000
    telephone_event_in: tuple[int, ...] = ()
    """Further inbound payload types of telephone events: those of our offer."""
    comfort_noise_pt: int | None = None
    """RFC 3389, where both ends have it; None = silence is sent as silence."""
    also_receive: tuple[AgreedPayload, ...] = ()
    """Further inbound payload types."""
    srtp_send: SrtpKey | None = None
    """Our key; None = plain RTP."""
    srtp_receive: SrtpKey | None = None
    rtcp_mux: bool = False
    """RTCP on the RTP port, both ways (RFC 5761)."""
    rtcp_port: int | None = None
    """RTCP destination; None = the port above."""
    maxptime_ms: int | None = None
    parameters: str = ""
    """The far end's fmtp of the codec that we send with."""


def answer_direction(offered: Media, wanted: Direction = "sendrecv") -> Direction:
    """Return the direction of an answer (RFC 3264 section 6.1)."""
    # A hold by 0.0.0.0 still sends, as far as its direction says.
    send = offered.receives and wanted in ("sendrecv", "sendonly")
    receive = offered.sends and wanted in ("sendrecv", "recvonly")
    if send:
        return "sendrecv" if receive else "sendonly"
    return "recvonly" if receive else "inactive"


@dataclass(frozen=True, slots=True)
class LocalSide:
    codecs: Sequence[CodecSpec]
    """In order of preference."""
    host: str
    peer: str = ""
    """Source of their signalling; empty = unknown."""
    direction: Direction = "sendrecv"
    """Direction that we want."""
    ptime_ms: int = 20
    events: bool = True
    noise: bool = False
    """True if comfort noise is taken where the far end has it."""
    rtcp_mux: bool = False
    current: str = ""
    """The codec until now; empty = none."""
    event_pts: tuple[int, ...] = ()
    """The numbers that our offer gave to telephone events."""
    numbers: Mapping[str, int] | None = None
    """The payload types that our offer gave, by rtpmap; None = the offer was theirs."""


def negotiate(
    remote: Media, ours: LocalSide, keys: tuple[SrtpKey, SrtpKey] | None = None
) -> Negotiated:
    """Negotiate what we send and expect.

    ``keys``: ours and theirs. Raises NoCommonCodec.
    """
    shared = common_codecs(remote, ours.codecs)
    if not shared:
        theirs = ", ".join(p.name or str(p.payload_type) for p in remote.payloads) or "none"
        names = ", ".join(codec.name for codec in ours.codecs)
        raise NoCommonCodec(
            f"No common codec: the far end has {theirs[:120]}, this end {names}.",
            remedy="Allow PCMU (G.711 mu-law) or PCMA (G.711 A-law) on the other side.",
        )
    # A change of the session is not made a change of the codec where it need not be one.
    chosen, codec = next((pair for pair in shared if pair[1].name == ours.current), shared[0])
    event_pt, event_hz = _event(remote, codec) if ours.events else (None, 8000)
    noise = codec.comfort_noise and ours.noise
    host, port = remote.endpoint(ours.host, ours.peer)
    return Negotiated(
        host=host,
        port=port,
        payload_type=chosen.payload_type,
        payload_name=codec.name,
        ptime_ms=ptime_for(codec, remote.ptime_ms, remote.maxptime_ms, ours.ptime_ms),
        telephone_event_pt=event_pt,
        send=remote.receives and ours.direction in ("sendrecv", "sendonly"),
        receive=remote.sends and ours.direction in ("sendrecv", "recvonly"),
        clock_hz=codec.clock_hz,
        telephone_event_hz=event_hz,
        # RFC 3264 section 5.1: they send to us with the numbers of our offer.
        telephone_event_in=() if event_pt is None or ours.numbers is None else ours.event_pts,
        comfort_noise_pt=remote.payload_type_of("CN", 8000) if noise else None,
        also_receive=_others(remote, ours, chosen.payload_type),
        srtp_send=keys[0] if keys is not None else None,
        srtp_receive=keys[1] if keys is not None else None,
        rtcp_mux=remote.rtcp_mux and ours.rtcp_mux,
        rtcp_port=remote.rtcp_port if port == remote.port else None,
        maxptime_ms=remote.maxptime_ms,
        parameters=chosen.parameters,
    )


def _event(remote: Media, codec: CodecSpec) -> tuple[int | None, int]:
    # RFC 4733 section 2.1: events have the clock of the audio that they stand among. Some phones
    # offer those of 8 kHz alone.
    for clock_hz in (codec.clock_hz, 8000):
        number = remote.payload_type_of("TELEPHONE-EVENT", clock_hz)
        if number is not None:
            return number, clock_hz
    return None, 8000


def _others(remote: Media, ours: LocalSide, chosen: int) -> tuple[AgreedPayload, ...]:
    others: dict[int, AgreedPayload] = {}
    if ours.numbers is not None:
        for _, codec in common_codecs(remote, ours.codecs):
            number = ours.numbers.get(codec.rtpmap, codec.payload_type)
            others[number] = AgreedPayload(number, codec.name, codec.clock_hz)
    described = {payload.payload_type: payload for payload in remote.payloads}
    for codec in ours.codecs:
        number = codec.payload_type
        if codec.static and (number not in described or fits(codec, described[number])):
            others.setdefault(number, AgreedPayload(number, codec.name, codec.clock_hz))
    others.pop(chosen, None)
    return tuple(others.values())
