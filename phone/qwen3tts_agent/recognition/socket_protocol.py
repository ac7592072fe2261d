"""`qwen3tts.recogniser.v1`, client side (sans-I/O); docs/recognisers.md.

What is unanswered when a connection breaks is sent again to the next. Methods return the messages
to send; none while no server is ready.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from websockets.asyncio.client import ClientConnection

from qwen3tts_phone.detection.recogniser import Samples, Transcript
from qwen3tts_phone.detection.turn_buffer import TurnBuffer
from qwen3tts_wire.errors import ProtocolError
from qwen3tts_wire.fields import JSON

SUBPROTOCOL = "qwen3tts.recogniser.v1"
MOST_MESSAGE = 1 << 18
"""Bytes of a server's message."""
MOST_TEXT = 20_000
"""Characters of a turn's text."""
MOST_BINARY = 1 << 16
"""Bytes of one message of samples."""
MOST_PENDING = 8
"""Ended turns that wait for their text."""
TRIES = 3
"""Connections over which one turn is attempted."""

Outgoing = list[str | bytes]


@dataclass(frozen=True, slots=True)
class Ready:
    """The server is ready."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Text of a turn so far."""

    turn: int
    transcript: Transcript


@dataclass(frozen=True, slots=True)
class Final:
    """Text of a turn that has ended."""

    turn: int
    transcript: Transcript


@dataclass(frozen=True, slots=True)
class Failed:
    """Failure of one turn, or (``turn`` None) of the call."""

    turn: int | None
    message: str


Answer = Ready | Partial | Final | Failed


@dataclass(slots=True)
class _Turn:
    number: int
    tries: int = 0
    speech: int = 0
    """Samples up to the last voiced one."""
    paused: bool = False
    ended: Samples | None = field(default=None, repr=False)
    """All of its samples, once it is over."""


def json_message(message: str | bytes, remedy: str) -> JSON:
    """Return an object with a ``type``; raises ProtocolError."""
    if not isinstance(message, str):
        raise ProtocolError("The recogniser sent a binary message.", remedy=remedy)
    if len(message) > MOST_MESSAGE:
        raise ProtocolError("The recogniser sent a message that is too long.", remedy=remedy)
    try:
        raw = json.loads(message)
    except (ValueError, RecursionError):
        raise ProtocolError("The recogniser sent invalid JSON.", remedy=remedy) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise ProtocolError("The recogniser sent JSON without a type.", remedy=remedy)
    return raw


def clean_text(text: object, remedy: str) -> str:
    if not isinstance(text, str):
        raise ProtocolError("The recogniser's answer has no text.", remedy=remedy)
    if len(text) > MOST_TEXT:
        raise ProtocolError("The recogniser's text is too long for a turn.", remedy=remedy)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def read_answer(message: str | bytes) -> Answer | None:
    """Return a message's content; None for an unknown, ignored type.

    Raises ProtocolError.
    """
    raw = json_message(message, _REMEDY)
    match raw["type"]:
        case "ready":
            return Ready()
        case "partial":
            return Partial(_turn(raw), _transcript(raw))
        case "final":
            return Final(_turn(raw), _transcript(raw))
        case "error":
            turn = None if raw.get("turn") is None else _turn(raw)
            return Failed(turn, one_line(raw.get("message")))
    return None


