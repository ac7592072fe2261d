"""What a caller may make the agent do: numbers of keys, and turns of the model (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .desk_wishes import SipWishes

if TYPE_CHECKING:
    from qwen3tts_agent.budget import CallBudget, RequestMeter
    from qwen3tts_phone.detection.key_turns import KeyTurns

GAP_S = 2.0
"""A number is taken for complete so long after its last key; a person who reads one off a card
needs less between two."""
MAX_KEYS = 64
"""In one message."""
MAX_WAITING_CHARS = 8_000
"""Messages that wait for the budget; the oldest are left out beyond that."""


def key_turns() -> KeyTurns:
    """The keys of one call, joined: a number is one message, not one for each digit."""
    from qwen3tts_phone.detection.key_turns import KeyTurns
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


def allowance(wishes: SipWishes, process: RequestMeter) -> TurnAllowance:
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
