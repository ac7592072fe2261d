"""Plugin settings, read at each use: an edit counts immediately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from .variables import (
    COMMAND_LINE,
    HOSTS,
    OLDER,
    PREFIX,
    Getenv,
    Rule,
    SettingsError,
    address,
    budget,
    codes,
    collector,
    environment,
    flag,
    host_name,
    listening,
    names,
    near,
    one_of,
    patterns,
    ports,
    real,
    take_older,
    whole,
    words,
    wrong,
)

__all__ = ["Settings", "SettingsError"]

BARRIER = frozenset(
    {"hangup", "end_call", "send_dtmf", "transfer", "transfer_call", "play_audio", "wait", "call"}
)
"""Commands that would cut or interrupt speech."""


def _setting(
    ask: Callable[[Getenv], str | None], rule: Rule, default: Any, *, secret: bool = False
) -> Any:
    """Declare a field set by a variable.

    ``ask`` spells the call out for the host's editor, which searches the source.
    """
    kept = {"ask": ask, "rule": rule, "secret": secret}
    return field(default=default, metadata=kept, repr=not secret)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings; raises SettingsError, a ValueError."""

    url: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_URL"), address(), "ws://127.0.0.1:8765/v1/speech"
    )
    """Main speech server."""
    api_key: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_API_KEY"), words(4096), None, secret=True
    )
    """Its API key; None: ``QWEN3TTS_API_KEY``."""
    fallback_url: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_FALLBACK_URL"), address(), None
    )
    """Server used while the main one is down."""
    voice: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_VOICE"), words(4096), None)
    """Default voice: a name at the server, ``clone:NAME``, an absolute path or the http address of
    a recording. None: the server's."""
    language: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_LANGUAGE"), words(64), None)
    """BCP 47 tag or English name; None: the voice's own, or detected."""
    instructions: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_INSTRUCTIONS"), words(4096, lines=True), None
    )
    """Style instructions, where the engine takes them."""
    mode: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_MODE"), one_of("auto", "clause", "live"), "auto"
    )
    """Mode of synthesis."""
    speed: float | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SPEED"), real(0.5, 2.5), None)
    """Factor on the rate of speech."""
    seed: int | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SEED"), whole(0, 2**63 - 1), None
    )
    """Random seed."""
    initial_codec_chunk_frames: int | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_INITIAL_FRAMES"), whole(1, 100), None
    )
    """Codec frames of the first audio chunk; None: the engine's."""
    ref_audio: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_REF_AUDIO"), words(4096), None
    )
    """Default recording to clone, absolute path or http address; before ``voice``, which speaks
    where the engine cannot clone."""
    ref_text: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_REF_TEXT"), words(4096, lines=True), None
    )
    """Transcript of ``ref_audio``."""
    recordings_dir: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RECORDINGS_DIR"), words(4096), None
    )
    """Folder of personas' recordings, besides the host's ``personas``."""
    private_recordings: bool = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_PRIVATE_RECORDINGS"), flag(), False
    )
    """True if web addresses may lead to this machine and private networks."""
    voice_wait_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_VOICE_WAIT_MS"), whole(0, 10_000), 800
    )
    """Longest wait for a voice being prepared; then the next best one speaks."""
    freeze_heap: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_FREEZE_HEAP"), flag(), True)
    """True keeps the garbage collector off the host's loaded objects during speech; read at the
    start."""
    live: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_LIVE"), flag(), True)
    """True speaks partial commands as they come."""
    lead_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_LEAD_MS"), whole(20, 200, 20), 60)
    """Playout lead of the SIP service: audio still heard after a stop.

    40 to 80 covers a busy event loop.
    """
    wait_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_WAIT_MS"), whole(0, 30_000), 1200)
    """Longest wait for a server; the host regenerates a turn without audio for 1500 ms."""
    resume_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RESUME_MS"), whole(0, 30_000), 3000
    )
    """Time for which a reply under way looks for a server."""
    stall_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_STALL_MS"), whole(100, 60_000), 4000
    )
    """Watchdog timeout of a server that has text and sends no audio."""
    return_ahead_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RETURN_AHEAD_MS"), whole(0, 10_000), 1500
    )
    """Unplayed audio at which ``speak`` returns, so that the next command's first clause is made
    meanwhile."""
    linger_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_LINGER_MS"), whole(0, 10_000), 300)
    """Time an audio response stays open after a turn's last frame."""
    idle_s: float = _setting(lambda getenv: getenv("MR_QWEN3TTS_IDLE_S"), real(1, 86_400), 600.0)
    """Idle time after which a conversation is forgotten."""
    barrier: frozenset[str] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_BARRIER"), names(), BARRIER
    )
    """Commands that wait for the end of playback; ``*``: all."""
    barrier_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_BARRIER_MS"), whole(0, 600_000), 30_000
    )
    """Longest such wait."""
    partial_stall_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_PARTIAL_STALL_MS"), whole(100, 600_000), 10_000
    )
    """Timeout of partials without a command; then they count as cancelled."""
    markup: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_STRIP_MARKUP"), flag(), True)
    """True removes markdown and tags."""
    local: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LOCAL"), one_of("wav", "play", "off"), "wav"
    )
    """Playback without a SIP service."""
    local_dir: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LOCAL_DIR"), words(4096), None
    )
    """Folder of its WAV files; None: below the host's ``data``."""
    log_text: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_LOG_TEXT"), flag(), False)
    """True if spoken text may stand in logs and on the admin page."""
    latency_log: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LATENCY_LOG"), words(4096), None
    )
    """File of one JSON line an utterance."""
    e2e_log: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_E2E_LOG"), words(4096), None)
    """File for mr_sip's ``sip_e2e_latency_calc.py``."""
    otel: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_OTEL"), collector(), None, secret=True
    )
    """OpenTelemetry collector of utterance spans; 1: as ``OTEL_*`` says."""
    sip_listen: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_LISTEN"), listening(), None
    )
    """Address of our own telephone, without mr_sip; None: chosen."""
    sip_advertised: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ADVERTISED"), host_name(), None
    )
    """Host behind address translation."""
    sip_rtp_ports: tuple[int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_RTP_PORTS"), ports(), (0, 0)
    )
    """Lowest and highest RTP port; (0, 0): any."""
    sip_server: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_SERVER"), words(1024), None
    )
    """Registrar, host or SIP URI."""
    sip_user: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SIP_USER"), words(256), None)
    """User name at it."""
    sip_password: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PASSWORD"), words(1024), None, secret=True
    )
    sip_agent: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_AGENT"), words(256), None
    )
    """Agent that answers calls; None: they are refused."""
    sip_allow: tuple[str, ...] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ALLOW"), patterns(), ()
    )
    """Patterns of numbers that may be called; empty: all but emergency numbers."""
    sip_transfers: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_TRANSFERS"), one_of("refuse", "accept"), "refuse"
    )
    """Reaction to a REFER."""
    sip_answer_s: float = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ANSWER_S"), real(1, 600), 120.0
    )
    """Answer timeout, seconds."""
    sip_max_calls: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_MAX_CALLS"), whole(1, 1000), 20
    )
    """Concurrent calls."""
    sip_unavailable_file: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_UNAVAILABLE_FILE"), words(4096), None
    )
    """WAV file for callers while no speech server is up; None: 503."""
    sip_call_budget: tuple[int, int, int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_CALL_BUDGET"), budget(), (60, 2000, 20_000, 500_000)
    )
    """Turns and characters of one call, a minute and in all; 0: unlimited."""
    sip_process_budget: tuple[int, int, int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PROCESS_BUDGET"), budget(), (600, 0, 200_000, 0)
    )
    """The same for all calls together."""
    sip_too_many: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_TOO_MANY"),
        words(1024),
        "I need a moment before I can answer more. Please stay on the line.",
    )
    """Sentence when a minute's turns are used up."""
    sip_used_up: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_USED_UP"),
        words(1024),
        "I am sorry, I cannot answer any more in this call. Thank you for calling.",
    )
    """Sentence before a call without turns left is ended."""
    sip_audio_in_pipeline: bool = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_AUDIO_IN_PIPELINE"), flag(), False
    )
    """True if callers' audio goes to the host's pipe ``sip_audio_in``."""
    sip_stt: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SIP_STT"), words(1024), None)
    """Recogniser of our own telephone, as `recogniser_named` takes it; None: none.

    Read at the start.
    """
    sip_stt_languages: tuple[str, ...] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_STT_LANGUAGES"), codes(), ()
    )
    """Languages of callers; empty: detected."""
    sip_pause_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PAUSE_MS"), whole(100, 5000), 600
    )
    """Pause that ends a caller's turn."""
    sip_overlap: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_OVERLAP"), one_of("duck", "stop"), "stop"
    )
    """Answer to a caller's voice over the agent's. Read at the start."""
    sip_smart_turn: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_SMART_TURN"), words(4096), None
    )
    """File of the turn detector Smart Turn, or ``auto``; None: none. Read at the start."""
    speak_command: str = _setting(lambda getenv: getenv("MR_SPEAK_CMD"), words(256), "speak")
    """The host's name of the speaking command, if renamed."""
    ignored: tuple[str, ...] = ()
    """Set variables of the older plugin without meaning here."""
    unknown: tuple[str, ...] = ()
    """Unknown variables with our prefix, with near names."""

    def __post_init__(self) -> None:
        for name, source in _sources().items():
            value = getattr(self, name)
            if not (value is None and source.default is None) and not source.rule.good(value):
                raise wrong(source.variable, source.rule, value, secret=source.secret)

    @property
    def commands(self) -> frozenset[str]:
        return frozenset(("speak", self.speak_command))

    @classmethod
    def read(cls, context: Any = None) -> Settings:
        """Return the context agent's or the process's settings.

        Cached while no variable changes.

        Raises:
            SettingsError: names the variable and its valid form.
        """
        settings, problems = cls.usable(context)
        if problems:
            first = problems[0]
            raise SettingsError(first.variable, first.message, remedy=first.remedy)
        return settings

    @classmethod
    def usable(cls, context: Any = None) -> tuple[Settings, tuple[SettingsError, ...]]:
        """Return valid settings, defaults in place of invalid ones, and the errors.

        Never raises.
        """
        return _parsed(tuple(sorted(environment(context).items())))


