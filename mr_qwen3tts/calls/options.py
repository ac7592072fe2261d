"""Options of calls that agents place and take, their allowances, and the host's services."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qwen3tts_agent.budget import CallBudget, RequestMeter
    from qwen3tts_phone.detection.endpointing import KeyTurns


class CallSettings(Protocol):
    """The telephone's part of the plugin's settings; `settings` has the variables."""

    @property
    def sip_listen(self) -> str | None:
        """``HOST``, ``HOST:PORT`` or ``:PORT``; None: chosen by `phone.listen_at`."""

    @property
    def sip_advertised(self) -> str | None:
        ...

    @property
    def sip_rtp_ports(self) -> tuple[int, int]:
        """Lowest and highest RTP port; (0, 0): any."""

    @property
    def sip_server(self) -> str | None:
        """Registrar or gateway, host or SIP URI, for numbers without a host."""

    @property
    def sip_user(self) -> str | None: ...

    @property
    def sip_password(self) -> str | None: ...

    @property
    def sip_agent(self) -> str | None:
        """Agent that answers calls; None: calls are refused."""

    @property
    def sip_allow(self) -> Collection[str]:
        """Patterns of numbers that may be called; empty: all but emergency numbers."""

    @property
    def sip_transfers(self) -> str:
        """Reaction to a REFER: ``refuse`` or ``accept`` within the allow list."""

    @property
    def sip_answer_s(self) -> float:
        """Timeout of an outbound call's answer, seconds."""

    @property
    def sip_max_calls(self) -> int:
        """Concurrent calls, both directions."""

    @property
    def sip_unavailable_file(self) -> str | None:
        """WAV file for callers while no speech server is up; None: 503."""

    @property
    def sip_call_budget(self) -> tuple[int, int, int, int]:
        """Limits of one call: turns a minute, turns, characters a minute, characters; 0: none."""

    @property
    def sip_process_budget(self) -> tuple[int, int, int, int]:
        ...

    @property
    def sip_too_many(self) -> str | None:
        """Sentence when a minute's turns are used up; None: silence."""

    @property
    def sip_used_up(self) -> str | None:
        """Sentence before a call without turns left is ended; None: silence."""

    @property
    def sip_audio_in_pipeline(self) -> bool:
        """Whether audio goes to the host's pipe ``sip_audio_in``."""

    @property
    def sip_stt(self) -> str | None:
        """Recogniser by name (docs/recognisers.md); None: none."""

    @property
    def sip_stt_languages(self) -> Collection[str]:
        """Language codes; empty: detected."""

    @property
    def sip_pause_ms(self) -> int:
        ...

    @property
    def stall_ms(self) -> int:
        """Watchdog timeout of a server that has text and sends no audio."""


class CallHost(Protocol):
    """Services of the host that calls use, by the host's names."""

    async def init_chat_session(self, user: str, agent: str, log_id: str) -> Any:
        """Create a chat session of this agent; return its context."""

    async def send_message_to_agent(self, log_id: str, message: str, context: Any) -> None:
        """Send a user message; return at the end of the agent's turn."""

    async def cancel_and_wait(self, log_id: str, context: Any) -> None:
        ...

    async def backend_user_message(self, message: str, context: Any) -> None:
        ...

    async def interrupt(self, log_id: str, context: Any) -> int | None:
        """Stop playback; return the characters heard of a turn that was cut short, else None."""

    def hold(self, context: Any, *, cut_in: bool) -> None:
        """Hold speech until `go_on`; ``cut_in``: also the utterance under way."""

    def go_on(self, context: Any) -> None:
        ...

    async def truncate_last_assistant_speech(self, chars: int, context: Any) -> None:
        """Cut the agent's last turn after these characters of speech."""

    async def sip_audio_in(self, data: dict[str, Any], context: Any) -> None:
        """Pipe: ``audio_bytes`` (PCMU, 160 bytes), ``timestamp`` (monotonic seconds)."""

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None:
        ...


GAP_S = 2.0
"""Pause after a key that completes a number."""
MAX_KEYS = 64
MAX_WAITING_CHARS = 8_000
"""Characters of messages that wait for the budget."""


def key_turns() -> KeyTurns:
    """Return the keys of one call, joined to numbers."""
    from qwen3tts_phone.detection.endpointing import KeyTurns
    from qwen3tts_phone.detection.settings import ListenSettings

    return KeyTurns(ListenSettings(keys_pause_ms=round(GAP_S * 1000), max_keys=MAX_KEYS))


@dataclass(frozen=True, slots=True)
class TurnAllowance:
    """Budget of one call, and the sentences when it is used up."""

    budget: CallBudget | None = None
    """None: unlimited."""
    too_many: str = ""
    used_up: str = ""


def process_meter() -> RequestMeter:
    from qwen3tts_agent.budget import RequestMeter

    return RequestMeter()


def allowance(settings: CallSettings, process: RequestMeter) -> TurnAllowance:
    """Return the allowance of a new call; ``process`` counts all calls."""
    from qwen3tts_agent.budget import CallBudget, RequestLimits

    budget = CallBudget(
        RequestLimits(*settings.sip_call_budget),
        RequestLimits(*settings.sip_process_budget),
        process,
    )
    return TurnAllowance(budget, settings.sip_too_many or "", settings.sip_used_up or "")


def joined(messages: list[str]) -> tuple[str, int]:
    """Join waiting messages; return them with the number of old ones dropped."""
    chars, kept = 0, 0
    for message in reversed(messages):
        chars += len(message)
        if kept and chars > MAX_WAITING_CHARS:
            break
        kept += 1
    texts = messages[len(messages) - kept :]
    return "\n\n".join(text[-MAX_WAITING_CHARS:] for text in texts), len(messages) - kept
