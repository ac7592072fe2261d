"""Telephone calls that speak, listen and think: over SIP, a PBX or a carrier's media stream.

    from qwen3tts_phone import Phone

    async with Phone(server_url="ws://127.0.0.1:8765/v1/speech") as phone:
        call = await phone.dial("sip:bob@192.0.2.7")
        print((await call.say("Good morning.")).heard)

What is named here is loaded when it is asked for; the modules it comes from have more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentAudio, SentFrame
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.call.dialogue import Gathered
    from qwen3tts_phone.call.events import (
        AnswererHeard,
        CallAnswered,
        CallEnded,
        CallEvent,
        CallHeld,
        CallResumed,
        CallRinging,
        CallTransferred,
        MediaSilent,
        TransferAsked,
    )
    from qwen3tts_phone.call.keys import Keypad
    from qwen3tts_phone.call.phone_call import PhoneCall
    from qwen3tts_phone.detection.endpointing import TurnDetector, TurnSoFar
    from qwen3tts_phone.detection.events import (
        CallerCutIn,
        CallerQuiet,
        MissingDetector,
        OnsetHeard,
        SpeechPaused,
        SpeechResumed,
        Turn,
        TurnEnded,
    )
    from qwen3tts_phone.detection.listening import SpeechDetection
    from qwen3tts_phone.detection.recogniser import (
        Recogniser,
        RecogniserBusy,
        RecogniserUnavailable,
        Recognition,
        RecognitionFailed,
        RecognitionTimeout,
        Transcript,
    )
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.dialling.guard import GuardSettings
    from qwen3tts_phone.errors import (
        BadSip,
        CalleeUnreachable,
        CallError,
        CallNotAllowed,
        CallRefused,
        MachineAnswered,
        NotPossible,
        PortBusy,
        RegistrationFailed,
        StreamLost,
        TransferFailed,
        WrongState,
    )
    from qwen3tts_phone.phone import Phone
    from qwen3tts_phone.records.record import CallRecord
    from qwen3tts_phone.records.recording import Recording
    from qwen3tts_phone.settings.phone import PhoneSettings
    from qwen3tts_phone.settings.records import RecordSettings
    from qwen3tts_phone.sip.account import Account
    from qwen3tts_phone.sip.settings import TlsSettings
    from qwen3tts_phone.streams.call import StreamCall
    from qwen3tts_phone.streams.server import Streams
    from qwen3tts_phone.streams.settings import StreamSettings
    from qwen3tts_speech.sound import LiveSound
    from qwen3tts_speech.utterance import Spoken, Utterance, VoiceOptions
    from qwen3tts_wire.errors import SpeechError

_FROM = {
    "qwen3tts_phone.audio.frames": (
        "SentAudio",
        "SentFrame",
    ),
    "qwen3tts_phone.call.call": ("Call",),
    "qwen3tts_phone.call.dialogue": ("Gathered",),
    "qwen3tts_phone.call.events": (
        "AnswererHeard",
        "CallAnswered",
        "CallEnded",
        "CallEvent",
        "CallHeld",
        "CallResumed",
        "CallRinging",
        "CallTransferred",
        "HeardFrame",
        "KeyPressed",
        "MediaSilent",
        "TransferAsked",
    ),
    "qwen3tts_phone.call.keys": ("Keypad",),
    "qwen3tts_phone.call.phone_call": ("PhoneCall",),
    "qwen3tts_phone.detection.endpointing": (
        "TurnDetector",
        "TurnSoFar",
    ),
    "qwen3tts_phone.detection.events": (
        "CallerCutIn",
        "CallerQuiet",
        "MissingDetector",
        "OnsetHeard",
        "SpeechPaused",
        "SpeechResumed",
        "Turn",
        "TurnEnded",
    ),
    "qwen3tts_phone.detection.listening": ("SpeechDetection",),
    "qwen3tts_phone.detection.recogniser": (
        "Recogniser",
        "RecogniserBusy",
        "RecogniserUnavailable",
        "Recognition",
        "RecognitionFailed",
        "RecognitionTimeout",
        "Transcript",
    ),
    "qwen3tts_phone.detection.settings": ("ListenSettings",),
    "qwen3tts_phone.dialling.guard": ("GuardSettings",),
    "qwen3tts_phone.errors": (
        "BadSip",
        "CallError",
        "CallNotAllowed",
        "CallRefused",
        "CalleeUnreachable",
        "MachineAnswered",
        "NotPossible",
        "PortBusy",
        "RegistrationFailed",
        "StreamLost",
        "TransferFailed",
        "WrongState",
    ),
    "qwen3tts_phone.phone": ("Phone",),
    "qwen3tts_phone.records.record": ("CallRecord",),
    "qwen3tts_phone.records.recording": ("Recording",),
    "qwen3tts_phone.settings.phone": ("PhoneSettings",),
    "qwen3tts_phone.settings.records": ("RecordSettings",),
    "qwen3tts_phone.sip.account": ("Account",),
    "qwen3tts_phone.sip.settings": ("TlsSettings",),
    "qwen3tts_phone.streams.call": ("StreamCall",),
    "qwen3tts_phone.streams.server": ("Streams",),
    "qwen3tts_phone.streams.settings": ("StreamSettings",),
    "qwen3tts_speech.sound": ("LiveSound",),
    "qwen3tts_speech.utterance": (
        "Spoken",
        "Utterance",
        "VoiceOptions",
    ),
    "qwen3tts_wire.errors": ("SpeechError",),
}
"""Where each name comes from; a test keeps it and the imports above the same."""
_MODULE = {name: module for module, names in _FROM.items() for name in names}

__all__ = [
    "Account",
    "AnswererHeard",
    "BadSip",
    "Call",
    "CallAnswered",
    "CallEnded",
    "CallError",
    "CallEvent",
    "CallHeld",
    "CallNotAllowed",
    "CallRecord",
    "CallRefused",
    "CallResumed",
    "CallRinging",
    "CallTransferred",
    "CalleeUnreachable",
    "CallerCutIn",
    "CallerQuiet",
    "Gathered",
    "GuardSettings",
    "HeardFrame",
    "KeyPressed",
    "Keypad",
    "ListenSettings",
    "SpeechDetection",
    "LiveSound",
    "MachineAnswered",
    "MediaSilent",
    "MissingDetector",
    "NotPossible",
    "OnsetHeard",
    "Phone",
    "PhoneCall",
    "PhoneSettings",
    "PortBusy",
    "Recogniser",
    "RecogniserBusy",
    "RecogniserUnavailable",
    "Recognition",
    "RecognitionFailed",
    "RecognitionTimeout",
    "RecordSettings",
    "Recording",
    "RegistrationFailed",
    "SentAudio",
    "SentFrame",
    "SpeechError",
    "SpeechPaused",
    "SpeechResumed",
    "Spoken",
    "StreamCall",
    "StreamLost",
    "StreamSettings",
    "Streams",
    "TlsSettings",
    "Transcript",
    "TransferAsked",
    "TransferFailed",
    "Turn",
    "TurnDetector",
    "TurnEnded",
    "TurnSoFar",
    "Utterance",
    "VoiceOptions",
    "WrongState",
]


def __getattr__(name: str) -> Any:
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
