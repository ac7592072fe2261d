"""A SIP user agent: transactions and dialogs as tables, transports and an endpoint around."""

from __future__ import annotations

from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.call_headers import CallHeaders
from qwen3tts_phone.sip.call_state import (
    Answered,
    CallEvent,
    CallState,
    EarlyAnswer,
    EarlyMedia,
    Ended,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.info import DtmfInfo, InfoReceived
from qwen3tts_phone.sip.line import AccountEvent, Line, Registration
from qwen3tts_phone.sip.options import OptionsReply
from qwen3tts_phone.sip.reason import Reason
from qwen3tts_phone.sip.registration_state import RegistrationState
from qwen3tts_phone.sip.replaces import Replaces
from qwen3tts_phone.sip.settings import DnsSettings, Listener, SipSettings, TlsSettings
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.sip.sip_transfer import Transfer
from qwen3tts_phone.sip.timers import Timers
from qwen3tts_phone.sip.transfer_events import ReferReceived, TransferProgress

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
