"""A SIP user agent: transactions and dialogs as tables, transports and an endpoint around."""

from __future__ import annotations

from qwen3tts_phone.sip.call_state import (
    Answered,
    CallEvent,
    CallState,
    EarlyMedia,
    Ended,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.registration import Registration, RegistrationState
from qwen3tts_phone.sip.settings import Account, SipSettings, Timers
from qwen3tts_phone.sip.sip_call import SipCall

__all__ = [
    "Account",
    "Answered",
    "CallEvent",
    "CallState",
    "EarlyMedia",
    "Ended",
    "Registration",
    "RegistrationState",
    "ReinviteConfirmed",
    "ReinviteReceived",
    "Ringing",
    "SipCall",
    "SipEndpoint",
    "SipSettings",
    "Timers",
]
