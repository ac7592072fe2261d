"""Messages between an engine and its worker: typed, over ``qwen3tts_wire.child``. Pure.

========= ================ =====================================================================
message   direction        fields
========= ================ =====================================================================
Say       to the worker    job, text, options: its first turn
Go        to the worker    job: it has another turn
Stop      to the worker    job
Ready     from the worker  facts: what the engine wants to know of it
Missing   from the worker  reason, remedy: it cannot speak and ends
Note      from the worker  facts: what the engine wants to know later
Sound     from the worker  job, words (numbers), s16le samples
Paused    from the worker  job: its turn is over, its text is not
Done      from the worker  job, to_the_end
Failed    from the worker  job, reason, code, remedy
========= ================ =====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_wire.child import messages as child
from qwen3tts_wire.child.messages import BadMessage
from qwen3tts_wire.child.serving import Inbox, write

WordNumbers = tuple[int, ...]
"""A word in numbers, as an engine and its worker agree; as many for each word of a message."""


@dataclass(frozen=True, slots=True)
class Say:
    job: int
    text: str
    options: Mapping[str, Any]
    """Voice, speed and the like; as JSON can hold them."""


@dataclass(frozen=True, slots=True)
class Go:
    job: int


@dataclass(frozen=True, slots=True)
class Stop:
    job: int


@dataclass(frozen=True, slots=True)
class Ready:
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Missing:
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples (s16le), and words that begin in them or before."""

    job: int
    pcm: bytes
    words: tuple[WordNumbers, ...] = ()


@dataclass(frozen=True, slots=True)
class Paused:
    job: int


@dataclass(frozen=True, slots=True)
class Done:
    job: int
    to_the_end: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    """The job is over: it was refused, and would be again."""

    job: int
    reason: str
    code: str = ""
    """Code of a SpeechError; empty: the library's answer."""
    remedy: str = ""


Order = Say | Go | Stop
Answer = Ready | Missing | Note | Sound | Paused | Done | Failed
Message = Order | Answer

_FIELDS: Mapping[str, tuple[type[Message], Mapping[str, type]]] = {
    "say": (Say, {"job": int, "text": str, "options": dict}),
    "go": (Go, {"job": int}),
    "stop": (Stop, {"job": int}),
    "ready": (Ready, {"facts": dict}),
    "missing": (Missing, {"reason": str, "remedy": str}),
    "note": (Note, {"facts": dict}),
    "sound": (Sound, {"job": int, "words": list}),
    "paused": (Paused, {"job": int}),
    "done": (Done, {"job": int, "to_the_end": bool}),
    "failed": (Failed, {"job": int, "reason": str, "code": str, "remedy": str}),
}
"""Kind of each message on the pipe, its class, and its fields with their JSON types."""
_KINDS = {made: kind for kind, (made, _) in _FIELDS.items()}


def encoded(message: Message) -> bytes:
    return to_child(message).encode()


def send(fd: int, message: Message) -> None:
    write(fd, encoded(message))


def to_child(message: Message) -> child.Message:
    kind = _KINDS[type(message)]
    fields = {name: getattr(message, name) for name in _FIELDS[kind][1]}
    return child.Message(kind, fields, message.pcm if isinstance(message, Sound) else b"")


def from_child(message: child.Message) -> Message:
    if message.kind not in _FIELDS:
        raise BadMessage(f"no message is of kind {message.kind[:20]!r}")
    made, types = _FIELDS[message.kind]
    fields = message.fields
    if {name: type(value) for name, value in fields.items()} != types:
        raise BadMessage(f"{message.kind} with other fields than {', '.join(types)}")
    if fields.get("job", 0) < 0:
        raise BadMessage(f"job {fields['job']} is negative")
    if made is Sound:
        return Sound(fields["job"], _samples(message.data), _words(fields["words"]))
    if message.data:
        raise BadMessage(f"{message.kind} with {len(message.data)} bytes of data")
    return made(**fields)


def _samples(data: bytes) -> bytes:
    if len(data) % 2:
        raise BadMessage(f"sound of {len(data)} bytes")
    return data


def _words(listed: list[Any]) -> tuple[WordNumbers, ...]:
    if not all(type(word) is list and word and len(word) == len(listed[0]) for word in listed):
        raise BadMessage("words that are not lists of one length")
    if not all(type(number) is int and number >= 0 for word in listed for number in word):
        raise BadMessage("words that are not whole numbers")
    return tuple(map(tuple, listed))


@dataclass(slots=True)
class Decoder:
    """Incremental decoder: bytes in, typed messages out, in any cut."""

    _decoder: child.Decoder = field(default_factory=child.Decoder)

    def push(self, data: bytes) -> list[Message]:
        return list(map(from_child, self._decoder.push(data)))


def worker_inbox(fd: int) -> Inbox[Message]:
    return Inbox(fd, Decoder().push)
