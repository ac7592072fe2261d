"""Call options, allowances and host services."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qwen3tts_agent.budget import CallBudget, RequestMeter
    from qwen3tts_phone.detection.endpointing import KeyTurns


class CallSettings(Protocol):
    """Telephone settings; `settings` has the variables."""

    @property
    def sip_listen(self) -> str | None:
        """``HOST``, ``HOST:PORT`` or ``:PORT``; None: see `phone.listen_at`."""

    @property
    def sip_advertised(self) -> str | None: ...

    @property
    def sip_rtp_ports(self) -> tuple[int, int]:
        """RTP port range; (0, 0): any."""

    @property
    def sip_server(self) -> str | None:
        """Registrar or gateway of bare numbers."""

    @property
    def sip_user(self) -> str | None: ...

    @property
    def sip_password(self) -> str | None: ...

    @property
    def sip_agent(self) -> str | None:
        """Answering agent; None: refuse."""

    @property
    def sip_allow(self) -> Collection[str]:
        """Allowed number patterns; empty: all but emergency numbers."""

    @property
    def sip_transfers(self) -> str:
        """REFER: ``refuse`` or ``accept`` within the allow list."""

    @property
    def sip_answer_s(self) -> float:
        """Answer timeout, seconds."""

    @property
    def sip_max_calls(self) -> int:
        """Concurrent calls."""

    @property
    def sip_unavailable_file(self) -> str | None:
        """WAV file without a speech server; None: 503."""

    @property
    def sip_call_budget(self) -> tuple[int, int, int, int]:
        """A call's turns a minute, turns, characters a minute, characters; 0: unlimited."""

    @property
    def sip_process_budget(self) -> tuple[int, int, int, int]: ...

    @property
    def sip_too_many(self) -> str | None:
        """Sentence at a minute's limit; None: silence."""

    @property
    def sip_used_up(self) -> str | None:
        """Sentence before an exhausted call ends; None: silence."""

    @property
    def sip_audio_in_pipeline(self) -> bool:
        """True if audio goes to the pipe ``sip_audio_in``."""

    @property
    def sip_stt(self) -> str | None:
        """Recogniser's name (docs/recognisers.md), or None."""

    @property
    def sip_stt_languages(self) -> Collection[str]:
        """Codes; empty: detected."""

    @property
    def sip_pause_ms(self) -> int: ...

    @property
    def sip_overlap(self) -> str:
        """``duck`` or ``stop``, as `ListenSettings.overlap`."""

    @property
    def sip_smart_turn(self) -> str | None:
        """Smart Turn's file, or ``auto``; None: none."""

    @property
    def stall_ms(self) -> int:
        """Watchdog timeout of a silent server with text."""


class CallHost(Protocol):
    """Host services by the host's names."""

    async def init_chat_session(self, user: str, agent: str, log_id: str) -> Any:
        """Create an agent's session; return its context."""

    async def send_message_to_agent(self, log_id: str, message: str, context: Any) -> None:
        """Send a user message; return at the turn's end."""

    async def cancel_and_wait(self, log_id: str, context: Any) -> None: ...

    async def backend_user_message(self, message: str, context: Any) -> None: ...

    async def interrupt(self, log_id: str, context: Any) -> int | None:
        """Stop playback; return the characters heard of a cut turn, else None."""

    def hold(self, context: Any, *, cut_in: bool) -> None:
        """Hold speech; ``cut_in``: the current utterance too."""

    def go_on(self, context: Any) -> None: ...

    def heard_text(self, context: object) -> str:
        """Return the text heard of the agent's last turn."""

    async def truncate_last_assistant_speech(self, chars: int, context: Any) -> None:
        """Cut the last turn after these characters."""

    async def sip_audio_in(self, data: dict[str, Any], context: Any) -> None:
        """Pipe of ``audio_bytes`` (PCMU, 160 bytes) and ``timestamp`` (monotonic seconds)."""

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None: ...


GAP_S = 2.0
"""Pause that completes a number of keys."""
MAX_KEYS = 64
MAX_WAITING_CHARS = 8_000
"""Characters waiting for the budget."""


def key_turns() -> KeyTurns:
    """Return a call's keys, joined to numbers."""
    from qwen3tts_phone.detection.endpointing import KeyTurns
    from qwen3tts_phone.detection.settings import ListenSettings

    return KeyTurns(ListenSettings(keys_pause_ms=round(GAP_S * 1000), max_keys=MAX_KEYS))


@dataclass(frozen=True, slots=True)
class TurnAllowance:
    """Call budget with its sentences."""

    budget: CallBudget | None = None
    """None: unlimited."""
    too_many: str = ""
    used_up: str = ""


def process_meter() -> RequestMeter:
    from qwen3tts_agent.budget import RequestMeter

    return RequestMeter()


def allowance(settings: CallSettings, process: RequestMeter) -> TurnAllowance:
    """Return a call's allowance; ``process`` counts all calls."""
    from qwen3tts_agent.budget import CallBudget, RequestLimits

    budget = CallBudget(
        RequestLimits(*settings.sip_call_budget),
        RequestLimits(*settings.sip_process_budget),
        process,
    )
    return TurnAllowance(budget, settings.sip_too_many or "", settings.sip_used_up or "")


def joined(messages: list[str]) -> tuple[str, int]:
    """Join messages; return the number of dropped ones too."""
    chars, kept = 0, 0
    for message in reversed(messages):
        chars += len(message)
        if kept and chars > MAX_WAITING_CHARS:
            break
        kept += 1
    texts = messages[len(messages) - kept :]
    return "\n\n".join(text[-MAX_WAITING_CHARS:] for text in texts), len(messages) - kept
