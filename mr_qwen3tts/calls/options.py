"""Options of calls that agents place and take, their allowances, and the host's services."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qwen3tts_agent.budget import CallBudget, RequestMeter
    from qwen3tts_phone.detection.endpointing import KeyTurns


class CallSettings(Protocol):
    """The telephone's part of the plugin's settings; see `settings` for the variables."""

    @property
    def sip_listen(self) -> str | None:
        """``HOST``, ``HOST:PORT`` or ``:PORT``; None leaves the choice to `desk_phone`."""

    @property
    def sip_advertised(self) -> str | None:
        """Host that others see where it is not the bound one (address translation)."""

    @property
    def sip_rtp_ports(self) -> tuple[int, int]:
        """Lowest and highest port of the media; (0, 0) lets the system choose."""

    @property
    def sip_server(self) -> str | None:
        """Registrar or gateway, as a host or a SIP URI: numbers without a host are called there."""

    @property
    def sip_user(self) -> str | None:
        """Account there; with it the endpoint registers."""

    @property
    def sip_password(self) -> str | None:
        """Its password; never shown."""

    @property
    def sip_agent(self) -> str | None:
        """Agent that takes calls which come in; None: they are refused."""

    @property
    def sip_allow(self) -> Collection[str]:
        """Patterns of what may be called; empty: everything but emergency numbers."""

    @property
    def sip_transfers(self) -> str:
        """What becomes of a far end's REFER: ``refuse`` or ``accept``. Accepted, the target must be
        one that may be called."""

    @property
    def sip_answer_s(self) -> float:
        """Longest wait for the answer to a call of ours, seconds."""

    @property
    def sip_max_calls(self) -> int:
        """Calls at once, in both directions."""

    @property
    def sip_unavailable_file(self) -> str | None:
        """WAV file played to callers while no speech server can be reached; None: they get 503."""

    @property
    def sip_call_budget(self) -> tuple[int, int, int, int]:
        """Turns that one call may give the agent, and characters in them: turns in a minute, turns
        in all, characters in a minute, characters in all; 0 = no limit."""

    @property
    def sip_process_budget(self) -> tuple[int, int, int, int]:
        """The same for all calls together."""

    @property
    def sip_too_many(self) -> str | None:
        """Said when the turns of a minute are used up; None = nothing is said."""

    @property
    def sip_used_up(self) -> str | None:
        """Said when the turns are used up, before the call is ended; None = nothing is said."""

    @property
    def sip_audio_in_pipeline(self) -> bool:
        """Whether the caller's frames go to the host's pipe ``sip_audio_in``."""

    @property
    def sip_stt(self) -> str | None:
        """Recogniser of callers' words by its name (docs/recognisers.md); None: there is none."""

    @property
    def sip_stt_languages(self) -> Collection[str]:
        """Codes of the languages that callers may speak; none: the recogniser finds out."""

    @property
    def sip_pause_ms(self) -> int:
        """Silence that ends a caller's turn."""

    @property
    def stall_ms(self) -> int:
        """Without sound for so long, though text is there, a server is taken for dead."""


class CallHost(Protocol):
    """What the desk asks of the host; methods are named after its services."""

    async def init_chat_session(self, user: str, agent: str, log_id: str) -> Any:
        """Make a chat session of this agent and give its context; raises where there is none."""

    async def send_message_to_agent(self, log_id: str, message: str, context: Any) -> None:
        """Give the agent a user message; returns when its whole turn is over."""

    async def cancel_and_wait(self, log_id: str, context: Any) -> None:
        """End the agent's turn that is under way, if there is one."""

    async def backend_user_message(self, message: str, context: Any) -> None:
        """Show a user message to whoever watches the session in a browser."""

    async def interrupt(self, log_id: str, context: Any) -> int | None:
        """Silence now; how many characters of the agent's last turn were heard, where it is
        known that it was cut short, else None."""

    def hold(self, context: Any, *, cut_in: bool) -> None:
        """The caller speaks: nothing is begun to be said until `go_on`. ``cut_in``: they have
        silenced the agent, and what was being said waits as well."""

    def go_on(self, context: Any) -> None:
        """They do not, or nothing came of it: what waits is said, from where it was."""

    async def truncate_last_assistant_speech(self, chars: int, context: Any) -> None:
        """The agent's last turn ended after so many characters of its speech."""

    async def sip_audio_in(self, data: dict[str, Any], context: Any) -> None:
        """The pipe of that name: ``audio_bytes`` (PCMU, 160 bytes) and ``timestamp`` (seconds of
        the monotonic clock)."""

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None:
        """Keep an error for the admin page and the log."""


GAP_S = 2.0
"""A number is taken for complete so long after its last key; a person who reads one off a card
needs less between two."""
MAX_KEYS = 64
"""In one message."""
MAX_WAITING_CHARS = 8_000
"""Messages that wait for the budget; the oldest are left out beyond that."""


def key_turns() -> KeyTurns:
    """The keys of one call, joined: a number is one message, not one for each digit."""
    from qwen3tts_phone.detection.endpointing import KeyTurns
    from qwen3tts_phone.detection.settings import ListenSettings

    return KeyTurns(ListenSettings(keys_pause_ms=round(GAP_S * 1000), max_keys=MAX_KEYS))


@dataclass(frozen=True, slots=True)
class TurnAllowance:
    """Turns that one call may give the agent, and the sentences said when they are used up."""

    budget: CallBudget | None = None
    """None = any number."""
    too_many: str = ""
    """Said when those of a minute are used up; empty = nothing is."""
    used_up: str = ""
    """Said before the call is ended."""


def process_meter() -> RequestMeter:
    """Return the count of turns of all calls."""
    from qwen3tts_agent.budget import RequestMeter

    return RequestMeter()


def allowance(wishes: CallSettings, process: RequestMeter) -> TurnAllowance:
    """Return the allowance of a new call; ``process`` counts the turns of all calls."""
    from qwen3tts_agent.budget import CallBudget, RequestLimits

    budget = CallBudget(
        RequestLimits(*wishes.sip_call_budget), RequestLimits(*wishes.sip_process_budget), process
    )
    return TurnAllowance(budget, wishes.sip_too_many or "", wishes.sip_used_up or "")


def joined(messages: list[str]) -> tuple[str, int]:
    """Join the messages that wait; with how many of the oldest had to be left out."""
    chars, kept = 0, 0
    for message in reversed(messages):
        chars += len(message)
        if kept and chars > MAX_WAITING_CHARS:
            break
        kept += 1
    texts = messages[len(messages) - kept :]
    return "\n\n".join(text[-MAX_WAITING_CHARS:] for text in texts), len(messages) - kept
