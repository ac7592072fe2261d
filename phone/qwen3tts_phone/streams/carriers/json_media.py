"""Media streams in JSON, with a table of names for each carrier."""

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
from qwen3tts_phone.streams.adapter import (
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
    ChunkOrder,
    JsonAdapter,
    Missed,
    Object,
    child,
    number,
    object_of,
    sound_of,
    text,
    texts,
    whole,
)

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


MEDIA_TYPES: Final = {"PCMU": "audio/x-mulaw", "PCMA": "audio/x-alaw", "L16LE": "audio/x-l16"}
"""What Plivo calls a format."""


def payload_of(encoding: str, rate_hz: int, *, big_endian: bool = False) -> Payload | None:
    """The format that a carrier's name stands for; None for one that nobody here can read.

    ``big_endian``: whether linear samples have their high byte first, as in RTP.
    """
    name = encoding.lower().removeprefix("audio/").removeprefix("x-").partition(";")[0].strip()
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
    spec = codec_by_alias(name)
    # G.711 is of 8 kHz alone; G.722 and Opus have one rate, whatever is named.
    if spec is None or (spec.payload.sample_bytes and rate_hz != spec.payload.sample_hz):
        return None
    return spec.payload


IDLE_TICKS = 2
"""After so many ticks without a frame, joined frames go out though the message is not full."""
MOST_HOLE_MS = 1000.0
RATES_HZ = (8000, 16000, 24000, 32000, 48000)
"""Rates of sound that a carrier may announce."""


