"""What the parent and the media process tell each other about a call's media: plain values."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_phone.sdp.crypto import SrtpKey

SILENCE = {"PCMU": b"\xff", "PCMA": b"\xd5"}
"""The idle code word of the payloads of which one is a tick long (ITU-T G.711)."""
CLOCK_HZ = 8000
"""RTP clock of PCMU, PCMA, G722, telephone-event and CN (RFC 3551 table 4)."""
CLOCKS_HZ = (8000, 192_000)
"""The slowest and the fastest RTP clock that is taken."""
PTIMES_MS = tuple(range(10, 130, 10))
"""Packet durations that can be sent, milliseconds."""
SILENT_MOST = 4096
"""Bytes of a silent frame, at most."""


@dataclass(frozen=True)
class LegSpec:
    """How a leg's sockets are opened and its media watched."""

    local_host: str = "127.0.0.1"
    """A local address, numeric; 0.0.0.0 for all of IPv4, :: for all of IPv6 and IPv4."""
    port_range: tuple[int, int] = (0, 0)
    """Lowest and highest port to try; (0, 0) lets the system choose. RTP gets an even port, RTCP
    the one above it (RFC 3550 section 11)."""
    continuous: bool = True
    """Send silence between utterances; False sends nothing then, and marks what follows. Where
    comfort noise was agreed, it takes the place of both."""
    symmetric: bool = True
    """Send to where media comes from, once it does (RFC 4961). False: send to the announced
    address only, and listen to that host only."""
    timeout_s: float = 20.0
    """`MediaTimeout` after so long without a packet where one was due; 0 = never."""
    rtcp_interval_s: float = 5.0
    """Mean time between reports (RFC 3550 section 6.2); 0 = none."""
    jitter_max_s: float = 0.2
    """The longest wait for a packet that is missing."""
    pinned_s: float | None = None
    """A fixed wait before an utterance's first frame; None = adapted."""
    ring_slots: int = 512
    """Frames that may wait for their turn, 20 ms each."""

    def __post_init__(self) -> None:
        low, high = self.port_range
        if (low, high) != (0, 0) and not 1 <= low < high <= 65535:
            raise ValueError(f"port_range={self.port_range}: two ports, low below high, or (0, 0)")
        if not 0.0 <= self.jitter_max_s <= 1.0:
            raise ValueError(f"jitter_max_s={self.jitter_max_s} is not between 0 and 1 second")


@dataclass(frozen=True)
class RemoteMedia:
    """What was agreed with the far end (RFC 3264)."""

    host: str
    """Its address for media, numeric; 0.0.0.0, :: or port 0 = nowhere to send yet."""
    port: int
    payload_type: int = 0
    payload_name: str = "PCMU"
    """Encoding name of the rtpmap attribute. The media process knows the bytes of PCMU and PCMA
    only, any other needs ``silence``."""
    ptime_ms: int = 20
    telephone_event_pt: int | None = None
    """Payload type of RFC 4733 events; None = not offered."""
    send: bool = True
    """False: we are not to send (the far end holds us). What is queued is kept."""
    receive: bool = True
    """False: what comes is dropped (we hold the far end)."""
    rtcp_port: int | None = None
    """Where its RTCP goes; None = the port above (RFC 3605)."""
    also_receive: tuple[int | tuple[int, int], ...] = ()
    """Further payload types that the far end may send (an answer may name several): each a number,
    or the number with its clock in Hz."""
    rtcp_mux: bool = False
    """RTCP on the RTP port (RFC 5761)."""
    clock_hz: int = CLOCK_HZ
    """RTP clock of the payload: 8000, for Opus 48000."""
    silence: str = ""
    """One whole silent frame of ``ptime_ms`` as hexadecimal digits; "" = G.711's idle code."""
    telephone_event_hz: int = CLOCK_HZ
    """Clock in which the length of a key is told."""
    telephone_event_in: tuple[int, ...] = ()
    """Further payload types that keys may come with: those of our own offer, where the answer has
    another number (RFC 3264 section 5.1)."""
    comfort_noise_pt: int | None = None
    """Payload type of comfort noise (RFC 3389), mostly 13; None = not agreed. With it a pause is
    told by a packet now and then instead of silence."""
    comfort_noise_level: int = 70
    """Level of the noise that we send, -dBov (0 to 127)."""
    srtp_send: SrtpKey | None = None
    """Key of what we send; None = not encrypted."""
    srtp_receive: SrtpKey | None = None
    """Key of what the far end sends; what it does not authenticate is dropped then."""
    signalling_host: str = ""
    """Address that the call's signalling comes from, numeric; "" = not known."""
    confirm_within_s: float = 0.0
    """Sending to ``host`` ends after this time if nothing has come from it, and goes on when
    something does; 0 = never."""

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
        """Steps of the RTP clock in one packet."""
        return self.clock_hz * self.ptime_ms // 1000

    def silent_frame(self) -> bytes:
        """What is sent while nobody speaks."""
        if self.silence:
            return bytes.fromhex(self.silence)
        return SILENCE[self.payload_name] * self.ticks

    def clocks(self) -> dict[int, int]:
        """The clock of each payload type that may carry what the far end says, in Hz."""
        further = (
            (each, CLOCK_HZ) if isinstance(each, int) else each for each in self.also_receive
        )
        return dict([*further, (self.payload_type, self.clock_hz)])


