"""Sections of a phone's settings file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from qwen3tts_phone.audio.answering import AnsweringSettings
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.dialling.retries import RetryPolicy
from qwen3tts_phone.media.types import MediaSettings
from qwen3tts_phone.settings.phone import PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import GateSettings, SipSettings
from qwen3tts_settings.constraints import bounded, check_fields
from qwen3tts_speech.record_sinks import endpoint_of

_PHONE = PhoneSettings()
"""Source of the defaults."""


@dataclass(frozen=True, slots=True)
class SettingsWarning:
    words: str
    remedy: str
    where: str
    """File and line."""

    def __str__(self) -> str:
        return f"{self.words} ({self.where}). {self.remedy}".rstrip()


@dataclass(frozen=True)
class MediaConfig:
    codecs: tuple[str, ...] = _PHONE.codecs
    """SDP names of codecs, in order of preference."""
    ptime_ms: int = _PHONE.ptime_ms
    """Milliseconds of sound a packet, 10 to 60, as we ask for it."""
    srtp: Literal["off", "accept", "require"] = "accept"
    """``off``: plain RTP only. ``accept``: encrypted where the far end asks for it. ``require``:
    nothing else."""
    comfort_noise: Literal["off", "accept", "offer"] = "accept"
    """Noise in pauses in place of packets (RFC 3389): never, where the far end offers it, or
    offered by us too."""
    dtmf: Literal["auto", "rfc4733", "info"] = "auto"
    """Transport of DTMF: in RTP, in SIP's INFO, or as the far end takes it."""
    rtp_ports: tuple[int, int] = _PHONE.rtp_ports
    """Lowest and highest port of RTP and RTCP; a call takes two. [0, 0] lets the system choose."""
    host: str | None = None
    """Address that RTP is bound to; the one of ``listen`` if left out."""
    continuous: bool = _PHONE.continuous
    """Send silence between utterances; some firewalls and PBXs hang up without."""
    symmetric: bool = _PHONE.symmetric
    """Send RTP where it comes from (RFC 4961), as NAT requires."""
    third_hosts: Literal["pause", "trusted", "send"] = "trusted"
    """Sound to a host that the far end describes, that is not where its SIP comes from, and that
    sends nothing. ``pause``: it ends after 5 s. ``trusted``: it goes on for accounts' servers and
    ``safety.gate.trusted``. ``send``: for all."""
    freeze_heap: bool = _PHONE.freeze_heap
    """Exclude objects loaded before the phone from garbage collection."""
    jitter_max_s: float = _PHONE.jitter_max_s
    """Longest wait for a missing packet of the caller."""
    silent_s: float = _PHONE.media_silent_s
    """Time without packets of the far end until an event and a warning."""
    vanished_s: float = _PHONE.vanished_s
    """A call ends after this time without RTP, if SIP gets no answer either. 0 = never."""
    process: MediaSettings = field(default_factory=MediaSettings)
    """The process that sends and receives RTP."""


@dataclass(frozen=True)
class SpeechConfig:
    server: str | None = None
    """The speech server, such as ws://127.0.0.1:8765/v1/speech; the commands start one of their
    own if left out."""
    voice: str | None = _PHONE.voice
    """The server's own if left out; `mr-qwen3tts voices` lists them."""
    language: str | None = _PHONE.language
    """Language of the text, such as de or en-GB."""
    speed: float | None = bounded(0.5, 2.5, default=None)
    """Factor on the rate of speech, 0.5 to 2.5."""
    mode: Literal["auto", "clause", "live", "whole", "whole_streaming"] | None = None
    """Segmentation of text; see `mr-qwen3tts call --help-all`."""
    instructions: str | None = None
    """Style instructions in words."""
    seed: int | None = bounded(0, default=None)
    """The same number, text and voice give the same speech."""
    latency_log: Path | None = None
    """One JSON line an utterance is appended here."""
    unavailable_file: Path | None = None
    """WAV file (16-bit PCM) that callers hear while no speech server can be reached; then their
    call ends. Left out: they are refused with 503 and Retry-After."""
    otel: str | None = None
    """Collector of OpenTelemetry that gets a span of each utterance, such as
    http://127.0.0.1:4318; "1": that of the OTEL_* variables."""

    def __post_init__(self) -> None:
        endpoint_of(self.otel)
        check_fields(self)
        if self.server is not None and not self.server.startswith(("ws://", "wss://")):
            raise ValueError(f"server={self.server!r} does not begin with ws:// or wss://")

    @property
    def options(self) -> dict[str, Any]:
        """Options besides voice and language, as ``context.open`` has them."""
        given = {
            "speed": self.speed,
            "mode": self.mode,
            "instructions": self.instructions,
            "seed": self.seed,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class SafetyConfig:
    gate: GateSettings = field(default_factory=GateSettings)
    """Limits of each source of SIP messages."""
    guard: GuardSettings = field(default_factory=GuardSettings)
    """Numbers that may be dialled, how often and how long."""
    transfers: Literal["refuse", "ask", "accept"] = "refuse"
    """Handling of a transfer by the far end; the guard applies to accepted ones."""


@dataclass(frozen=True)
class OutboundConfig:
    retry: RetryPolicy | None = None
    """Outcomes that are retried, when and how often; none if left out."""
    on_machine: Literal["speak", "hang-up", "after-beep"] = "speak"
    """Action of `call` when an answering machine takes it."""
    answering: AnsweringSettings = field(default_factory=AnsweringSettings)
    """Thresholds of answering machine detection."""


@dataclass(frozen=True)
class PhoneConfig:
    """A whole settings file. Raises ValueError."""

    listen: SipSettings = field(default_factory=SipSettings)
    """Addresses, names and certificate of SIP."""
    accounts: tuple[Account, ...] = ()
    """Accounts to register, then trunks; the first one is used where a call names none."""
    require_registration: bool = _PHONE.require_registration
    """End the phone at the start when a registrar does not take it; False: keep
    trying."""
    media: MediaConfig = field(default_factory=MediaConfig)
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    hearing: ListenSettings | None = None
    """Ends of turns and barge-in of calls that listen; ``preset`` sets the figures."""
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    records: RecordSettings = field(default_factory=RecordSettings)
    """Records and recordings."""
    outbound: OutboundConfig = field(default_factory=OutboundConfig)
    remarks: tuple[SettingsWarning, ...] = field(default=(), compare=False)
    """Warnings; not part of the file."""

    def settings(self) -> PhoneSettings:
        media, speech, safety = self.media, self.speech, self.safety
        return replace(
            _PHONE,
            sip=self.listen,
            accounts=self.accounts,
            require_registration=self.require_registration,
            host=media.host or _PHONE.host,
            max_calls=self.listen.max_calls,
            codecs=media.codecs,
            ptime_ms=media.ptime_ms,
            srtp=media.srtp,
            comfort_noise=media.comfort_noise,
            dtmf=media.dtmf,
            rtp_ports=media.rtp_ports,
            continuous=media.continuous,
            symmetric=media.symmetric,
            third_hosts=media.third_hosts,
            jitter_max_s=media.jitter_max_s,
            freeze_heap=media.freeze_heap,
            media_silent_s=media.silent_s,
            vanished_s=media.vanished_s,
            media=media.process,
            server_url=speech.server or _PHONE.server_url,
            voice=speech.voice,
            language=speech.language,
            options=speech.options,
            latency_log=speech.latency_log,
            unavailable_file=speech.unavailable_file,
            otel=speech.otel,
            gate=safety.gate,
            guard=safety.guard,
            transfers=safety.transfers,
            records=self.records,
        )
