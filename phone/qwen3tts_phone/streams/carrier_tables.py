"""The JSON formats of carriers' media streams as tables: Twilio, Telnyx, Plivo, Exotel.

They are one format with other names: a JSON object in each text message, sound as base64 in it. A
table says how a carrier spells it; the first spelling is the documented one, the others have been
seen elsewhere and are read as well. `carriers.CarrierAdapter` works by a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from qwen3tts_codecs.payload import G722, OPUS, PCMA, PCMU, Payload, l16, slin

STREAM: Final = "\0stream"
"""Where the stream's id stands in a message of ours."""
SOUND: Final = "\0sound"
"""Where the sound stands, base64."""
NAME: Final = "\0name"
"""Where a mark's name stands."""
KEYS: Final = "\0keys"
"""Where the keys to be pressed stand."""
TYPE: Final = "\0type"
"""Where the media type of the sound stands, such as ``audio/x-mulaw``."""
RATE: Final = "\0rate"
"""Where its rate stands, a number of Hz."""

Spellings = tuple[str, ...]
"""A field's names, the documented one first."""


class Meaning(Enum):
    """What an event of a carrier's is to us."""

    GREETING = auto()
    START = auto()
    MEDIA = auto()
    KEY = auto()
    MARK = auto()
    CLEARED = auto()
    STOP = auto()
    ERROR = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one carrier spells the format."""

    line: str
    """Name of the carrier, in lower case."""
    payload: Payload
    """What it sends, unless its ``start`` says something else; and what it plays."""
    media: Mapping[str, Any]
    """A message with sound."""
    clear: Mapping[str, Any]
    mark: Mapping[str, Any]
    keys: Mapping[str, Any] | None = None
    """A message that presses keys; None = there is none."""
    events: Mapping[str, Meaning] | None = None
    """Names of events other than `EVENTS`."""
    stream_id: Spellings = ("streamSid", "stream_sid", "streamId", "stream_id")
    call_id: Spellings = ("callSid", "call_sid", "callId", "call_control_id")
    format: Spellings = ("mediaFormat", "media_format")
    rate: Spellings = ("sampleRate", "sample_rate")
    parameters: Spellings = ("customParameters", "custom_parameters")
    mark_name: Spellings = ("mark", "name")
    """The path to a mark's name in the message that brings it back."""
    ordered: bool = True
    """Whether sound comes in the order in which it was spoken."""
    ends_by_closing: bool = False
    """Whether it closes without a ``stop`` when the caller hangs up."""
    timed: bool = False
    """Whether ``media.timestamp`` is a place on the stream's own time axis."""
    plays_what_it_sends: bool = True
    """Whether sound for it is to be in the format in which its own comes."""
    join_frames: int = 1
    """Frames of 20 ms in one message with sound."""
    lead_ms: int | None = None
    """How far ahead of the hearing frames are sent; None = as for all."""


EVENTS: Final[Mapping[str, Meaning]] = {
    "connected": Meaning.GREETING,
    "start": Meaning.START,
    "media": Meaning.MEDIA,
    "dtmf": Meaning.KEY,
    "mark": Meaning.MARK,
    "stop": Meaning.STOP,
}

# twilio.com/docs/voice/media-streams/websocket-messages
TWILIO: Final = Dialect(
    line="twilio",
    payload=PCMU,
    media={"event": "media", "streamSid": STREAM, "media": {"payload": SOUND}},
    clear={"event": "clear", "streamSid": STREAM},
    mark={"event": "mark", "streamSid": STREAM, "mark": {"name": NAME}},
    timed=True,
)