def family(host: str) -> socket.AddressFamily | None:
    """The family of a numeric address; None = it is none."""
    for kind in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(kind, host)
        except (OSError, ValueError):
            continue
        return kind
    return None


def remote_media(fields: Mapping[str, Any]) -> RemoteMedia:
    """What `dataclasses.asdict` and JSON made of one, put together again."""
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
    """A key was pressed at the far end and let go; told once."""

    digit: str
    duration_ms: int
    at: float
    """When its first packet came (CLOCK_MONOTONIC, seconds)."""


@dataclass(frozen=True)
class DtmfStarted:
    """A key went down at the far end; a `Dtmf` follows when it is let go."""

    digit: str
    at: float


@dataclass(frozen=True)
class MediaStarted:
    """Packets come from this source; it is the one that is listened to from now on."""

    source: tuple[str, int]
    ssrc: int
    at: float


@dataclass(frozen=True)
class MediaTimeout:
    """Nothing has come for ``silent_s`` seconds although it should; told once until it comes."""

    silent_s: float
    at: float


@dataclass(frozen=True)
class SourceRejected:
    """Packets of a stranger were dropped; told at most once a second."""

    source: tuple[str, int]
    count: int
    """Packets of strangers dropped since the call began."""
    at: float


@dataclass(frozen=True)
class ContextPlayed:
    """The last frame of a finished context went out."""

    context: int
    at: float


@dataclass(frozen=True)
class RemoteBye:
    """The far end's stream says by RTCP that it ends (RFC 3550 section 6.6)."""

    at: float


@dataclass(frozen=True)
class LegFailed:
    """Something broke in the media process while it served this leg; the leg is closed."""

    cause: str
    at: float


@dataclass(frozen=True)
class KeysIgnored:
    """The far end presses keys faster than a person can, and the ones beyond that are not taken;
    sent once a call, `LegStats.keys_ignored` counts them."""

    at: float


@dataclass(frozen=True)
class SendingPaused:
    """Nothing is sent any more, since nothing has come from the host that was announced."""

    host: str
    at: float


@dataclass(frozen=True)
class SendingResumed:
    """Something has come from that host: packets are sent again."""

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
"""Events that a far end can cause as often as it likes; they are bounded, and dropped beyond."""


@dataclass(frozen=True)
class DroppedContext:
    """What an interruption took from one utterance."""

    context: int
    frames: int
    """Frames written and never sent."""
    samples: int
    """The samples in them, at the context's rate."""
    played: int
    """Position up to which it was sent, samples of the context's rate."""


