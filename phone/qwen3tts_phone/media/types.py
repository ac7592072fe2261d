"""Values that the parent and the media process exchange about a call's media."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_phone.sdp.crypto import SrtpKey

SILENCE = {"PCMU": b"\xff", "PCMA": b"\xd5"}
"""Idle code words of G.711 (ITU-T G.711)."""
CLOCK_HZ = 8000
"""RTP clock of PCMU, PCMA, G722, telephone-event and CN (RFC 3551 table 4)."""
CLOCKS_HZ = (8000, 192_000)
PTIMES_MS = tuple(range(10, 130, 10))
"""Packet times that can be sent."""
SILENT_MOST = 4096
"""Bound of a silent frame, bytes."""


@dataclass(frozen=True)
class Impairment:
    """Bad network at a leg's socket, for rehearsals; see `media.impairment`."""

    loss: float = 0.0
    """Share of packets lost, 0 to 0.9."""
    burst: float = 1.0
    """Mean length of a run of losses, packets."""
    jitter_s: float = 0.0
    """Packets are delayed by 0 to this."""
    seed: int = 0
    inbound: bool = True
    """False = only what is sent is impaired."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 0.9:
            raise ValueError(f"loss={self.loss} is not between 0 and 0.9")
        if not 1.0 <= self.burst <= 100.0:
            raise ValueError(f"burst={self.burst} is not between 1 and 100 packets")
        if not 0.0 <= self.jitter_s <= 1.0:
            raise ValueError(f"jitter_s={self.jitter_s} is not between 0 and 1 second")


@dataclass(frozen=True)
class LegSpec:
    """Sockets and supervision of a leg."""

    local_host: str = "127.0.0.1"
    """Numeric local address; 0.0.0.0 for all of IPv4, :: for all of IPv6 and IPv4."""
    port_range: tuple[int, int] = (0, 0)
    """Lowest and highest port; (0, 0) = the system chooses. RTP gets an even port, RTCP the next
    (RFC 3550 section 11)."""
    continuous: bool = True
    """Send silence between utterances; False = nothing. Comfort noise replaces both."""
    symmetric: bool = True
    """Send to the source of media (symmetric RTP, RFC 4961); False = to the announced address, and
    accept only its host."""
    timeout_s: float = 20.0
    """`MediaTimeout` after this time without a packet; 0 = never."""
    rtcp_interval_s: float = 5.0
    """Mean interval of reports (RFC 3550 section 6.2); 0 = none."""
    jitter_max_s: float = 0.2
    """Longest wait for a missing packet."""
    pinned_s: float | None = None
    """Fixed wait before an utterance's first frame; None = adaptive."""
    ring_slots: int = 320
    """Records of the outbound ring, of which 64 are kept for its control: 5 s of 20 ms frames.

    So long a call speaks on while the parent is stalled; the parent keeps the PCM of as much.
    """
    impairment: Impairment | None = None
    """Loss and jitter of RTP packets; None = the network as it is."""

    def __post_init__(self) -> None:
        low, high = self.port_range
        if (low, high) != (0, 0) and not 1 <= low < high <= 65535:
            raise ValueError(f"port_range={self.port_range}: two ports, low below high, or (0, 0)")
        if not 0.0 <= self.jitter_max_s <= 1.0:
            raise ValueError(f"jitter_max_s={self.jitter_max_s} is not between 0 and 1 second")


