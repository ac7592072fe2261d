"""Telephone calls that speak and listen: over SIP, a PBX or a carrier's media stream.

    from qwen3tts_phone import Phone

    async with Phone(server_url="ws://127.0.0.1:8765/v1/speech") as phone:
        call = await phone.dial("sip:bob@192.0.2.7")
        print((await call.say("Good morning.")).heard)

The names of `__all__` are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "qwen3tts_phone.audio.frames": (
        "HeardFrame",
        "KeyPressed",
        "SentAudio",
        "SentFrame",
    ),
    "qwen3tts_phone.call.call": (
        "Call",
        "CallEvent",
        "CallTransferred",
        "TransferAsked",
    ),
    "qwen3tts_phone.call.dialogue": ("Gathered",),
    "qwen3tts_phone.call.events": (
        "AnswererHeard",
        "CallAnswered",
        "CallEnded",
        "CallHeld",
        "CallResumed",
        "CallRinging",
        "MediaSilent",
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
        "OverlapBegan",
        "OverlapEnded",
        "SpeechPaused",
        "SpeechResumed",
        "Turn",
        "TurnEnded",
        "WordsGuessed",
    ),
    "qwen3tts_phone.detection.speech_detection": ("SpeechDetection",),
    "qwen3tts_phone.detection.recogniser": (
        "Recogniser",
        "RecogniserBusy",
        "RecogniserUnavailable",
        "Recognition",
        "RecognitionFailed",
        "RecognitionTimeout",
        "Transcript",
    ),
    "qwen3tts_phone.detection.settings": (
        "ListenSettings",
        "listen_preset",
    ),
    "qwen3tts_phone.detection.smart_turn": ("SmartTurn",),
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
    "qwen3tts_phone.sip.core.account": ("Account",),
    "qwen3tts_phone.sip.core.settings": ("TlsSettings",),
    "qwen3tts_phone.streams.call": ("StreamCall",),
    "qwen3tts_phone.streams.server": ("Streams",),
    "qwen3tts_phone.streams.settings": ("StreamSettings",),
    "qwen3tts_speech.link": ("VoiceOptions",),
    "qwen3tts_speech.sound": ("LiveSound",),
    "qwen3tts_speech.utterance": (
        "Spoken",
        "Utterance",
    ),
    "qwen3tts_wire.errors": ("SpeechError",),
}
_MODULE = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted(_MODULE)

if TYPE_CHECKING:  # the same names for type checkers; a test compares them
    from qwen3tts_phone.audio.frames import HeardFrame as HeardFrame
    from qwen3tts_phone.audio.frames import KeyPressed as KeyPressed
    from qwen3tts_phone.audio.frames import SentAudio as SentAudio
    from qwen3tts_phone.audio.frames import SentFrame as SentFrame
    from qwen3tts_phone.call.call import Call as Call
    from qwen3tts_phone.call.call import CallEvent as CallEvent
    from qwen3tts_phone.call.call import CallTransferred as CallTransferred
    from qwen3tts_phone.call.call import TransferAsked as TransferAsked
    from qwen3tts_phone.call.dialogue import Gathered as Gathered
    from qwen3tts_phone.call.events import AnswererHeard as AnswererHeard
    from qwen3tts_phone.call.events import CallAnswered as CallAnswered
    from qwen3tts_phone.call.events import CallEnded as CallEnded
    from qwen3tts_phone.call.events import CallHeld as CallHeld
    from qwen3tts_phone.call.events import CallResumed as CallResumed
    from qwen3tts_phone.call.events import CallRinging as CallRinging
    from qwen3tts_phone.call.events import MediaSilent as MediaSilent
    from qwen3tts_phone.call.keys import Keypad as Keypad
    from qwen3tts_phone.call.phone_call import PhoneCall as PhoneCall
    from qwen3tts_phone.detection.endpointing import TurnDetector as TurnDetector
    from qwen3tts_phone.detection.endpointing import TurnSoFar as TurnSoFar
    from qwen3tts_phone.detection.events import CallerCutIn as CallerCutIn
    from qwen3tts_phone.detection.events import CallerQuiet as CallerQuiet
    from qwen3tts_phone.detection.events import MissingDetector as MissingDetector
    from qwen3tts_phone.detection.events import OnsetHeard as OnsetHeard
    from qwen3tts_phone.detection.events import OverlapBegan as OverlapBegan
    from qwen3tts_phone.detection.events import OverlapEnded as OverlapEnded
    from qwen3tts_phone.detection.events import SpeechPaused as SpeechPaused
    from qwen3tts_phone.detection.events import SpeechResumed as SpeechResumed
    from qwen3tts_phone.detection.events import Turn as Turn
    from qwen3tts_phone.detection.events import TurnEnded as TurnEnded
    from qwen3tts_phone.detection.events import WordsGuessed as WordsGuessed
    from qwen3tts_phone.detection.recogniser import Recogniser as Recogniser
    from qwen3tts_phone.detection.recogniser import RecogniserBusy as RecogniserBusy
    from qwen3tts_phone.detection.recogniser import RecogniserUnavailable as RecogniserUnavailable
    from qwen3tts_phone.detection.recogniser import Recognition as Recognition
    from qwen3tts_phone.detection.recogniser import RecognitionFailed as RecognitionFailed
    from qwen3tts_phone.detection.recogniser import RecognitionTimeout as RecognitionTimeout
    from qwen3tts_phone.detection.recogniser import Transcript as Transcript
    from qwen3tts_phone.detection.settings import ListenSettings as ListenSettings
    from qwen3tts_phone.detection.settings import listen_preset as listen_preset
    from qwen3tts_phone.detection.smart_turn import SmartTurn as SmartTurn
    from qwen3tts_phone.detection.speech_detection import SpeechDetection as SpeechDetection
    from qwen3tts_phone.dialling.guard import GuardSettings as GuardSettings
    from qwen3tts_phone.errors import BadSip as BadSip
    from qwen3tts_phone.errors import CalleeUnreachable as CalleeUnreachable
    from qwen3tts_phone.errors import CallError as CallError
    from qwen3tts_phone.errors import CallNotAllowed as CallNotAllowed
    from qwen3tts_phone.errors import CallRefused as CallRefused
    from qwen3tts_phone.errors import MachineAnswered as MachineAnswered
    from qwen3tts_phone.errors import NotPossible as NotPossible
    from qwen3tts_phone.errors import PortBusy as PortBusy
    from qwen3tts_phone.errors import RegistrationFailed as RegistrationFailed
    from qwen3tts_phone.errors import StreamLost as StreamLost
    from qwen3tts_phone.errors import TransferFailed as TransferFailed
    from qwen3tts_phone.errors import WrongState as WrongState
    from qwen3tts_phone.phone import Phone as Phone
    from qwen3tts_phone.records.record import CallRecord as CallRecord
    from qwen3tts_phone.records.recording import Recording as Recording
    from qwen3tts_phone.settings.phone import PhoneSettings as PhoneSettings
    from qwen3tts_phone.settings.records import RecordSettings as RecordSettings
    from qwen3tts_phone.sip.core.account import Account as Account
    from qwen3tts_phone.sip.core.settings import TlsSettings as TlsSettings
    from qwen3tts_phone.streams.call import StreamCall as StreamCall
    from qwen3tts_phone.streams.server import Streams as Streams
    from qwen3tts_phone.streams.settings import StreamSettings as StreamSettings
    from qwen3tts_speech.link import VoiceOptions as VoiceOptions
    from qwen3tts_speech.sound import LiveSound as LiveSound
    from qwen3tts_speech.utterance import Spoken as Spoken
    from qwen3tts_speech.utterance import Utterance as Utterance
    from qwen3tts_wire.errors import SpeechError as SpeechError


def __getattr__(name: str) -> Any:
    module = _MODULE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