# developers.telnyx.com, "Stream call media over WebSocket": the codec of the call comes in, which
# in Europe is PCMA; what is played is what stream_bidirectional_codec has asked for.
TELNYX: Final = Dialect(
    line="telnyx",
    payload=PCMU,
    media={"event": "media", "media": {"payload": SOUND}},
    clear={"event": "clear"},
    mark={"event": "mark", "mark": {"name": NAME}},
    events={**EVENTS, "error": Meaning.ERROR},
    stream_id=("stream_id", "streamSid", "stream_sid", "streamId"),
    call_id=("call_control_id", "callSid", "call_sid", "callId"),
    format=("media_format", "mediaFormat"),
    rate=("sample_rate", "sampleRate"),
    parameters=("custom_parameters", "customParameters"),
    ordered=False,
    plays_what_it_sends=False,
)

# plivo.com/docs, "Audio Streaming Protocol Reference". That playAudio carries the stream's id is
# said by Pipecat, not by the reference; whoever does not look for it does not mind.
PLIVO: Final = Dialect(
    line="plivo",
    payload=PCMU,
    media={
        "event": "playAudio",
        "media": {"contentType": TYPE, "sampleRate": RATE, "payload": SOUND},
        "streamId": STREAM,
    },
    clear={"event": "clearAudio", "streamId": STREAM},
    mark={"event": "checkpoint", "streamId": STREAM, "name": NAME},
    keys={"event": "sendDTMF", "dtmf": KEYS},
    events={
        **{name: meaning for name, meaning in EVENTS.items() if name != "mark"},
        "playedStream": Meaning.MARK,
        "clearedAudio": Meaning.CLEARED,
        # Answer to sendDTMF in some versions.
        "sentDTMF": Meaning.NOTHING,
    },
    stream_id=("streamId", "streamSid", "stream_id", "stream_sid"),
    call_id=("callId", "callUuid", "callSid", "call_uuid"),
    parameters=("extra_headers", "extraHeaders", "customParameters"),
    mark_name=("name",),
    ends_by_closing=True,
)

# developer.exotel.com/docs/agentstream/websocket-protocol; messages of at least 100 ms and of
# whole 320 bytes, support.exotel.com (article 3000108630).
EXOTEL: Final = Dialect(
    line="exotel",
    payload=slin(8000),
    media={"event": "media", "stream_sid": STREAM, "media": {"payload": SOUND}},
    clear={"event": "clear", "stream_sid": STREAM},
    mark={"event": "mark", "stream_sid": STREAM, "mark": {"name": NAME}},
    events={**EVENTS, "clear": Meaning.CLEARED},
    stream_id=("stream_sid", "streamSid", "stream_id", "streamId"),
    call_id=("call_sid", "callSid", "call_id", "callId"),
    format=("media_format", "mediaFormat"),
    rate=("sample_rate", "sampleRate"),
    parameters=("custom_parameters", "customParameters"),
    join_frames=5,
    lead_ms=240,
)

DIALECTS: Final = {each.line: each for each in (TWILIO, TELNYX, PLIVO, EXOTEL)}

MEDIA_TYPES: Final = {"PCMU": "audio/x-mulaw", "PCMA": "audio/x-alaw", "L16LE": "audio/x-l16"}
"""What Plivo calls a format."""


def payload_of(encoding: str, rate_hz: int, *, big_endian: bool = False) -> Payload | None:
    """The format that a carrier's name stands for; None for one that nobody here can read.

    ``big_endian``: whether linear samples have their high byte first, as in RTP.
    """
    name = encoding.lower().removeprefix("audio/").removeprefix("x-").partition(";")[0].strip()
    if name in ("mulaw", "ulaw", "pcmu", "g711u", "mu-law", "g711_ulaw"):
        return PCMU if rate_hz == 8000 else None
    if name in ("alaw", "pcma", "g711a", "a-law", "g711_alaw"):
        return PCMA if rate_hz == 8000 else None
    # Exotel's older start messages name the wrapping instead of what is in it.
    if name in (
        "l16",
        "l16le",
        "slin",
        "raw/slin",
        "raw",
        "pcm",
        "linear16",
        "pcm_s16le",
        "base64",
    ):
        return l16(rate_hz, 96) if big_endian else slin(rate_hz)
    if name == "g722":
        return G722
    return OPUS if name == "opus" else None