@dataclass(frozen=True)
class RemoteMedia:
    """Negotiated media (RFC 3264)."""

    host: str
    """Numeric address; 0.0.0.0, :: or port 0 = nowhere to send."""
    port: int
    payload_type: int = 0
    payload_name: str = "PCMU"
    """Encoding name. The media process knows the bytes of PCMU and PCMA; any other needs
    ``silence``."""
    ptime_ms: int = 20
    telephone_event_pt: int | None = None
    """Payload type of RFC 4733 events; None = not offered."""
    send: bool = True
    """False = on hold by the far end; the queue is kept."""
    receive: bool = True
    """False = on hold by us; what comes is dropped."""
    rtcp_port: int | None = None
    """RTCP port; None = the port above (RFC 3605)."""
    also_receive: tuple[int | tuple[int, int], ...] = ()
    """Further inbound payload types: each a number, or number and clock in Hz."""
    rtcp_mux: bool = False
    clock_hz: int = CLOCK_HZ
    silence: str = ""
    """Silent frame of ``ptime_ms``, hexadecimal; "" = G.711's idle code."""
    telephone_event_hz: int = CLOCK_HZ
    telephone_event_in: tuple[int, ...] = ()
    """Further payload types of inbound events (RFC 3264 section 5.1)."""
    comfort_noise_pt: int | None = None
    """Payload type of comfort noise (RFC 3389); None = not agreed."""
    comfort_noise_level: int = 70
    """Level of our noise, -dBov (0 to 127)."""
    srtp_send: SrtpKey | None = None
    """Key of what we send; None = plain RTP."""
    srtp_receive: SrtpKey | None = None
    """Key of what the far end sends."""
    signalling_host: str = ""
    """Numeric address of the signalling; "" = unknown."""
    confirm_within_s: float = 0.0
    """Sending to ``host`` stops after this time without a packet from it; 0 = never."""

    def __post_init__(self) -> None:
        if self.payload_name not in SILENCE and not self.silence:
            raise ValueError(
                f"payload_name={self.payload_name!r}: PCMU or PCMA have an idle code, any other "
                "needs a silent frame as silence"
            )
        if self.ptime_ms not in PTIMES_MS:
            raise ValueError(f"ptime_ms={self.ptime_ms} is no multiple of 10 up to 120")
        for name in ("payload_type", "telephone_event_pt", "comfort_noise_pt"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 127:
                raise ValueError(f"{name}={value} is not between 0 and 127")
        for name, hz in (
            ("clock_hz", self.clock_hz),
            ("telephone_event_hz", self.telephone_event_hz),
            *(("also_receive", hz) for hz in self.clocks().values()),
        ):
            if not CLOCKS_HZ[0] <= hz <= CLOCKS_HZ[1] or hz % 100:
                raise ValueError(f"{name}: a clock of {hz} Hz is not between 8000 and 192000")
        if any(not 0 <= number <= 127 for number in self.clocks()):
            raise ValueError(f"also_receive={self.also_receive}: payload types are 0 to 127")
        if not 0 <= self.comfort_noise_level <= 127:
            raise ValueError(
                f"comfort_noise_level={self.comfort_noise_level} is not between 0 and 127 -dBov"
            )
        try:
            silent = bytes.fromhex(self.silence)
        except ValueError:
            raise ValueError("silence is no row of hexadecimal digits") from None
        if len(silent) > SILENT_MOST:
            raise ValueError(f"silence of {len(silent)} bytes is longer than {SILENT_MOST}")
        if family(self.host) is None:  # a name would be looked up in the middle of a slot
            raise ValueError(f"host={self.host!r} is no numeric IPv4 or IPv6 address")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} is not between 0 and 65535")

    @property
    def ticks(self) -> int:
        return self.clock_hz * self.ptime_ms // 1000

    def silent_frame(self) -> bytes:
        if self.silence:
            return bytes.fromhex(self.silence)
        return SILENCE[self.payload_name] * self.ticks

    def clocks(self) -> dict[int, int]:
        further = (
            (each, CLOCK_HZ) if isinstance(each, int) else each for each in self.also_receive
        )
        return dict([*further, (self.payload_type, self.clock_hz)])


def family(host: str) -> socket.AddressFamily | None:
    """Return the family of a numeric address; None = not numeric."""
    for kind in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(kind, host)
        except (OSError, ValueError):
            continue
        return kind
    return None


def leg_spec(fields: Mapping[str, Any]) -> LegSpec:
    values = {**fields, "port_range": tuple(fields["port_range"])}
    if values.get("impairment") is not None:
        values["impairment"] = Impairment(**values["impairment"])
    return LegSpec(**values)


def remote_media(fields: Mapping[str, Any]) -> RemoteMedia:
    values = dict(fields)
    for name in ("srtp_send", "srtp_receive"):
        if values.get(name) is not None:
            values[name] = SrtpKey(**values[name])
    values["telephone_event_in"] = tuple(values["telephone_event_in"])
    values["also_receive"] = tuple(
        each if isinstance(each, int) else (each[0], each[1]) for each in values["also_receive"]
    )
    return RemoteMedia(**values)


