"""The plugin's settings: read at each use, so that edits take effect immediately."""

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
"""Commands that would cut what is being said, or be heard in the middle of it."""


def _setting(
    ask: Callable[[Getenv], str | None], rule: Rule, default: Any, *, secret: bool = False
) -> Any:
    """A field that a variable sets.

    ``ask`` spells the call out because the host's editor of variables searches the source for it.
    """
    kept = {"ask": ask, "rule": rule, "secret": secret}
    return field(default=default, metadata=kept, repr=not secret)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the plugin was told; SettingsError, a ValueError, for what cannot be."""

    url: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_URL"), address(), "ws://127.0.0.1:8765/v1/speech"
    )
    """The speech server."""
    api_key: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_API_KEY"), words(4096), None, secret=True
    )
    """What it asks for; None is the environment's ``QWEN3TTS_API_KEY``."""
    fallback_url: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_FALLBACK_URL"), address(), None
    )
    """Another server that speaks while the first one is away."""
    voice: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_VOICE"), words(4096), None)
    """Who speaks where neither the call nor the persona says it: a name at the server,
    ``clone:NAME``, an absolute path or the http address of a recording. None: the server's."""
    language: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_LANGUAGE"), words(64), None)
    """BCP 47 tag or English name; None is the voice's own, or found out by the model."""
    instructions: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_INSTRUCTIONS"), words(4096, lines=True), None
    )
    """How to speak, in words, where the engine takes that."""
    mode: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_MODE"), one_of("auto", "clause", "live"), "auto"
    )
    """How text becomes speech."""
    speed: float | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SPEED"), real(0.5, 2.5), None)
    """Factor on the rate of speech."""
    seed: int | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SEED"), whole(0, 2**63 - 1), None
    )
    """Start of the random numbers."""
    initial_codec_chunk_frames: int | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_INITIAL_FRAMES"), whole(1, 100), None
    )
    """Codec frames in the first chunk of sound; None is the engine's choice."""
    ref_audio: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_REF_AUDIO"), words(4096), None
    )
    """Recording to clone, where neither call nor persona has a voice: absolute path or http
    address. It goes before ``voice``, which speaks where the engine cannot clone."""
    ref_text: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_REF_TEXT"), words(4096, lines=True), None
    )
    """What is said in ``ref_audio``."""
    recordings_dir: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RECORDINGS_DIR"), words(4096), None
    )
    """Folder of recordings that personas may name, beside the host's ``personas``."""
    private_recordings: bool = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_PRIVATE_RECORDINGS"), flag(), False
    )
    """Whether recordings' web addresses may lead to this machine and to private networks."""
    voice_wait_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_VOICE_WAIT_MS"), whole(0, 10_000), 800
    )
    """Longest wait for a voice that is being made ready; then the next best one speaks."""
    freeze_heap: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_FREEZE_HEAP"), flag(), True)
    """Whether the garbage collector is kept from looking through all that the host has loaded
    while somebody listens; read at the start."""
    live: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_LIVE"), flag(), True)
    """Whether partial commands are spoken as they come."""
    lead_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_LEAD_MS"), whole(20, 200, 20), 60)
    """Sound handed to the SIP service ahead of the clock: what a caller may still hear after a
    stop. 40 to 80 rides over a busy event loop."""
    wait_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_WAIT_MS"), whole(0, 30_000), 1200)
    """Longest wait for a server before a reply is given up. The host generates a turn again that
    brought no sound for 1500 ms."""
    resume_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RESUME_MS"), whole(0, 30_000), 3000
    )
    """How long a reply in the middle of its sound may look for a server."""
    stall_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_STALL_MS"), whole(100, 60_000), 4000
    )
    """Watchdog timeout of a server that has text and sends no audio."""
    return_ahead_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_RETURN_AHEAD_MS"), whole(0, 10_000), 1500
    )
    """``speak`` returns when no more than this is unheard: the host's time for the beginning of the
    next command, whose first clause is made meanwhile."""
    linger_ms: int = _setting(lambda getenv: getenv("MR_QWEN3TTS_LINGER_MS"), whole(0, 10_000), 300)
    """Time that the audio response stays open after the last frame of a turn."""
    idle_s: float = _setting(lambda getenv: getenv("MR_QWEN3TTS_IDLE_S"), real(1, 86_400), 600.0)
    """Idle time after which a conversation is forgotten."""
    barrier: frozenset[str] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_BARRIER"), names(), BARRIER
    )
    """Commands that wait until all is heard; ``*`` is every one."""
    barrier_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_BARRIER_MS"), whole(0, 600_000), 30_000
    )
    """The longest that they wait."""
    partial_stall_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_PARTIAL_STALL_MS"), whole(100, 600_000), 10_000
    )
    """Timeout of partials without a command after them."""
    markup: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_STRIP_MARKUP"), flag(), True)
    """Whether markdown and tags are taken out of what is said."""
    local: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LOCAL"), one_of("wav", "play", "off"), "wav"
    )
    """What becomes of sound where no SIP service is."""
    local_dir: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LOCAL_DIR"), words(4096), None
    )
    """Folder for its WAV files; None is one below the host's ``data``."""
    log_text: bool = _setting(lambda getenv: getenv("MR_QWEN3TTS_LOG_TEXT"), flag(), False)
    """Whether what is said may stand in logs and on the admin page."""
    latency_log: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_LATENCY_LOG"), words(4096), None
    )
    """File to which one JSON line an utterance is appended."""
    e2e_log: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_E2E_LOG"), words(4096), None)
    """File with lines for mr_sip's ``sip_e2e_latency_calc.py``."""
    otel: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_OTEL"), collector(), None, secret=True
    )
    """Collector of OpenTelemetry that gets a span of each utterance; 1: as ``OTEL_*`` says."""
    sip_listen: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_LISTEN"), listening(), None
    )
    """Where the plugin's own telephone listens, where there is no mr_sip; None is its choice."""
    sip_advertised: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ADVERTISED"), host_name(), None
    )
    """Host under which others reach it."""
    sip_rtp_ports: tuple[int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_RTP_PORTS"), ports(), (0, 0)
    )
    """Lowest and highest port of sound; (0, 0) lets the system choose."""
    sip_server: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_SERVER"), words(1024), None
    )
    """Registrar of its account, as a host or a SIP URI."""
    sip_user: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SIP_USER"), words(256), None)
    """User name of the account."""
    sip_password: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PASSWORD"), words(1024), None, secret=True
    )
    sip_agent: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_AGENT"), words(256), None
    )
    """The agent that takes calls that come in; None: they are refused."""
    sip_allow: tuple[str, ...] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ALLOW"), patterns(), ()
    )
    """Patterns of what may be called; none: whatever is no emergency number."""
    sip_transfers: str = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_TRANSFERS"), one_of("refuse", "accept"), "refuse"
    )
    """What becomes of a far end's request to call another party in its place (REFER)."""
    sip_answer_s: float = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_ANSWER_S"), real(1, 600), 120.0
    )
    """Longest wait for an answer."""
    sip_max_calls: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_MAX_CALLS"), whole(1, 1000), 20
    )
    """Concurrent calls."""
    sip_unavailable_file: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_UNAVAILABLE_FILE"), words(4096), None
    )
    """WAV file that callers hear while no speech server can be reached; None: they get 503."""
    sip_call_budget: tuple[int, int, int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_CALL_BUDGET"), budget(), (60, 2000, 20_000, 500_000)
    )
    """Turns and characters that one call may give the agent: a minute, in all; 0 = no limit."""
    sip_process_budget: tuple[int, int, int, int] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PROCESS_BUDGET"), budget(), (600, 0, 200_000, 0)
    )
    """The same for all calls together."""
    sip_too_many: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_TOO_MANY"),
        words(1024),
        "I need a moment before I can answer more. Please stay on the line.",
    )
    """Said when the turns of a minute are used up."""
    sip_used_up: str | None = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_USED_UP"),
        words(1024),
        "I am sorry, I cannot answer any more in this call. Thank you for calling.",
    )
    """Said when they are used up; then the call is ended."""
    sip_audio_in_pipeline: bool = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_AUDIO_IN_PIPELINE"), flag(), False
    )
    """Whether the callers' sound goes to the host's pipe ``sip_audio_in``."""
    sip_stt: str | None = _setting(lambda getenv: getenv("MR_QWEN3TTS_SIP_STT"), words(1024), None)
    """Recogniser for callers of the plugin's own telephone, as `recogniser_named` takes it; None:
    they are not understood. Read at the start."""
    sip_stt_languages: tuple[str, ...] = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_STT_LANGUAGES"), codes(), ()
    )
    """What callers may speak; none: the recogniser finds out."""
    sip_pause_ms: int = _setting(
        lambda getenv: getenv("MR_QWEN3TTS_SIP_PAUSE_MS"), whole(100, 5000), 600
    )
    """So much silence ends a caller's turn."""
    speak_command: str = _setting(lambda getenv: getenv("MR_SPEAK_CMD"), words(256), "speak")
    """The host's name of the command that speaks, where it was renamed."""
    ignored: tuple[str, ...] = ()
    """Variables of the older plugin that are set and mean nothing here."""
    unknown: tuple[str, ...] = ()
    """Variables that begin as ours do and are none; with near names."""

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
        """The settings of now: those of the context's agent, or of the process.

        Cheap enough for every utterance: where no variable has changed, nothing is parsed.

        Raises:
            SettingsError: a variable that cannot be; it names the variable and what is right.
        """
        settings, problems = cls.usable(context)
        if problems:
            first = problems[0]
            raise SettingsError(first.variable, first.message, remedy=first.remedy)
        return settings

    @classmethod
    def usable(cls, context: Any = None) -> tuple[Settings, tuple[SettingsError, ...]]:
        """The settings of now, with the default for each variable that cannot be; and what is wrong
        with those. Never raises."""
        return _parsed(tuple(sorted(environment(context).items())))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a field's value comes from."""

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
