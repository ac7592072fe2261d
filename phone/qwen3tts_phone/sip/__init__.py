"""A SIP user agent: transactions and dialogs as tables, transports and an endpoint around."""

from __future__ import annotations

from qwen3tts_phone.sip.call.state import (
    Answered,
    CallEvent,
    CallState,
    DtmfInfo,
    EarlyAnswer,
    EarlyMedia,
    Ended,
    InfoReceived,
    Reason,
    ReferReceived,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
    TransferProgress,
)
from qwen3tts_phone.sip.call.transfer import Transfer
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import DnsSettings, Listener, SipSettings, TlsSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.message.fields import CallHeaders
from qwen3tts_phone.sip.registration.keepalive import OptionsReply
from qwen3tts_phone.sip.registration.line import AccountEvent, Line, Registration
from qwen3tts_phone.sip.registration.registration import RegistrationState
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.sip.transaction.dialog import Replaces
from qwen3tts_phone.sip.transaction.state_machine import Timers

__all__ = [
    "Account",
    "AccountEvent",
    "Answered",
    "CallEvent",
    "CallHeaders",
    "CallState",
    "DnsSettings",
    "DtmfInfo",
    "EarlyAnswer",
    "EarlyMedia",
    "Ended",
    "InfoReceived",
    "Line",
    "Listener",
    "OptionsReply",
    "Reason",
    "ReferReceived",
    "Registration",
    "RegistrationState",
    "ReinviteConfirmed",
    "ReinviteReceived",
    "Replaces",
    "Ringing",
    "SipCall",
    "SipEndpoint",
    "SipSettings",
    "Timers",
    "TlsSettings",
    "Transfer",
    "TransferProgress",
]
