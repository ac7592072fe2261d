"""Carrier's end of a media stream (pure): the side that sends the caller to an agent.

A `CarrierDialect` is a table of JSON templates. Messages of the agent are those of the adapters in
`qwen3tts_phone.streams.carriers`; messages to it are by the carriers' documentation, named there.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.streams.carriers.adapter import Message
from qwen3tts_phone.streams.carriers.exotel import EXOTEL
from qwen3tts_phone.streams.carriers.jambonz import SUBPROTOCOL as JAMBONZ_SUBPROTOCOL
from qwen3tts_phone.streams.carriers.json_media import (
    KEYS,
    NAME,
    SOUND,
    STREAM,
    JsonDialect,
)
from qwen3tts_phone.streams.carriers.messages import DIGITS, object_of, sound_of
from qwen3tts_phone.streams.carriers.plivo import PLIVO
from qwen3tts_phone.streams.carriers.telnyx import TELNYX
from qwen3tts_phone.streams.carriers.twilio import TWILIO

RATE_HZ: Final = 8000
FRAME_MS: Final = 20
FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1000
MAX_QUEUED_S: Final = 600.0
"""Sound of the agent that is queued; what is beyond is refused, as by carriers."""

CALL, FROM, TO, DIGIT = "\0call", "\0from", "\0to", "\0digit"
COUNT, TEXT_COUNT, STAMP = "\0count", "\0text count", "\0stamp"
"""Placeholders, beside those of `json_media`: the call's id, its parties, a key, the number of a
message as a number and as a text, its milliseconds since the start."""

Template = Mapping[str, Any]


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


class PlayoutQueue:
    """Sound and marks of the agent in the order of their playout, one frame at a time."""

    def __init__(self) -> None:
        self.queued_samples = 0
        self._items: deque[Pcm | str] = deque()

    def push(self, pcm: Pcm) -> None:
        if len(pcm):
            self._items.append(pcm)
            self.queued_samples += len(pcm)

    def mark(self, name: str) -> None:
        self._items.append(name)

    def clear(self) -> list[str]:
        """Drop all; return the marks that were pending."""
        names = [each for each in self._items if isinstance(each, str)]
        self._items.clear()
        self.queued_samples = 0
        return names

    def play(self, samples: int) -> tuple[Pcm, list[str]]:
        """Return the next samples, with silence where there are none, and the marks before it."""
        frame = np.zeros(samples, np.int16)
        filled_to, names = 0, list[str]()
        while self._items:
            first = self._items[0]
            if isinstance(first, str):
                names.append(first)
                self._items.popleft()
                continue
            if filled_to == samples:
                break
            part = first[: samples - filled_to]
            frame[filled_to : filled_to + len(part)] = part
            filled_to += len(part)
            if len(part) == len(first):
                self._items.popleft()
            else:
                self._items[0] = first[len(part) :]
        self.queued_samples -= filled_to
        return frame, names


@dataclass(slots=True)
class AgentCounts:
    """Messages of the agent."""

    sound: int = 0
    clears: int = 0
    marks: int = 0
    odd: dict[str, int] = field(default_factory=dict)
    """Messages that a carrier would refuse, by reason."""


class CarrierEnd:
    """One call of a carrier; all sound is 8 kHz, 20 ms a frame.

    Args:
        line: a name of `DIALECTS`.
        from_number: the caller.
        to_number: the called party.
        call_id: empty = random.
    """

    def __init__(
        self, line: str, *, from_number: str = "", to_number: str = "", call_id: str = ""
    ) -> None:
        self.dialect = DIALECTS[line]()
        self.hung_up = False
        """True if the agent ended the call by a message."""
        self.keys_sent = ""
        """Keys that the agent asked for."""
        self.counts = AgentCounts()
        payload = self.dialect.payload
        self._decoder = payload.decoder()
        self._up = Resampler(RATE_HZ, payload.sample_hz)
        self._down = Resampler(payload.sample_hz, RATE_HZ)
        self._encode = payload.encoder(FRAME_MS).encode
        self._frame = payload.frame_samples(FRAME_MS)
        self._queue = PlayoutQueue()
        self._count = 0
        self._frames = 0
        self._identity: dict[str, object] = {
            STREAM: uuid.uuid4().hex,
            CALL: call_id or str(uuid.uuid4()),
            FROM: from_number or "anonymous",
            TO: to_number or "rehearsal",
        }

    @property
    def queued_s(self) -> float:
        """Sound of the agent that has come and is not played."""
        return self._queue.queued_samples / RATE_HZ

    # --- to the agent

    def begin(self) -> list[Message]:
        return [self._message(each) for each in self.dialect.opening]

    def audio(self, pcm: Pcm) -> Message:
        """Return the message of one frame of the caller, shape [160]."""
        wide = self._up.push(pcm)
        if len(wide) < self._frame:  # the first frame of a resampler is short by its delay
            wide = np.concatenate([np.zeros(self._frame - len(wide), np.int16), wide])
        data = self._encode(wide[: self._frame])
        message: Message = data
        if self.dialect.media is not None:
            sound = base64.b64encode(data).decode("ascii")
            message = self._message(self.dialect.media, {SOUND: sound})
        self._frames += 1
        return message

    def key(self, digit: str) -> Message:
        """Return the message of a pressed key. Raises ValueError."""
        if digit not in DIGITS:
            raise ValueError(f"{digit[:10]!r} is no key of a telephone")
        return self._message(self.dialect.key, {DIGIT: digit})

    def stop(self) -> list[Message]:
        """Return the last messages; then the connection is closed."""
        return [] if self.dialect.stop is None else [self._message(self.dialect.stop)]

    def play(self) -> tuple[Pcm, list[Message]]:
        """Return the agent's next 20 ms, and marks that have been played."""
        frame, names = self._queue.play(FRAME_SAMPLES)
        return frame, [self._message(self.dialect.played, {NAME: name}) for name in names]

    # --- from the agent

    def receive(self, message: Message) -> list[Message]:
        """Take a message; return the answers to it."""
        dialect = self.dialect
        if isinstance(message, bytes):
            if dialect.agent_media is not None:
                return self._odd("a binary message")
            return self._sound(message)
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        if dialect.agent_media is not None and _same_kind(dialect.agent_media, found):
            sound = sound_of(_value(dialect.agent_media, found, SOUND))
            return self._odd("sound that is no base64") if sound is None else self._sound(sound)
        if _same_kind(dialect.agent_mark, found):
            name = _value(dialect.agent_mark, found, NAME)
            if not isinstance(name, str):
                return self._odd("a mark without a name")
            self.counts.marks += 1
            self._queue.mark(name)
            return []
        if _same_kind(dialect.agent_clear, found):
            return self._clear()
        if dialect.agent_hang_up is not None and _same_kind(dialect.agent_hang_up, found):
            self.hung_up = True
            return []
        if dialect.agent_keys is not None and _same_kind(dialect.agent_keys, found):
            keys = str(_value(dialect.agent_keys, found, KEYS))
            self.keys_sent += "".join(each for each in keys if each in DIGITS)
            return []
        known = any(_same_kind(each, found) for each in dialect.agent_ignored)
        return [] if known else self._odd("an unknown event")

    def _sound(self, data: bytes) -> list[Message]:
        size = self.dialect.payload.sample_bytes or 1
        if not data or len(data) % size:
            return self._odd("half a sample" if data else "media without sound")
        if self.queued_s > MAX_QUEUED_S:
            return self._odd("more sound than is queued")
        self.counts.sound += 1
        self._queue.push(self._down.push(self._decoder.decode(data)))
        return []

    def _clear(self) -> list[Message]:
        self.counts.clears += 1
        self._down.reset()
        # Twilio's way: marks that will never be played return as well.
        answers = [self._message(self.dialect.played, {NAME: name}) for name in self._queue.clear()]
        cleared = self.dialect.cleared
        return [*answers, *([] if cleared is None else [self._message(cleared)])]

    def _odd(self, what: str) -> list[Message]:
        self.counts.odd[what] = self.counts.odd.get(what, 0) + 1
        return []

    def _message(self, template: Template, values: Mapping[str, object] | None = None) -> str:
        self._count += 1
        known = {
            **self._identity,
            COUNT: self._count,
            TEXT_COUNT: str(self._count),
            STAMP: str(self._frames * FRAME_MS),
            **(values or {}),
        }
        return json.dumps(_filled(template, known), separators=(",", ":"))


def _filled(template: object, values: Mapping[str, object]) -> object:
    if isinstance(template, Mapping):
        return {name: _filled(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [_filled(each, values) for each in template]
    if not isinstance(template, str) or "\0" not in template:
        return template
    if template in values:
        return values[template]
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


def _same_kind(template: Template, found: Mapping[str, Any]) -> bool:
    """Return True if the first fixed field, the message's kind, is the same."""
    name, kind = next(iter(template.items()))
    return bool(found.get(name) == kind)


def _value(template: Template, found: Mapping[str, Any], placeholder: str) -> object:
    """Return what stands in place of the placeholder, or None."""
    for name, value in template.items():
        inner = found.get(name)
        if value == placeholder:
            return inner
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            deeper = _value(value, inner, placeholder)
            if deeper is not None:
                return deeper
    return None