class TurnStream:
    """Turns as ``qwen3tts.recogniser.v1`` messages."""

    def __init__(
        self,
        rate_hz: int,
        *,
        languages: Sequence[str] = (),
        everything: bool = False,
        longest_s: float = 300.0,
    ) -> None:
        self.ready = False
        """True if a server accepts messages now."""
        self._rate_hz = rate_hz
        self._languages = list(languages)
        self._everything = everything
        self._audio = TurnBuffer(rate_hz, longest_s=longest_s)
        self._count = 0
        self._turn: _Turn | None = None
        self._pending: dict[int, _Turn] = {}

    # --- the connection

    def hello(self) -> Outgoing:
        start: JSON = {
            "type": "start",
            "rate_hz": self._rate_hz,
            "encoding": "pcm_s16le",
            "audio": "all" if self._everything else "turns",
        }
        if self._languages:
            start["languages"] = self._languages
        return [json.dumps(start)]

    def greeted(self) -> tuple[Outgoing, list[int]]:
        self.ready = True
        out: Outgoing = []
        given_up = []
        for turn in list(self._pending.values()):
            turn.tries += 1
            if turn.tries > TRIES:
                del self._pending[turn.number]
                given_up.append(turn.number)
                continue
            assert turn.ended is not None
            out += [_say("turn.begin", turn, samples_back=0), *binary(turn.ended)]
            out.append(_say("turn.end", turn, speech_samples=turn.speech))
        if self._turn is not None:
            # One that goes on is sent again however often: new sound may be what the server wants.
            out += [_say("turn.begin", self._turn, samples_back=0)]
            out += binary(self._audio.samples())
            if self._turn.paused:
                out.append(_say("turn.pause", self._turn, speech_samples=self._turn.speech))
        return out, given_up

    def lost(self) -> None:
        self.ready = False

    def idle(self) -> Outgoing:
        return []

    def leaving(self) -> Outgoing:
        return []

    # --- the call

    def push(self, samples: Samples, at: float) -> Outgoing:
        self._audio.push(samples, at)
        wanted = self._everything or self._turn is not None
        return binary(samples) if self.ready and wanted else []

    def begin_turn(self, at: float) -> tuple[Outgoing, int]:
        out: Outgoing = []
        if self._turn is not None and self.ready:
            out.append(_say("turn.cancel", self._turn))
        self._count += 1
        self._turn = _Turn(self._count)
        self._audio.begin(at)
        if self.ready:
            samples = self._audio.samples()
            back = len(samples) if self._everything else 0
            out.append(_say("turn.begin", self._turn, samples_back=back))
            if not self._everything:
                out += binary(samples)
        return out, self._count

    def pause(self, at: float) -> Outgoing:
        turn = self._turn
        if turn is None or turn.paused:
            return []
        turn.paused, turn.speech = True, self._audio.before(at)
        return [_say("turn.pause", turn, speech_samples=turn.speech)] if self.ready else []

    def resume(self) -> Outgoing:
        turn = self._turn
        if turn is None or not turn.paused:
            return []
        turn.paused = False
        return [_say("turn.resume", turn)] if self.ready else []

    def drop_turn(self) -> Outgoing:
        turn, self._turn = self._turn, None
        self._audio.end()
        return [_say("turn.cancel", turn)] if turn is not None and self.ready else []

    def end_turn(self, at: float) -> tuple[Outgoing, int | None, int | None]:
        turn, self._turn = self._turn, None
        if turn is None:
            return [], None, None
        turn.speech = self._audio.before(at)
        turn.ended = self._audio.samples(until=at)
        self._audio.end(at)
        out: Outgoing = []
        oldest = next(iter(self._pending)) if len(self._pending) >= MOST_PENDING else None
        if oldest is not None:
            out += self.give_up(oldest)
        turn.tries = 1 if self.ready else 0
        self._pending[turn.number] = turn
        if self.ready:
            out.append(_say("turn.end", turn, speech_samples=turn.speech))
        return out, turn.number, oldest

    def give_up(self, number: int) -> Outgoing:
        turn = self._pending.pop(number, None)
        return [_say("turn.cancel", turn)] if turn is not None and self.ready else []

    def finished(self, number: int) -> Transcript | None:
        return None

    def known(self, number: int) -> Transcript | None:
        return None

    def read(self, message: str | bytes) -> list[Answer]:
        answer = read_answer(message)
        taken = None if answer is None else self.take(answer)
        return [] if taken is None else [taken]

    def take(self, answer: Answer) -> Answer | None:
        """Return an answer's meaning for this call; None: obsolete.

        A final text before its turn is over is a partial one.
        """
        if isinstance(answer, Ready):
            return None if self.ready else answer
        now = None if self._turn is None else self._turn.number
        if isinstance(answer, Failed) and answer.turn is None:
            return answer
        if answer.turn in self._pending:
            if not isinstance(answer, Partial):
                del self._pending[answer.turn]
            return answer
        if answer.turn == now and isinstance(answer, (Partial, Final)):
            return Partial(answer.turn, answer.transcript)
        return None