class CarrierAdapter(JsonAdapter):
    """How Twilio, Telnyx, Plivo or Exotel is spoken to.

    Args:
        dialect: the carrier's table.
        plays: what it plays, where that is not what it sends (Telnyx); None = the table's.
        big_endian: whether its linear samples have their high byte first.
    """

    def __init__(
        self, dialect: Dialect, *, plays: Payload | None = None, big_endian: bool = False
    ) -> None:
        self.line = dialect.line
        self.has_marks = True
        # The carrier goes on with whatever stands behind the stream in its own program.
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
        self._order: ChunkOrder[StreamEvent] | None = None if dialect.ordered else ChunkOrder()
        self._chunk_ms = 20.0
        self._next_ms: float | None = None
        self._joined: list[bytes] = []
        self._idle_ticks = 0
        self._head, self._tail = "", ""
        self._compile()

    @property
    def payload(self) -> Payload:
        """See `StreamAdapter`."""
        return self._out

    @property
    def payload_in(self) -> Payload:
        """See `StreamAdapter`."""
        return self._in

    # --- what comes

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        """See `StreamAdapter`."""
        if not isinstance(message, str):
            return self._odd("a binary message")
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        name = found.get("event")
        meaning = self._events.get(name) if isinstance(name, str) else None
        if meaning is Meaning.MEDIA:
            return self._media(found, now)
        if meaning is Meaning.START:
            return self._start(found)
        if meaning is Meaning.KEY:
            return self._key(found)
        if meaning is Meaning.MARK:
            return self._mark_back(found)
        if meaning is Meaning.CLEARED:
            return [StreamCleared()]
        if meaning is Meaning.STOP:
            return [*self._ordered(self._order.drain() if self._order else []), _stopped(found)]
        if meaning is Meaning.ERROR:
            return self._odd(f"an error of the carrier's{_said(found)}")
        return [] if meaning is not None else self._odd("unknown event")

    @property
    def wants_ticks(self) -> bool:
        """See `StreamAdapter`."""
        return self._order is not None or self._dialect.join_frames > 1

    def tick(self, now: float) -> list[StreamEvent]:
        """See `StreamAdapter`."""
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
        handed_over = next((both[each] for each in self._dialect.parameters if each in both), None)
        parameters = texts(handed_over)
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
            return payload_of(default.name, rate or default.sample_hz, big_endian=self._big_endian)
        return payload_of(encoding, rate or 8000, big_endian=self._big_endian)

    def _media(self, message: Object, now: float) -> list[StreamEvent]:
        if not self._started:
            return self._odd("media before start")
        media = child(message, "media")
        if text(media, "track").startswith("outbound"):
            return []  # what is said to the caller, heard again
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
            hole = self._hole(media) if self._dialect.timed else ()
            return [*odd, *hole, event]
        chunk = whole(media, "chunk")
        if chunk is None:
            odd += self._odd("media without a number")
        return [*odd, *self._ordered(self._order.push(chunk, event, now))]

    def _hole(self, media: Object) -> Sequence[StreamEvent]:
        """What is missing before this chunk by its place on the stream's time axis."""
        place_ms = number(media, "timestamp")
        if place_ms is None:
            return ()
        gap_ms = place_ms - self._next_ms if self._next_ms is not None else 0.0
        self._next_ms = place_ms + self._chunk_ms
        # Less than most of a chunk is the unevenness of a clock; more than a second a new axis.
        return (StreamLost(gap_ms),) if 0.75 * self._chunk_ms <= gap_ms <= MOST_HOLE_MS else ()

    def _ordered(self, found: Sequence[StreamEvent | Missed]) -> list[StreamEvent]:
        return [
            StreamLost(each.chunks * self._chunk_ms) if isinstance(each, Missed) else each
            for each in found
        ]

    def _duration_ms(self, data: bytes) -> float:
        if not self._in.sample_bytes:
            return self._chunk_ms
        return 1000 * len(data) / self._in.sample_bytes / self._in.sample_hz

    def _mark_back(self, message: Object) -> list[StreamEvent]:
        *path, last = self._dialect.mark_name
        for name in path:
            message = child(message, name)
        mark = text(message, last)
        return [StreamMark(mark)] if mark else self._odd("a mark without a name")

    # --- what goes out

    def audio(self, payload: bytes) -> Sequence[Message]:
        """See `StreamAdapter`."""
        self._idle_ticks = 0
        if self._dialect.join_frames == 1:
            return (self._sound(payload),)
        self._joined.append(payload)
        return self._let_go() if len(self._joined) >= self._dialect.join_frames else ()

    def flush(self) -> Sequence[Message]:
        """See `StreamAdapter`."""
        self._idle_ticks += 1
        return self._let_go() if self._idle_ticks >= IDLE_TICKS else ()

    def clear(self) -> Sequence[Message]:
        """See `StreamAdapter`."""
        self._joined.clear()
        return (_written(self._dialect.clear, {STREAM: self._stream_id}),)

    def mark(self, name: str) -> Sequence[Message]:
        """See `StreamAdapter`."""
        message = _written(self._dialect.mark, {STREAM: self._stream_id, NAME: name})
        return (*self._let_go(), message)

    def keys(self, digits: str) -> Sequence[Message]:
        """See `StreamAdapter`."""
        if self._dialect.keys is None or not digits or not set(digits.upper()) <= DIGITS:
            return super().keys(digits)
        return (_written(self._dialect.keys, {KEYS: digits.upper()}),)

    def _let_go(self) -> Sequence[Message]:
        if not self._joined:
            return ()
        joined = b"".join(self._joined)
        self._joined.clear()
        return (self._sound(joined),)

    def _sound(self, payload: bytes) -> str:
        return f"{self._head}{base64.b64encode(payload).decode('ascii')}{self._tail}"

    def _compile(self) -> None:
        """Write the message with sound once, for all but the sound itself."""
        values = {
            STREAM: self._stream_id,
            TYPE: MEDIA_TYPES.get(self._out.name, MEDIA_TYPES["L16LE"]),
            RATE: self._out.sample_hz,
        }
        message = _written(self._dialect.media, values)
        self._head, _, self._tail = message.partition(json.dumps(SOUND)[1:-1])


def _written(template: Mapping[str, Any], values: Mapping[str, object]) -> str:
    return json.dumps(_filled(template, values), separators=(",", ":"))


def _filled(template: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _filled(value, values) if isinstance(value, Mapping) else values.get(value, value)
        for name, value in template.items()
    }


def _stopped(message: Object) -> StreamStopped:
    return StreamStopped(text(child(message, "stop"), "reason")[:80])


def _said(message: Object) -> str:
    said = child(message, "payload", "error")
    words = " ".join(filter(None, (text(said, "code")[:20], text(said, "title")[:60])))
    return f": {words}" if words else ""


def _direction(start: Object, parameters: Mapping[str, str]) -> Literal["in", "out"]:
    said = text(start, "direction") or parameters.get("direction", "")
    return "out" if said.lower().startswith("out") else "in"