@dataclass(frozen=True, slots=True)
class _Source:
    """Source of a field's value."""

    ask: Callable[[Getenv], str | None]
    rule: Rule
    secret: bool
    default: Any

    @property
    def variable(self) -> str:
        return self.ask(str) or ""


@lru_cache(maxsize=1)
def _sources() -> dict[str, _Source]:
    return {
        each.name: _Source(**each.metadata, default=each.default)
        for each in fields(Settings)
        if each.metadata
    }


@lru_cache(maxsize=64)
def _parsed(held: tuple[tuple[str, str], ...]) -> tuple[Settings, tuple[SettingsError, ...]]:
    getenv = dict(held).get
    sources = _sources()
    written = {
        name: (source.variable, text)
        for name, source in sources.items()
        if (text := source.ask(getenv)) is not None
    }
    ignored = take_older(getenv, written)
    values: dict[str, Any] = {}
    problems: list[SettingsError] = []
    for name, (variable, text) in written.items():
        source = sources[name]
        try:
            value = source.rule.read(text)
            good = source.rule.good(value)
        except (ValueError, OverflowError):
            value, good = None, False
        if good:
            values[name] = value
        else:
            problems.append(wrong(variable, source.rule, text, secret=source.secret))
    if str(values.get("language", "")).lower() == "auto":
        del values["language"]
    known = {source.variable for source in sources.values()}
    unknown = (
        near(name, known - HOSTS, PREFIX)
        for name, _ in held
        if name not in known | OLDER | COMMAND_LINE
    )
    return Settings(**values, ignored=ignored, unknown=tuple(unknown)), tuple(problems)