_REMEDY = "Check that its server speaks qwen3tts.recogniser.v1; see docs/recognisers.md."


def _say(kind: str, turn: _Turn, **fields: int) -> str:
    return json.dumps({"type": kind, "turn": turn.number, **fields})


def binary(samples: Samples) -> Outgoing:
    data = np.ascontiguousarray(samples).astype("<i2").tobytes()
    return [data[start : start + MOST_BINARY] for start in range(0, len(data), MOST_BINARY)]


def _turn(raw: JSON) -> int:
    turn = raw.get("turn")
    if not isinstance(turn, int) or isinstance(turn, bool):
        raise ProtocolError("The recogniser's answer has no number of a turn.", remedy=_REMEDY)
    return turn


def _transcript(raw: JSON) -> Transcript:
    text, language, sure = raw.get("text"), raw.get("language"), raw.get("confidence")
    cleaned = clean_text(text, _REMEDY)
    if language is not None and not (isinstance(language, str) and len(language) <= 64):
        raise ProtocolError("The recogniser's language is not a code.", remedy=_REMEDY)
    if sure is not None and not (
        isinstance(sure, (int, float)) and not isinstance(sure, bool) and 0 <= sure <= 1
    ):
        raise ProtocolError("The recogniser's confidence is not 0 to 1.", remedy=_REMEDY)
    shown = "".join(char for char in language or "" if char.isprintable())
    return Transcript(cleaned, shown, None if sure is None else float(sure))


def one_line(said: object) -> str:
    line = " ".join(str(said if isinstance(said, str) else "").split())[:200]
    return "".join(char if char.isprintable() else "?" for char in line)


class RecognitionStream(Protocol):
    """Turns as messages of a protocol (pure)."""

    def greeted(self) -> tuple[Outgoing, list[int]]:
        """Return unfinished turns' messages for a ready server, and turns given up."""

    def lost(self) -> None: ...

    def idle(self) -> Outgoing: ...

    def leaving(self) -> Outgoing: ...

    def push(self, samples: Samples, at: float) -> Outgoing: ...

    def begin_turn(self, at: float) -> tuple[Outgoing, int]: ...

    def pause(self, at: float) -> Outgoing: ...

    def resume(self) -> Outgoing: ...

    def drop_turn(self) -> Outgoing: ...

    def end_turn(self, at: float) -> tuple[Outgoing, int | None, int | None]: ...

    def give_up(self, number: int) -> Outgoing: ...

    def finished(self, number: int) -> Transcript | None: ...

    def known(self, number: int) -> Transcript | None: ...

    def read(self, message: str | bytes) -> list[Answer]: ...


@dataclass(frozen=True, slots=True)
class RecognitionService:
    """Recogniser's server: its protocol and time limits."""

    shown: str
    """Address for messages."""
    rate_hz: int
    dial: Callable[[], Awaitable[ClientConnection]]
    """Connects, and returns when turns may be sent; raises as `socket_dialling.dial`."""
    stream: Callable[[], RecognitionStream]
    """Makes the `RecognitionStream` of a call."""
    answer_timeout_s: float
    behind_s: float
    settle_s: float | None = None
    """Time after a turn when `RecognitionStream.known` counts; None = never."""
    keep_alive_s: float | None = None
    """Time after the last message when `RecognitionStream.idle` is sent; None = never."""
