"""Settings of a phone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qwen3tts_codecs.payload import PTIMES_MS
from qwen3tts_codecs.table import codecs_by_name
from qwen3tts_phone.audio.wav import check_unavailable
from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.media.types import Impairment, LegSpec, MediaSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import MAX_CALLS, GateSettings, SipSettings, TlsSettings
from qwen3tts_settings.constraints import bounded, check_fields, one_of
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.record_sinks import endpoint_of

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CallMediaSettings:
    """Media of one outgoing call, where it differs from the phone's."""

    codecs: tuple[str, ...] | None = None
    """Names in order of preference; None = those of the phone or the account."""
    impairment: Impairment | None = None
    """Loss and jitter, for rehearsals."""


@dataclass(frozen=True, slots=True)
class PhoneSettings:
    """Settings of a phone: addresses, speech, rules and records.

    Raises ValueError whose text begins with the name of the field.
    """

    host: str = LOOPBACK
    """Address to bind SIP and RTP to; 0.0.0.0 for all."""
    port: int = 0
    """SIP port, UDP and TCP; 0 = any free one."""
    server_url: str | None = None
    """The synthesis server. None: that of the environment's ``MR_QWEN3TTS_SERVER``, else one that
    answers at ws://127.0.0.1:8765/v1/speech, else the phone starts a voice process of its own."""
    account: Account | None = None
    """Registers with it at the start, and answers challenges with it."""
    voice: str | None = None
    language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of ``context.open``, such as ``mode``, ``instructions`` or ``seed``."""
    codecs: tuple[str, ...] = ("PCMU", "PCMA")
    """Names of `qwen3tts_codecs.table.SDP_CODECS`, in order of preference."""
    ptime_ms: int = one_of(PTIMES_MS, default=20)
    """Length of a packet, where the far end asks for no other: 10 to 60."""
    rtp_ports: tuple[int, int] = (0, 0)
    """Lowest and highest RTP port; (0, 0) lets the system choose."""
    user: str = "agent"
    """User part of our own address; calls with an account, and to it, have the account's."""
    display_name: str = ""
    advertised_host: str = ""
    """Host in SIP and SDP; empty = the bound one, or the local address towards the peer."""
    record_path: Path | None = None
    """Stereo WAV of both directions; further calls get ``-2``, ``-3``, ... (0600)."""
    latency_log: Path | None = None
    """One JSON line an utterance is appended here."""
    otel: str | None = None
    """Collector that gets a span of each utterance (OpenTelemetry), such as http://127.0.0.1:4318;
    ``1``: that of the ``OTEL_*`` variables."""
    max_calls: int = MAX_CALLS
    media: MediaSettings = field(default_factory=MediaSettings)
    accounts: tuple[Account, ...] = ()
    """Further accounts and trunks, the preferred one first."""
    sip: SipSettings | None = None
    """Everything about SIP; then ``host`` to ``max_calls`` above say nothing about it, and RTP is
    bound where SIP is, unless ``host`` says otherwise."""
    tls: TlsSettings | None = None
    """Certificates for SIP over TLS, where ``sip`` does not have them."""
    guard: GuardSettings | None = None
    """Rules for outgoing calls; None = all but emergency services. Transfers are always guarded."""
    gate: GateSettings | None = None
    """Limits for each source of SIP messages; None = those of ``sip``, or the usual ones."""
    records: RecordSettings | None = None
    """Call records and recordings in a folder."""
    srtp: str = one_of(("off", "accept", "require"), default="accept")
    """``off``; ``accept`` = encrypted where the far end offers a key; ``require`` = never else."""
    comfort_noise: str = one_of(("off", "accept", "offer"), default="accept")
    """``off``; ``accept`` = silence is sent as comfort noise where the far end offers that;
    ``offer``."""
    dtmf: str = one_of(("auto", "rfc4733", "info"), default="auto")
    """Transport of DTMF: ``rfc4733``, ``info``, or ``auto`` = as the far end takes it."""
    transfers: str = one_of(("refuse", "ask", "accept"), default="refuse")
    """Reaction to a transfer request of the far end: ``refuse``, ``ask`` (an event) or
    ``accept``; always within the guard's rules."""
    media_silent_s: float = bounded(0, unit="seconds", default=20.0)
    """Time without packets of the far end until an event and a warning; 0 = never."""
    vanished_s: float = bounded(0, unit="seconds", default=60.0)
    """A call ends after this time without packets, if an OPTIONS gets no answer; 0 = never."""
    unavailable_file: Path | None = None
    """WAV file that callers hear while no speech server can be reached; then their call ends. None:
    they are refused with 503 and Retry-After."""
    require_registration: bool = True
    """Wait on entering until the accounts are registered, and fail without."""
    continuous: bool = True
    """Send silence between utterances, where no comfort noise is agreed."""
    symmetric: bool = True
    """Send media where it comes from (NAT)."""
    third_hosts: str = one_of(("pause", "trusted", "send"), default="trusted")
    """Sound to a host that the far end describes, that is not where its SIP comes from, and that
    sends nothing: ``pause`` = it ends after 5 s; ``trusted`` = it goes on for the accounts' servers
    and the gate's trusted networks alone; ``send`` = for all."""
    freeze_heap: bool = True
    """Exclude objects loaded before the phone's start from garbage collection, which
    interrupts audio. Later ones are collected when no call is up."""
    jitter_max_s: float = 0.2
    """Longest wait for a packet that is missing."""

    def __post_init__(self) -> None:
        check_fields(self)
        codecs_by_name(self.codecs)
        endpoint_of(self.otel)
        check_unavailable(self.unavailable_file)
        if self.vanished_s and not self.media_silent_s:
            raise ValueError("vanished_s needs media_silent_s above 0: silence is noticed by it")
        names = [account.name for account in self.all_accounts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"accounts: two have the name {twice!r}")
        self.leg_spec(LOOPBACK)

    @property
    def speech(self) -> VoiceOptions:
        return VoiceOptions(self.voice, self.language, dict(self.options))

    @property
    def all_accounts(self) -> tuple[Account, ...]:
        return (*((self.account,) if self.account is not None else ()), *self.accounts)

    @property
    def all_codecs(self) -> set[str]:
        further = (name for each in self.all_accounts for name in each.codecs or ())
        return {*self.codecs, *further}

    def sip_settings(self) -> SipSettings:
        if self.sip is not None:
            sip = self.sip
        else:
            sip = SipSettings(
                host=self.host,
                port=self.port,
                user=self.user,
                display_name=self.display_name,
                advertised_host=self.advertised_host,
                max_calls=self.max_calls,
            )
        if self.tls is not None and sip.tls is None:
            sip = replace(sip, tls=self.tls)
        if self.gate is not None:
            sip = replace(sip, gate=self.gate)
        return sip

    def leg_spec(self, towards: str) -> LegSpec:
        return LegSpec(
            local_host=self._media_host(towards),
            port_range=self.rtp_ports,
            continuous=self.continuous,
            symmetric=self.symmetric,
            timeout_s=self.media_silent_s,
            jitter_max_s=self.jitter_max_s,
        )

    def _media_host(self, towards: str) -> str:
        hosts: tuple[str, ...] = (self.host,)
        if self.sip is not None and self.host == LOOPBACK:
            hosts = self.sip.hosts
        six = ":" in towards
        return next((host for host in hosts if (":" in host) == six), hosts[0])