@dataclass(frozen=True)
class Dropped:
    """What the media process did at an interruption: a fact, not a guess."""

    epoch: int
    at: float
    """The slot at which it fell silent (CLOCK_MONOTONIC, seconds)."""
    contexts: tuple[DroppedContext, ...]


@dataclass(frozen=True)
class LegStats:
    """Counters since the leg was opened, and the latest measurements."""

    sent: int
    """Packets."""
    speech_sent: int
    """Packets that carried speech."""
    skipped_slots: int
    """Slots that passed unsent because the machine was late."""
    starvations: int
    send_errors: int
    received: int
    """Valid packets of the far end."""
    lost: int
    """Packets of the far end that never came, or came too late."""
    late: int
    """Of these: came, too late."""
    duplicates: int
    concealed: int
    """Holes handed on in place of packets that did not come in time, one each."""
    jitter_ms: float
    """Interarrival jitter (RFC 3550 section 6.4.1)."""
    jitter_wait_ms: float
    """How long a missing packet is waited for now."""
    strangers: int
    malformed: int
    """Datagrams that are no RTP or RTCP packets."""
    unknown_payload: int
    inbound_overrun: int
    """Received frames dropped because nobody read them."""
    dtmf_in: int
    dtmf_out: int
    rtcp_in: int
    rtcp_out: int
    remote_lost: int
    """Our packets that the far end reports as lost."""
    remote_fraction_lost: float
    """Share lost in its last report, 0 to 1."""
    remote_jitter_ms: float
    round_trip_ms: float | None
    """None until a report came that tells it (RFC 3550 section 6.4.1)."""
    lateness_max_ms: float
    """The latest that a slot was served after its time; 0 = never more than 0.1 ms."""
    octets_sent: int = 0
    """Bytes of payload."""
    octets_received: int = 0
    fraction_lost: float = 0.0
    """Share of the far end's packets that never came, 0 to 1, since the leg was opened."""
    loss_bursts: int = 0
    """Runs of packets in a row that did not come in time."""
    burst_lost: int = 0
    """Packets in these runs, late ones included."""
    srtp_failed: int = 0
    """Packets dropped because their key or content did not authenticate."""
    srtp_replayed: int = 0
    """Authentic packets dropped because they had come before (RFC 3711 section 3.3.2)."""
    cn_in: int = 0
    """Packets of comfort noise."""
    cn_out: int = 0
    first_sent_at: float | None = None
    """When the first packet went out (CLOCK_MONOTONIC, seconds); None = none yet."""
    first_received_at: float | None = None
    """When the first valid packet of the far end came."""
    last_received_at: float | None = None
    remote_address: tuple[str, int] | None = None
    """The source that is listened to; None = none yet."""
    source_changes: int = 0
    """Times that another source, or another stream (SSRC), took the place of the first."""
    remote_fraction_max: float = 0.0
    """The greatest share lost that a report of the far end told, 0 to 1."""
    round_trip_max_ms: float | None = None
    """The longest round trip that was measured."""
    keys_ignored: int = 0
    """Keys of the far end that came faster than a person presses them, and were not taken."""
    events_dropped: int = 0
    """Events of the far end beyond what one call may cause, dropped."""


@dataclass(frozen=True)
class MediaSettings:
    """How the media process runs."""

    scheduling: str = "auto"
    """auto: fifo, else nice, else plain; or one of these three."""
    priority: int = 15
    """Of SCHED_FIFO (1 to 99)."""
    groups: int = 20
    """Calls are spread over so many instants of a slot, 1 ms apart."""
    receive_every_s: float = 0.002
    """Sockets are looked at no more often than this; arrival times are the kernel's."""
    start_timeout_s: float = 10.0
    """Longest wait for the process to come up."""
    answer_timeout_s: float = 5.0
    """A process that has sent nothing, or not answered a command, for this time is killed; it
    reports five times within it."""
    learnt: Mapping[str, Any] = field(default_factory=dict)
    """What filling policies of earlier calls have learnt."""

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
