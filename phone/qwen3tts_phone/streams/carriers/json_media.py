"""Media streams in JSON, as of Twilio, Telnyx, Plivo and Exotel (pure).

A `JsonDialect` is a carrier's table of names: the first spelling of a field is the documented one,
further ones have been seen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal

from qwen3tts_codecs.l16 import l16, slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.table import codec_by_alias
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAudio,
    StreamCleared,
    StreamEvent,
    StreamLost,
    StreamMark,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.messages import (
    DIGITS,
    JsonAdapter,
    MissingChunks,
    Object,
    ReorderBuffer,
    child,
    number,
    object_of,
    sound_of,
    text,
    texts,
    whole,
)

STREAM: Final = "\0stream"
SOUND: Final = "\0sound"
NAME: Final = "\0name"
KEYS: Final = "\0keys"
TYPE: Final = "\0type"
RATE: Final = "\0rate"
"""Placeholders in the templates of outbound messages: stream id, audio (base64), mark name, DTMF
digits, media type such as ``audio/x-mulaw``, sample rate."""

Spellings = tuple[str, ...]


class EventKind(Enum):
    GREETING = auto()
    START = auto()
    MEDIA = auto()
    KEY = auto()
    MARK = auto()
    CLEARED = auto()
    STOP = auto()
    ERROR = auto()
    IGNORED = auto()


@dataclass(frozen=True, slots=True)
class JsonDialect:
    """One carrier's names for the format."""

    line: str
    payload: Payload
    media: Mapping[str, Any]
    clear: Mapping[str, Any]
    mark: Mapping[str, Any]
    keys: Mapping[str, Any] | None = None
    events: Mapping[str, EventKind] | None = None
    stream_id: Spellings = ("streamSid", "stream_sid", "streamId", "stream_id")
    call_id: Spellings = ("callSid", "call_sid", "callId", "call_control_id")
    format: Spellings = ("mediaFormat", "media_format")
    rate: Spellings = ("sampleRate", "sample_rate")
    parameters: Spellings = ("customParameters", "custom_parameters")
    mark_name: Spellings = ("mark", "name")
    ordered: bool = True
    ends_by_closing: bool = False
    """True if it closes the connection without ``stop`` when the caller hangs up."""
    timed: bool = False
    """True if ``media.timestamp`` counts the stream's own time."""
    plays_what_it_sends: bool = True
    """True if outbound audio has the format of the inbound audio."""
    join_frames: int = 1
    lead_ms: int | None = None


EVENTS: Final[Mapping[str, EventKind]] = {
    "connected": EventKind.GREETING,
    "start": EventKind.START,
    "media": EventKind.MEDIA,
    "dtmf": EventKind.KEY,
    "mark": EventKind.MARK,
    "stop": EventKind.STOP,
}


MEDIA_TYPES: Final = {"PCMU": "audio/x-mulaw", "PCMA": "audio/x-alaw", "L16LE": "audio/x-l16"}


def payload_named(encoding: str, rate_hz: int, *, big_endian: bool = False) -> Payload | None:
    """Return the format of a carrier's name, or None.

    ``big_endian``: byte order of linear samples, as in RTP.
    """
    name = encoding.lower().removeprefix("audio/").removeprefix("x-").partition(";")[0].strip()
    # Exotel's older start messages name the encoding of the bytes (base64) here.
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
    spec = codec_by_alias(name)
    # G.711 is of 8 kHz alone; G.722 and Opus have one rate, whatever is named.
    if spec is None or (spec.payload.sample_bytes and rate_hz != spec.payload.sample_hz):
        return None
    return spec.payload


IDLE_TICKS = 2
"""Ticks without a frame after which a partly filled message is sent."""
MAX_GAP_MS = 1000.0
RATES_HZ = (8000, 16000, 24000, 32000, 48000)