@dataclass(frozen=True)
class Dtmf:
    """Key pressed and released at the far end; sent once."""

    digit: str
    duration_ms: int
    at: float
    """Arrival of its first packet (CLOCK_MONOTONIC, seconds)."""


@dataclass(frozen=True)
class DtmfStarted:
    """Key pressed at the far end; a `Dtmf` follows at its release."""

    digit: str
    at: float


@dataclass(frozen=True)
class MediaStarted:
    """Packets come from this source, which is locked now."""

    source: tuple[str, int]
    ssrc: int
    at: float


@dataclass(frozen=True)
class MediaTimeout:
    """Nothing has come for ``silent_s`` seconds; sent once until it comes."""

    silent_s: float
    at: float


@dataclass(frozen=True)
class SourceRejected:
    """Packets of a stranger were dropped; sent at most once a second."""

    source: tuple[str, int]
    count: int
    """Packets of strangers since the call began."""
    at: float


@dataclass(frozen=True)
class ContextPlayed:
    """The last frame of a finished context was sent."""

    context: int
    at: float


@dataclass(frozen=True)
class RemoteBye:
    """RTCP BYE of the far end (RFC 3550 section 6.6)."""

    at: float


@dataclass(frozen=True)
class LegFailed:
    """Failure in the media process; the leg is closed."""

    cause: str
    at: float


@dataclass(frozen=True)
class KeysIgnored:
    """Keys faster than a person presses them are ignored.

    Sent once, `LegStats.keys_ignored` counts.
    """

    at: float


@dataclass(frozen=True)
class SendingPaused:
    """Sending stopped: nothing came from the announced host."""

    host: str
    at: float


@dataclass(frozen=True)
class SendingResumed:
    """Sending resumed: something came from that host."""

    at: float


MediaEvent = (
    Dtmf
    | DtmfStarted
    | KeysIgnored
    | MediaStarted
    | MediaTimeout
    | SourceRejected
    | ContextPlayed
    | RemoteBye
    | LegFailed
    | SendingPaused
    | SendingResumed
)
EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Dtmf,
        DtmfStarted,
        KeysIgnored,
        MediaStarted,
        MediaTimeout,
        SourceRejected,
        ContextPlayed,
        RemoteBye,
        LegFailed,
        SendingPaused,
        SendingResumed,
    )
}
FROM_FAR_END = frozenset({"Dtmf", "DtmfStarted", "MediaStarted", "SourceRejected", "RemoteBye"})
"""Events that a far end can cause at will; they are bounded."""


@dataclass(frozen=True)
class DroppedContext:
    """Part of one utterance that an interruption dropped."""

    context: int
    frames: int
    samples: int
    played: int
    """Position up to which it was sent, samples of the context's rate."""


@dataclass(frozen=True)
class Dropped:
    """Result of an interruption in the media process."""

    epoch: int
    at: float
    """Slot at which it fell silent (CLOCK_MONOTONIC, seconds)."""
    contexts: tuple[DroppedContext, ...]


@dataclass(frozen=True)
class MediaSettings:
    """Settings of the media process."""

    scheduling: str = "auto"
    """``auto`` = fifo, else nice, else plain; or one of these."""
    priority: int = 15
    """Of SCHED_FIFO (1 to 99)."""
    groups: int = 20
    """Calls are spread over so many instants of a slot, 1 ms apart."""
    receive_every_s: float = 0.002
    """Least interval of polling sockets; arrival times are the kernel's."""
    start_timeout_s: float = 10.0
    """Longest wait for the process to start."""
    answer_timeout_s: float = 5.0
    """Limit of silence and of answers, after which the process is killed; it reports five times
    within it."""
    learnt: Mapping[str, Any] = field(default_factory=dict)
    """Knowledge of earlier calls' filling policies."""

    def __post_init__(self) -> None:
        if self.scheduling not in ("auto", "fifo", "nice", "plain"):
            raise ValueError(f"scheduling={self.scheduling!r}: auto, fifo, nice or plain")
        if not 1 <= self.priority <= 99:
            raise ValueError(f"priority={self.priority} is not between 1 and 99")
        if not 1 <= self.groups <= 20:
            raise ValueError(f"groups={self.groups} is not between 1 and 20")
        if not 0.1 <= self.answer_timeout_s <= 60.0:
            raise ValueError(
                f"answer_timeout_s={self.answer_timeout_s} is not between 0.1 and 60 seconds"
            )
