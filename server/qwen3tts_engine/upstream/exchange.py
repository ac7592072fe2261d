"""One utterance on a vLLM-Omni WebSocket, from the client's side. Pure.

Versions of that server differ: ``audio.start`` comes before the work or with the first sound, a
text may come back in several units, the connection may be over after ``session.done``. All of them
are taken; what cannot be right (sound after its end, a unit within a unit) is an error.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from qwen3tts_engine.upstream.faults import AGAIN, garbage, of_fields, printable
from qwen3tts_engine.upstream.sound import check_rate
from qwen3tts_wire.errors import EngineFailed

Data = str | bytes


class State(Enum):
    """Where an utterance is."""

    ASKED = auto()
    """Nothing has come."""
    UNIT = auto()
    """Between ``audio.start`` (or the first sound) and ``audio.done``."""
    BETWEEN = auto()
    """After an ``audio.done``."""
    DONE = auto()
    """After ``session.done``: the connection may be used again."""


_MOVES = {
    (State.ASKED, "audio.start"): State.UNIT,
    (State.ASKED, "sound"): State.UNIT,
    # A server that starts a unit with its sound ends one without sound like this.
    (State.ASKED, "audio.done"): State.BETWEEN,
    (State.ASKED, "session.done"): State.DONE,
    (State.UNIT, "sound"): State.UNIT,
    (State.UNIT, "audio.done"): State.BETWEEN,
    (State.BETWEEN, "audio.start"): State.UNIT,
    (State.BETWEEN, "session.done"): State.DONE,
}
"""What is missing is out of order."""


class Exchange:
    """What is sent is the shell's; what comes goes through ``receive``."""

    def __init__(self) -> None:
        self.state = State.ASKED
        self.received = 0
        """Bytes of sound so far."""
        self._handlers: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "audio.start": self._start,
            "audio.chunk": self._chunk,
            "audio.done": self._done,
            "session.done": self._over,
            "error": self._error,
        }

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return self.state is State.DONE

    def receive(self, data: Data) -> bytes:
        """A message; the sound in it.

        Raises:
            EngineFailed: the server failed, or sent what cannot be right.
            SpeechError: it refused the request.
        """
        if isinstance(data, bytes):
            return self._sound(data)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise garbage("a message that is no JSON") from None
        if not isinstance(message, dict):
            raise garbage("a message that is no JSON object")
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        # What is not known is for other clients, or other versions.
        return b"" if handler is None else handler(message)

    def closed(self, code: int | None, reason: str = "") -> None:
        """The connection is over.

        Raises:
            EngineFailed: all had not come.
        """
        if self.done:
            return
        # Servers of early 2026 end the connection after the last unit, properly.
        if self.state is State.BETWEEN and code in (1000, 1005):
            self.state = State.DONE
            return
        said = printable(reason)
        shown = f" ({code} {said})".replace(" )", ")") if code not in (None, 1005, 1006) else ""
        what = "in the middle of the speech" if self.received else "before any sound"
        raise EngineFailed(f"The upstream server hung up {what}{shown}.", remedy=AGAIN)

    def _move(self, event: str) -> None:
        following = _MOVES.get((self.state, event))
        if following is None:
            raise garbage(f"{event} out of order")
        self.state = following

    def _sound(self, data: bytes) -> bytes:
        self._move("sound")
        self.received += len(data)
        return data

    def _start(self, message: dict[str, Any]) -> bytes:
        form = message.get("format", "pcm")
        if form != "pcm":
            raise garbage(f"{printable(form)[:20] or 'something'}, not pcm as asked")
        check_rate(message.get("sample_rate", 24_000), message.get("channels", 1))
        self._move("audio.start")
        return b""

    def _chunk(self, message: dict[str, Any]) -> bytes:
        """Sound as base64, which comes in place of binary where word times are sent."""
        audio = message.get("audio_b64") or ""
        if "sample_rate" in message:
            check_rate(message["sample_rate"])
        try:
            return self._sound(base64.b64decode(audio, validate=True)) if audio else b""
        except (binascii.Error, ValueError, TypeError):
            raise garbage("sound that is no base64") from None

    def _done(self, message: dict[str, Any]) -> bytes:
        self._move("audio.done")
        if message.get("error"):
            raise EngineFailed("The upstream server failed to say the text.", remedy=AGAIN)
        return b""

    def _over(self, _: dict[str, Any]) -> bytes:
        self._move("session.done")
        return b""

    def _error(self, message: dict[str, Any]) -> bytes:
        error = of_fields(message)
        if self.received and not isinstance(error, EngineFailed):
            # With half a sentence said, it is no longer the request that is wrong.
            error = EngineFailed(error.message, remedy=AGAIN)
        raise error
