"""Dialects of the carriers' side of media streams: JSON templates of their messages.

Messages of the agent are those of the adapters in `qwen3tts_phone.streams.carriers`; messages to it
are by the carriers' documentation, named at each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.exotel import EXOTEL
from qwen3tts_phone.streams.carriers.jambonz import SUBPROTOCOL as JAMBONZ_SUBPROTOCOL
from qwen3tts_phone.streams.carriers.json_media import NAME, SOUND, STREAM, JsonDialect
from qwen3tts_phone.streams.carriers.plivo import PLIVO
from qwen3tts_phone.streams.carriers.telnyx import TELNYX
from qwen3tts_phone.streams.carriers.twilio import TWILIO

RATE_HZ: Final = 8000
FRAME_MS: Final = 20
FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1000

CALL, FROM, TO, DIGIT = "\0call", "\0from", "\0to", "\0digit"
COUNT, TEXT_COUNT, STAMP = "\0count", "\0text count", "\0stamp"
"""Placeholders, beside those of `json_media`: the call's id, its parties, a key, the number of a
message as a number and as a text, its milliseconds since the start."""

Template = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CarrierDialect:
    """Messages of one carrier."""

    line: str
    payload: Payload
    """Sound both ways."""
    opening: Sequence[Template]
    """Messages until sound may begin."""
    media: Template | None
    """Sound to the agent; None = a binary message."""
    key: Template
    played: Template
    """A mark that returns."""
    agent_clear: Template
    agent_mark: Template
    agent_media: Template | None = None
    """None = a binary message."""
    agent_hang_up: Template | None = None
    agent_keys: Template | None = None
    agent_ignored: Sequence[Template] = ()
    cleared: Template | None = None
    stop: Template | None = None
    """None = the connection is closed."""
    subprotocol: str = ""


_SEQUENCE: Final = {"sequenceNumber": TEXT_COUNT, "streamSid": STREAM}
_SNAKE: Final = {"sequence_number": TEXT_COUNT}


def _json_dialect(ours: JsonDialect, **templates: Any) -> CarrierDialect:
    return CarrierDialect(
        ours.line,
        ours.payload,
        agent_media=ours.media,
        agent_clear=ours.clear,
        agent_mark=ours.mark,
        agent_keys=ours.keys,
        **templates,
    )


def _twilio() -> CarrierDialect:
    """Source: twilio.com/docs/voice/media-streams/websocket-messages."""
    start = {
        "accountSid": "AC" + "0" * 32,
        "streamSid": STREAM,
        "callSid": CALL,
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE_HZ, "channels": 1},
        "customParameters": {"from": FROM, "to": TO},
    }
    sound = {"track": "inbound", "chunk": TEXT_COUNT, "timestamp": STAMP, "payload": SOUND}
    return _json_dialect(
        TWILIO,
        opening=(
            {"event": "connected", "protocol": "Call", "version": "1.0.0"},
            {"event": "start", "start": start, **_SEQUENCE},
        ),
        media={"event": "media", "media": sound, **_SEQUENCE},
        key={"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": DIGIT}, **_SEQUENCE},
        played={"event": "mark", "mark": {"name": NAME}, **_SEQUENCE},
        stop={
            "event": "stop",
            "stop": {"accountSid": "AC" + "0" * 32, "callSid": CALL},
            **_SEQUENCE,
        },
    )


def _telnyx() -> CarrierDialect:
    """Source: developers.telnyx.com, "Stream call media over WebSocket"."""
    both = {**_SNAKE, "stream_id": STREAM}
    start = {
        "user_id": "rehearsal",
        "call_control_id": CALL,
        "from": FROM,
        "to": TO,
        "media_format": {"encoding": "PCMU", "sample_rate": RATE_HZ, "channels": 1},
    }
    sound = {"track": "inbound", "chunk": TEXT_COUNT, "timestamp": STAMP, "payload": SOUND}
    return _json_dialect(
        TELNYX,
        opening=(
            {"event": "connected", "version": "1.0.0"},
            {"event": "start", "start": start, **both},
        ),
        media={"event": "media", "media": sound, **both},
        key={
            "event": "dtmf",
            "dtmf": {"digit": DIGIT},
            "occurred_at": "2026-01-01T00:00:00.000000Z",
            **both,
        },
        played={"event": "mark", "mark": {"name": NAME}, **both},
        stop={"event": "stop", "stop": {"user_id": "rehearsal", "call_control_id": CALL}, **both},
    )


def _plivo() -> CarrierDialect:
    """Source: plivo.com/docs, "Audio Streaming"."""
    both = {"sequenceNumber": COUNT, "streamId": STREAM}
    start = {
        "callId": CALL,
        "streamId": STREAM,
        "accountId": "rehearsal",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": RATE_HZ},
    }
    sound = {"track": "inbound", "timestamp": STAMP, "chunk": COUNT, "payload": SOUND}
    return _json_dialect(
        PLIVO,
        opening=(
            {
                "event": "start",
                "sequenceNumber": COUNT,
                "start": start,
                "extra_headers": f"from={FROM};to={TO}",
            },
        ),
        media={"event": "media", "media": sound, "extra_headers": "", **both},
        key={
            "event": "dtmf",
            "dtmf": {"track": "inbound", "digit": DIGIT, "timestamp": STAMP},
            "extra_headers": "",
            **both,
        },
        played={"event": "playedStream", "name": NAME, **both},
        cleared={"event": "clearedAudio", **both},
        stop={"event": "stop", **both},
    )


def _exotel() -> CarrierDialect:
    """Source: support.exotel.com, "Working with the Stream and Voicebot applet"."""
    both = {**_SNAKE, "stream_sid": STREAM}
    start = {
        "stream_sid": STREAM,
        "call_sid": CALL,
        "account_sid": "rehearsal",
        "from": FROM,
        "to": TO,
        "custom_parameters": {},
        "media_format": {"encoding": "audio/x-raw", "sample_rate": str(RATE_HZ), "bit_rate": "16"},
    }
    return _json_dialect(
        EXOTEL,
        opening=({"event": "connected"}, {"event": "start", "start": start, **both}),
        media={
            "event": "media",
            "media": {"chunk": TEXT_COUNT, "timestamp": STAMP, "payload": SOUND},
            **both,
        },
        key={"event": "dtmf", "dtmf": {"digit": DIGIT, "duration": "100"}, **both},
        played={"event": "mark", "mark": {"name": NAME}, **both},
        stop={
            "event": "stop",
            "stop": {"call_sid": CALL, "account_sid": "rehearsal", "reason": "callended"},
            **both,
        },
    )


def _vonage() -> CarrierDialect:
    """Source: developer.vonage.com, "WebSockets" of the Voice API; closing the socket ends it."""
    return CarrierDialect(
        "vonage",
        slin(16000),
        opening=(
            {
                "event": "websocket:connected",
                "content-type": "audio/l16;rate=16000",
                "uuid": CALL,
                "from": FROM,
                "to": TO,
            },
        ),
        media=None,
        key={"event": "websocket:dtmf", "digit": DIGIT, "duration": 260},
        played={"event": "websocket:notify", "payload": {"name": NAME}},
        agent_clear={"action": "clear"},
        agent_mark={"action": "notify", "payload": {"name": NAME}},
        cleared={"event": "websocket:cleared"},
    )


def _jambonz() -> CarrierDialect:
    """Source: docs.jambonz.org, verb ``listen``, bidirectional audio, streaming."""
    return CarrierDialect(
        "jambonz",
        slin(RATE_HZ),
        opening=(
            {
                "sampleRate": RATE_HZ,
                "mixType": "mono",
                "callSid": CALL,
                "direction": "inbound",
                "from": FROM,
                "to": TO,
                "callId": CALL,
                "sipStatus": 200,
                "sipReason": "OK",
                "callStatus": "in-progress",
                "accountSid": "rehearsal",
                "traceId": "0" * 32,
            },
        ),
        media=None,
        key={"event": "dtmf", "dtmf": DIGIT, "duration": "1600"},
        played={"type": "mark", "data": {"name": NAME, "event": "playout"}},
        agent_clear={"type": "killAudio"},
        agent_mark={"type": "mark", "data": {"name": NAME}},
        agent_hang_up={"type": "disconnect"},
        subprotocol=JAMBONZ_SUBPROTOCOL,
    )


def _asterisk() -> CarrierDialect:
    """Source: docs.asterisk.org, "WebSocket Channel Driver", with ``f(json)``."""
    return CarrierDialect(
        "asterisk",
        slin(RATE_HZ),
        opening=(
            {
                "event": "MEDIA_START",
                "connection_id": STREAM,
                "channel": "WebSocket/rehearsal",
                "channel_id": CALL,
                "format": "slin",
                "optimal_frame_size": 2 * FRAME_SAMPLES,
                "ptime": FRAME_MS,
                "channel_variables": {"CALLERID(num)": FROM, "CALLERID(dnid)": TO},
            },
        ),
        media=None,
        key={"event": "DTMF_END", "digit": DIGIT, "duration": 100},
        played={"event": "MEDIA_MARK_PROCESSED", "correlation_id": NAME},
        agent_clear={"command": "FLUSH_MEDIA"},
        agent_mark={"command": "MARK_MEDIA", "correlation_id": NAME},
        agent_hang_up={"command": "HANGUP"},
        agent_ignored=({"command": "ANSWER"}, {"command": "START_MEDIA_BUFFERING"}),
        subprotocol="media",
    )


DIALECTS: Final[Mapping[str, Callable[[], CarrierDialect]]] = {
    "twilio": _twilio,
    "telnyx": _telnyx,
    "plivo": _plivo,
    "exotel": _exotel,
    "vonage": _vonage,
    "jambonz": _jambonz,
    "asterisk": _asterisk,
}