class JsonMediaAdapter(JsonAdapter):
    """Adapter of a media stream in JSON.

    Args:
        dialect: the carrier's names.
        plays: outbound format if it differs from inbound (Telnyx); None = the dialect's.
        big_endian: byte order of linear samples.
    """

    def __init__(
        self, dialect: JsonDialect, *, plays: Payload | None = None, big_endian: bool = False
    ) -> None:
        self.line = dialect.line
        self.has_marks = True
        # The call continues with what follows the stream in the carrier's own program.
        self.has_hang_up = False
        self.ends_by_closing = dialect.ends_by_closing
        self.queue_lead_ms = dialect.lead_ms
        self._dialect = dialect
        self._events = dialect.events or EVENTS
        self._big_endian = big_endian
        self._in = dialect.payload
        self._out = plays or dialect.payload
        self._stream_id = ""
        self._started = False
        self._order: ReorderBuffer[StreamEvent] | None = (
            None if dialect.ordered else ReorderBuffer()
        )
        self._chunk_ms = 20.0
        self._next_ms: float | None = None
        self._joined: list[bytes] = []
        self._idle_ticks = 0
        self._head, self._tail = "", ""
        self._compile()

    @property
    def payload(self) -> Payload:
        return self._out

    @property
    def payload_in(self) -> Payload:
        return self._in

    # --- inbound

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if not isinstance(message, str):
            return self._odd("a binary message")
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        name = found.get("event")
        kind = self._events.get(name) if isinstance(name, str) else None
        if kind is EventKind.MEDIA:
            return self._media(found, now)
        if kind is EventKind.START:
            return self._start(found)
        if kind is EventKind.KEY:
            return self._key(found)
        if kind is EventKind.MARK:
            return self._mark_returned(found)
        if kind is EventKind.CLEARED:
            return [StreamCleared()]
        if kind is EventKind.STOP:
            return [*self._ordered(self._order.drain() if self._order else []), _stopped(found)]
        if kind is EventKind.ERROR:
            return self._odd(f"an error of the carrier's{_error_text(found)}")
        return [] if kind is not None else self._odd("unknown event")

    @property
    def wants_ticks(self) -> bool:
        return self._order is not None or self._dialect.join_frames > 1

    def tick(self, now: float) -> list[StreamEvent]:
        return [] if self._order is None else self._ordered(self._order.tick(now))

    def _start(self, message: Object) -> list[StreamEvent]:
        if self._started:
            return self._odd("a second start")
        start, odd = child(message, "start"), list[StreamEvent]()
        both = {**message, **start}
        self._stream_id = text(both, *self._dialect.stream_id)
        call_id = text(both, *self._dialect.call_id)
        if not call_id:
            odd += self._odd("a start without the call's id")
            call_id = self._stream_id or self.line
        form = child(both, *self._dialect.format)
        encoding, rate = text(form, "encoding", "codec"), whole(form, *self._dialect.rate)
        if number(form, "channels") not in (None, 1.0):
            odd += self._odd("sound of more than one channel")
        if rate is not None and rate not in RATES_HZ:
            odd += self._odd("a rate that no telephone has")
            rate = None
        if encoding or rate is not None:
            read = self._format(encoding, rate)
            if read is None:
                return [
                    *odd,
                    *self._odd("an encoding that cannot be read"),
                    StreamStopped(f"its encoding {encoding[:40]} cannot be read", error=True),
                ]
            self._in = read
        if self._dialect.plays_what_it_sends:
            self._out = self._in
        self._started = True
        self._compile()
        custom = next((both[each] for each in self._dialect.parameters if each in both), None)
        parameters = texts(custom)
        return [
            *odd,
            StreamStarted(
                call_id,
                self._stream_id,
                text(both, "from") or text(dict(parameters), "from", "From", "from_number"),
                text(both, "to") or text(dict(parameters), "to", "To", "to_number"),
                direction=_direction(both, parameters),
                payload=self._out,
                payload_in=self._in,
                parameters=parameters,
            ),
        ]

    def _format(self, encoding: str, rate: int | None) -> Payload | None:
        if not encoding:
            default = self._dialect.payload
            return payload_named(
                default.name, rate or default.sample_hz, big_endian=self._big_endian
            )
        return payload_named(encoding, rate or 8000, big_endian=self._big_endian)

    def _media(self, message: Object, now: float) -> list[StreamEvent]:
        if not self._started:
            return self._odd("media before start")
        media = child(message, "media")
        if text(media, "track").startswith("outbound"):
            return []  # an echo of our own audio
        data, odd = sound_of(media.get("payload")), list[StreamEvent]()
        if data is None or not data:
            odd = self._odd("sound that is no base64" if data is None else "media without sound")
            event: StreamEvent = StreamLost(self._chunk_ms)
        else:
            if self._in.sample_bytes > 1 and len(data) % self._in.sample_bytes:
                odd = self._odd("half a sample")
                data = data[: len(data) - len(data) % self._in.sample_bytes]
            self._chunk_ms = self._duration_ms(data)
            event = StreamAudio(data)
        if self._order is None:
            gap = self._gap(media) if self._dialect.timed else ()
            return [*odd, *gap, event]
        chunk = whole(media, "chunk")
        if chunk is None:
            odd += self._odd("media without a number")
        return [*odd, *self._ordered(self._order.push(chunk, event, now))]

    def _gap(self, media: Object) -> Sequence[StreamEvent]:
        timestamp_ms = number(media, "timestamp")
        if timestamp_ms is None:
            return ()
        gap_ms = timestamp_ms - self._next_ms if self._next_ms is not None else 0.0
        self._next_ms = timestamp_ms + self._chunk_ms
        # Less than 3/4 of a chunk is clock jitter; more than a second a restart of the counter.
        return (StreamLost(gap_ms),) if 0.75 * self._chunk_ms <= gap_ms <= MAX_GAP_MS else ()

    def _ordered(self, found: Sequence[StreamEvent | MissingChunks]) -> list[StreamEvent]:
        return [
            StreamLost(each.chunks * self._chunk_ms) if isinstance(each, MissingChunks) else each
            for each in found
        ]

    def _duration_ms(self, data: bytes) -> float:
        if not self._in.sample_bytes:
            return self._chunk_ms
        return 1000 * len(data) / self._in.sample_bytes / self._in.sample_hz

    def _mark_returned(self, message: Object) -> list[StreamEvent]:
        *path, last = self._dialect.mark_name
        for name in path:
            message = child(message, name)
        mark = text(message, last)
        return [StreamMark(mark)] if mark else self._odd("a mark without a name")

    # --- outbound

    def audio(self, payload: bytes) -> Sequence[Message]:
        self._idle_ticks = 0
        if self._dialect.join_frames == 1:
            return (self._sound(payload),)
        self._joined.append(payload)
        return self._joined_message() if len(self._joined) >= self._dialect.join_frames else ()

    def flush(self) -> Sequence[Message]:
        self._idle_ticks += 1
        return self._joined_message() if self._idle_ticks >= IDLE_TICKS else ()

    def clear(self) -> Sequence[Message]:
        self._joined.clear()
        return (_formatted(self._dialect.clear, {STREAM: self._stream_id}),)

    def mark(self, name: str) -> Sequence[Message]:
        message = _formatted(self._dialect.mark, {STREAM: self._stream_id, NAME: name})
        return (*self._joined_message(), message)

    def keys(self, digits: str) -> Sequence[Message]:
        if self._dialect.keys is None or not digits or not set(digits.upper()) <= DIGITS:
            return super().keys(digits)
        return (_formatted(self._dialect.keys, {KEYS: digits.upper()}),)

    def _joined_message(self) -> Sequence[Message]:
        if not self._joined:
            return ()
        joined = b"".join(self._joined)
        self._joined.clear()
        return (self._sound(joined),)

    def _sound(self, payload: bytes) -> str:
        return f"{self._head}{base64.b64encode(payload).decode('ascii')}{self._tail}"

    def _compile(self) -> None:
        values = {
            STREAM: self._stream_id,
            TYPE: MEDIA_TYPES.get(self._out.name, MEDIA_TYPES["L16LE"]),
            RATE: self._out.sample_hz,
        }
        message = _formatted(self._dialect.media, values)
        self._head, _, self._tail = message.partition(json.dumps(SOUND)[1:-1])


def _formatted(template: Mapping[str, Any], values: Mapping[str, object]) -> str:
    return json.dumps(_filled(template, values), separators=(",", ":"))


def _filled(template: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _filled(value, values) if isinstance(value, Mapping) else values.get(value, value)
        for name, value in template.items()
    }


def _stopped(message: Object) -> StreamStopped:
    return StreamStopped(text(child(message, "stop"), "reason")[:80])


def _error_text(message: Object) -> str:
    said = child(message, "payload", "error")
    words = " ".join(filter(None, (text(said, "code")[:20], text(said, "title")[:60])))
    return f": {words}" if words else ""


def _direction(start: Object, parameters: Mapping[str, str]) -> Literal["in", "out"]:
    said = text(start, "direction") or parameters.get("direction", "")
    return "out" if said.lower().startswith("out") else "in"
